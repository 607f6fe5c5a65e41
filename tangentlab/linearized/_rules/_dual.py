"""Dual tensors: a value and its tangent."""

from collections.abc import Iterable

from torch import Tensor
from torch.autograd import forward_ad


def split(value: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return the value, with its graph, and the tangent; None stands for zero."""
    primal, tangent = forward_ad.unpack_dual(value)
    return primal, tangent


def split_optional(value: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Split an argument that may be absent."""
    return (None, None) if value is None else split(value)


def total(terms: Iterable[Tensor | None]) -> Tensor | None:
    """Sum fresh tensors, in the memory of the first."""
    result: Tensor | None = None
    for term in terms:
        if term is not None:
            result = term if result is None else result.add_(term)
    return result


def join(y: Tensor, dy: Tensor | None) -> Tensor:
    """Make a dual tensor. Never under ``no_grad``, which would cut it off from the graph of ``y``."""
    if dy is None:
        return y
    # A view that was made under no_grad could not be written to by an operation in place; its detached form can.
    return forward_ad.make_dual(y, dy.detach() if dy._is_view() else dy)
