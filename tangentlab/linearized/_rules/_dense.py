"""Dense layers and what stands between them in a transformer: layer normalization, GELU and SiLU.

PyTorch's forward mode is correct for all of them. The rules save the graph of the tangents, which forward mode records
and nothing uses, and accumulate products in place.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tangentlab.linearized._rules._dual import join, split, split_optional
from tangentlab.linearized._rules._memory_format import onednn

# Products of at least this many terms are convolutions of oneDNN.
_LARGE = 2**26


def linear(function: Callable[..., Tensor], input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute y = x w^T + b and dy = x dw^T + db + dx w^T, the last product added in place."""
    (x, dx), (w, dw), (b, db) = split(input), split(weight), split_optional(bias)
    y = function(x, w, b)
    with torch.no_grad():
        dy = None if dw is None else _product(x, dw, db)
        if dx is not None:
            dy = F.linear(dx, w, db) if dy is None else _add_product(dy, dx, w.t())
        elif dy is None and db is not None:
            dy = db.expand(y.shape).clone()
    return join(y, dy)


def addmm(
    function: Callable[..., Tensor], input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Tensor:
    """Compute y = beta b + alpha x w and dy = beta db + alpha (x dw + dx w), as in the layers of GPT-2."""
    (b, db), (x, dx), (w, dw) = split(input), split(mat1), split(mat2)
    y = function(b, x, w, beta=beta, alpha=alpha)
    with torch.no_grad():
        dy = None if dw is None else torch.mm(x, dw)
        if dx is not None:
            dy = torch.mm(dx, w) if dy is None else dy.addmm_(dx, w)
        if dy is not None and alpha != 1:
            dy.mul_(alpha)
        if db is not None:
            dy = (beta * db).expand(y.shape).clone() if dy is None else dy.add_(db, alpha=beta)
    return join(y, dy)


def layer_norm(
    function: Callable[..., Tensor],
    input: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Compute y = w h + b with h = (x - mean) r, r = (var + eps)^(-1/2), and dy = w dh + dw h + db.

    The Jacobian of h, r (I - 1 1^T / n - h h^T / n), is symmetric, so that dh is the backward pass of x -> h at dx.
    """
    (x, dx), (w, dw), (b, db) = split(input), split_optional(weight), split_optional(bias)
    y = function(x, normalized_shape, w, b, eps)
    if dx is None and dw is None and db is None:
        return y
    with torch.no_grad():
        # One pass gives dw h + db, and the mean and r that dh needs.
        scale = None if dw is None and db is None else x.new_zeros(normalized_shape) if dw is None else dw
        dy, mean, rstd = torch.native_layer_norm(x, normalized_shape, scale, db, eps)
        if dx is not None:
            wanted = [True, False, False]
            dh = torch.ops.aten.native_layer_norm_backward(dx, x, normalized_shape, mean, rstd, None, None, wanted)[0]
            if scale is None:
                dy = dh if w is None else dh.mul_(w)
            else:
                dy = dy.add_(dh) if w is None else dy.addcmul_(dh, w)
    return join(y, dy)


def gelu(function: Callable[..., Tensor], input: Tensor, *, approximate: str = "none") -> Tensor:
    """Compute y = gelu(x) and dy = gelu'(x) dx."""
    x, dx = split(input)
    y = function(x, approximate=approximate)
    if dx is None:
        return y
    with torch.no_grad():
        dy = torch.ops.aten.gelu_backward(dx, x, approximate=approximate)
    return join(y, dy)


def silu(function: Callable[..., Tensor], input: Tensor, inplace: bool = False) -> Tensor:
    """Compute y = x sigmoid(x) and dy = y'(x) dx."""
    x, dx = split(input)
    if dx is None or inplace:
        return function(input, inplace=inplace)
    y = function(x)
    with torch.no_grad():
        dy = torch.ops.aten.silu_backward(dx, x)
    return join(y, dy)


def _product(x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
    """Compute x w^T + b, large ones in float32 on CPUs as a convolution with 1 x 1 windows.

    oneDNN's convolution took 5 to 14 % less time than ``F.linear`` in the sizes of BERT-base on a processor of AMD, and
    adds the bias in the same pass.
    """
    large = x.numel() * len(w) >= _LARGE and x.ndim > 1 and w.ndim == 2
    if not (large and x.is_contiguous() and w.is_contiguous() and onednn(x) and onednn(w)):
        return F.linear(x, w, b)
    rows = x.view(1, -1, 1, x.shape[-1])  # the pixels of an image, channels last in memory
    image = F.conv2d(rows.permute(0, 3, 1, 2), w.view(*w.shape, 1, 1), b)
    return image.permute(0, 2, 3, 1).reshape(*x.shape[:-1], len(w))


def _add_product(dy: Tensor, dx: Tensor, matrix: Tensor) -> Tensor:
    """Add dx @ matrix to a fresh tensor in place."""
    if dy.ndim == 2 and matrix.ndim == 2:
        return dy.addmm_(dx, matrix)
    if dy.ndim == 1 or matrix.ndim == 1 or not dy.is_contiguous():
        return dy.add_(dx @ matrix)
    dy.view(-1, dy.shape[-1]).addmm_(dx.reshape(-1, dx.shape[-1]), matrix)
    return dy
