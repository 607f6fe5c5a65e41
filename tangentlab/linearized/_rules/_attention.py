"""Scaled-dot-product attention, whose fast kernels have no forward-mode derivative."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from tangentlab.linearized._rules._dual import join, split, split_optional, total

# Scores that are computed at a time for the tangent: few enough to stay in a processor's cache, and never all of them.
_SCORES = 2**18


class AttentionCall(NamedTuple):
    """The arguments of ``F.scaled_dot_product_attention``."""

    query: Tensor
    key: Tensor
    value: Tensor
    attn_mask: Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False


def attention(function: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    """Compute y = P v with P = softmax(S), S = scale q k^T + mask, by PyTorch's fast kernel, and its tangent

        dy = dP v + P dv,    dP = P * (dS - rowsum(P * dS)),    dS = scale (dq k^T + q dk^T) + dmask.

    The Jacobian of softmax is symmetric, so that dP is the backward pass of softmax at dS. The tangent needs P, which
    is formed for some sequences at a time. It costs 5 products of the size of q k^T (without dk or dv, fewer); the
    kernel's forward pass has 2. The backward pass is the kernel's own.
    """
    call = AttentionCall(*args, **kwargs)
    q, dq = split(call.query)
    k, dk = split(call.key)
    v, dv = split(call.value)
    mask, dmask = split_optional(call.attn_mask)
    y = function(q, k, v, mask, call.dropout_p, call.is_causal, scale=call.scale, enable_gqa=call.enable_gqa)
    if dq is None and dk is None and dv is None and dmask is None:
        return y
    with torch.no_grad():
        scale = 1 / math.sqrt(q.shape[-1]) if call.scale is None else call.scale
        mask = _bias(mask, call.is_causal, q, k)
        dy = _tangent((q, dq), (k, dk), (v, dv), (mask, dmask), y, scale, call.enable_gqa)
    return join(y, dy)


def multi_head_attention(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run the function of ``nn.MultiheadAttention`` with the attention kernel that has a forward mode.

    To PyTorch it is one operation, so no rule is applied inside of it.
    """
    with sdpa_kernel(SDPBackend.MATH):
        return function(*args, **kwargs)


def _bias(mask: Tensor | None, causal: bool, q: Tensor, k: Tensor) -> Tensor | None:
    """Return the mask as numbers that are added to the scores."""
    if causal:
        mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
    if mask is not None and mask.dtype == torch.bool:
        return torch.zeros(mask.shape, dtype=q.dtype, device=q.device).masked_fill_(mask.logical_not(), -math.inf)
    return mask


_Pair = tuple[Tensor, Tensor | None]


def _tangent(
    query: _Pair,
    key: _Pair,
    value: _Pair,
    mask: tuple[Tensor | None, Tensor | None],
    y: Tensor,
    scale: float,
    grouped: bool,
) -> Tensor:
    """Compute dy, some sequences at a time, in the memory format of y, which a dual tensor needs."""
    (q, dq), (k, dk), (v, dv), (bias, dbias) = query, key, value, mask
    sequences = (q, dq, k, dk, v, dv)
    masked = bias is not None and bool(torch.isinf(bias).any())
    count = len(y) if y.ndim == 4 else 0
    if count < 2 or any(p is not None and (p.ndim < 4 or len(p) != count) for p in sequences):
        return _block(*sequences, bias, dbias, masked, scale, grouped)
    step = max(1, _SCORES // max(1, q.shape[1] * q.shape[2] * k.shape[2]))
    dy = torch.empty_like(y)
    for start in range(0, count, step):
        # One sequence by itself has three axes, which products of matrices take in any memory format without a copy.
        rows: Any = start if step == 1 else slice(start, start + step)
        masks = [m if m is None or m.ndim < 4 else m[rows if len(m) == count else 0] for m in (bias, dbias)]
        parts = [None if part is None else part[rows] for part in sequences]
        dy[rows] = _block(*parts, *masks, masked, scale, grouped)  # type: ignore[arg-type, call-arg]
    return dy


def _repeated(part: Tensor | None, heads: int) -> Tensor | None:
    """Return keys or values with their heads repeated for those of the queries."""
    return part if part is None or part.shape[-3] == heads else part.repeat_interleave(heads // part.shape[-3], -3)


def _block(
    q: Tensor,
    dq: Tensor | None,
    k: Tensor,
    dk: Tensor | None,
    v: Tensor,
    dv: Tensor | None,
    bias: Tensor | None,
    dbias: Tensor | None,
    masked: bool,
    scale: float,
    grouped: bool,
) -> Tensor:
    if grouped:  # every key and every value serves several queries, and PyTorch lets their numbers differ
        k, dk, v, dv = (_repeated(part, q.shape[-3]) for part in (k, dk, v, dv))  # type: ignore[assignment]
    q = q * scale
    scores = q @ k.mT
    p = torch.softmax(scores if bias is None else scores + bias, -1)
    if masked:
        p.nan_to_num_(0.0)  # a query that may attend to nothing has the output 0, not NaN
    change = total(
        [
            None if dk is None else q @ dk.mT,
            None if dq is None else (dq * scale) @ k.mT,
            None if dbias is None else dbias.expand(p.shape).clone(),
        ]
    )
    moved = None if change is None else torch._softmax_backward_data(change, p, -1, p.dtype) @ v
    dy = total([moved, None if dv is None else p @ dv])
    assert dy is not None
    return dy
