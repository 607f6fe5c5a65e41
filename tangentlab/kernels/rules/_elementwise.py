"""Rules for bare parameters: sums, products, quotients, broadcasting, PReLU."""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tangentlab.kernels.rules._broadcast import Broadcast
from tangentlab.kernels.rules._registry import rule
from tangentlab.kernels.rules._use import Call, Uses


@rule(
    *(torch.add, torch.Tensor.add, torch.Tensor.__add__, torch.Tensor.__radd__),
    *(torch.Tensor.add_, torch.Tensor.__iadd__),
    example="x + p, a bare bias, position embeddings",
    form="gradient",
)
def add(call: Call, input: Any, other: Any, *, alpha: float = 1) -> Uses:
    """y = x + alpha p."""
    return _terms(call, (input, 1.0), (other, alpha))


@rule(
    *(torch.sub, torch.Tensor.sub, torch.Tensor.__sub__, torch.Tensor.sub_, torch.Tensor.__isub__),
    example="x - p, p - x",
    form="gradient",
)
def sub(call: Call, input: Any, other: Any, *, alpha: float = 1) -> Uses:
    """y = x - alpha p."""
    return _terms(call, (input, 1.0), (other, -alpha))


@rule(torch.rsub, torch.Tensor.__rsub__, example="1 - p", form="gradient")
def rsub(call: Call, input: Any, other: Any, *, alpha: float = 1) -> Uses:
    """y = p - alpha x."""
    return _terms(call, (input, -alpha), (other, 1.0))


@rule(
    *(torch.mul, torch.Tensor.mul, torch.Tensor.__mul__, torch.Tensor.__rmul__),
    example="x * p, a bare scale (LayerScale)",
    form="gradient",
)
def mul(call: Call, input: Any, other: Any) -> Uses:
    """y = x p."""
    return [
        (p, Broadcast.aligned(p, call.output, partial(_spread, call, x)))
        for p, x in ((input, other), (other, input))
        if call.tracks(p)
    ]


@rule(torch.div, torch.Tensor.div, torch.Tensor.__truediv__, example="x / p, p / x", form="gradient")
def div(call: Call, input: Any, other: Any, *, rounding_mode: str | None = None) -> Uses:
    """y = x / p or y = p / x."""
    if rounding_mode is not None:
        return []
    uses: Uses = []
    if call.tracks(input):
        uses.append((input, Broadcast.aligned(input, call.output, lambda rows: 1 / _spread(call, other, rows))))
    if call.tracks(other):
        uses.append(
            (
                other,
                Broadcast.aligned(
                    other, call.output, lambda rows: -_spread(call, input, rows) / _spread(call, other, rows) ** 2
                ),
            )
        )
    return uses


@rule(
    *(torch.Tensor.expand, torch.Tensor.expand_as, torch.Tensor.repeat),
    *(torch.broadcast_to, torch.Tensor.broadcast_to),
    example="class tokens: p.expand(batch, -1, -1)",
    form="gradient",
)
def expand(call: Call, input: Tensor, *_: Any, **__: Any) -> Uses:
    """y = p repeated along axes in which p has length one."""
    sizes = call.output.shape[call.output.ndim - input.ndim :]
    if any(p not in (1, y) for p, y in zip(input.shape, sizes, strict=True)):
        return []
    return [(input, Broadcast.aligned(input, call.output))]


@rule(F.prelu, torch.prelu, example="nn.PReLU", form="gradient")
def prelu(call: Call, input: Tensor, weight: Tensor) -> Uses:
    """y = max(x, 0) + w min(x, 0), one weight per channel or one for all."""
    return [(weight, Broadcast(weight.shape, (1,) * weight.ndim, lambda rows: call.split(input)[rows].clamp(max=0)))]


def _terms(call: Call, *terms: tuple[Any, float]) -> Uses:
    return [(p, Broadcast.aligned(p, call.output, scale=scale)) for p, scale in terms if call.tracks(p)]


def _spread(call: Call, x: Any, rows: slice) -> Tensor:
    """Split an operand by sample as if it had the output's shape, and return some of the samples."""
    return call.split(torch.as_tensor(x).to(call.output).expand(call.output.shape))[rows]
