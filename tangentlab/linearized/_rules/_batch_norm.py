"""Batch normalization with fixed statistics, and weight normalization."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._signatures import BatchNormCall
from tangentlab.linearized._rules._dual import join, split, split_optional


def batch_norm(function: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    """Apply fixed statistics, r = (var + eps)^(-1/2): y = w r (x - mean) + b; dy = w r dx + dw r (x - mean) + db.

    Raises:
        TangentError: A sample's output depends on the other samples of its batch (training mode).
    """
    input, running_mean, running_var, weight, bias, training, momentum, eps = BatchNormCall(*args, **kwargs)
    if training and running_mean is None and running_var is None and len(input) == 1:
        # Not a batch of samples: weights standardized per channel (BiT), or a single sample.
        return function(input, None, None, weight, bias, True, momentum, eps)
    if training or running_mean is None or running_var is None:
        raise TangentError(
            "The network normalizes with the statistics of the batch.",
            why="Its outputs then depend on the other samples of the batch; the papers linearize networks with frozen"
            " BatchNorm.",
            remedy="Use BatchNorm with running statistics, which linearize freezes. A direct call of F.batch_norm must"
            " pass training=False.",
        )
    (x, dx), (w, dw), (b, db) = split(input), split_optional(weight), split_optional(bias)
    y = function(x, running_mean, running_var, w, b, False, momentum, eps)
    with torch.no_grad():
        inverse = torch.rsqrt(running_var + eps)
        shape = (1, -1) + (1,) * (x.ndim - 2)
        constant = torch.zeros_like(inverse) if db is None else db
        if dw is not None:
            constant = constant - running_mean * (dw * inverse)
        if dx is not None:
            scale = inverse if w is None else w * inverse
            dy = torch.addcmul(constant.view(shape), dx, scale.view(shape))
        elif dw is not None or db is not None:
            dy = constant.view(shape).expand_as(y).clone()
        else:
            return y
        if dw is not None:
            dy.addcmul_(x, (dw * inverse).view(shape))
    return join(y, dy)


def weight_norm(function: Callable[..., Tensor], v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """Compute w = g v / |v|, with the norm over all axes but ``dim`` (over all for -1).

    The forward-mode derivative of PyTorch's own operation is wrong or missing; that of the formula is correct.
    """
    axes = [axis for axis in range(v.ndim) if axis != dim]
    return v * (g / torch.linalg.vector_norm(v, dim=axes, keepdim=dim != -1))
