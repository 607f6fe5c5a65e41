"""Convolutions in one, two and three dimensions."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tangentlab._signatures import ConvolutionCall
from tangentlab.linearized._rules._dual import join, split, split_optional, total
from tangentlab.linearized._rules._memory_format import onednn

# oneDNN pads output channels to full vector registers: up to this number, w and dw fit where w alone is padded.
_STACK_UP_TO = 32


class _Convolution(torch.autograd.Function):
    """A convolution whose value is already computed and that defines only its derivative.

    The value is passed in a list: as a view of an argument, the network could not write to it.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor | None, y: list[Tensor], settings: tuple[Any, ...]) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.settings = settings
        ctx.bias_shape = None if b is None else [len(b)]
        return y.pop()

    @staticmethod
    def backward(ctx: Any, v: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        stride, padding, dilation, groups = ctx.settings
        zeros = [0] * len(stride)
        # An aten operation instead of a formula, because it can itself be differentiated.
        grads = torch.ops.aten.convolution_backward(
            v, x, w, ctx.bias_shape, stride, padding, dilation, False, zeros, groups, list(ctx.needs_input_grad[:3])
        )
        return (*grads, None, None)


def convolution(function: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    """Compute y = w * x + b and dy = dw * x + db + w * dx.

    On CPUs in float32 and with few output channels, ``w`` and ``dw`` are applied to ``x`` in one call, which costs
    little more than applying one of them.
    """
    input, weight, bias, *settings = ConvolutionCall(*args, **kwargs)
    (x, dx), (w, dw), (b, db) = split(input), split(weight), split_optional(bias)
    _, padding, _, groups = settings
    stackable = groups == 1 and len(w) <= _STACK_UP_TO and x.ndim == w.ndim and x.is_contiguous() and onednn(x)
    if not stackable or dw is None or (b is not None and db is None) or isinstance(padding, str):
        return _by_terms(function, x, dx, w, dw, b, db, settings)
    with torch.no_grad():
        biases = None if b is None or db is None else torch.cat([b, db])
        both = function(x, torch.cat([w, dw]), biases, *settings)
        y, dy = (half.clone(memory_format=torch.contiguous_format) for half in both.tensor_split(2, dim=1))
        if dx is not None:
            dy += function(dx, w, None, *settings)
    lists = tuple([n] * (w.ndim - 2) if isinstance(n, int) else list(n) for n in settings[:3])
    return join(_Convolution.apply(x, w, b, [y], (*lists, groups)), dy)


def _by_terms(
    function: Callable[..., Tensor],
    x: Tensor,
    dx: Tensor | None,
    w: Tensor,
    dw: Tensor | None,
    b: Tensor | None,
    db: Tensor | None,
    settings: Sequence[Any],
) -> Tensor:
    y = function(x, w, b, *settings)
    with torch.no_grad():
        terms = [
            None if dw is None else function(x, dw, db, *settings),
            None if dx is None else function(dx, w, None, *settings),
        ]
        if dw is None and db is not None:
            terms.append(db.view(-1, *[1] * (w.ndim - 2)).expand(y.shape).clone())
        dy = total(terms)
    return join(y, dy)
