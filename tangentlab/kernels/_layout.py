"""Where a batch's samples lie inside a tensor.

The first axis is only the usual place. Multi-head attention works on (positions, B, features) and on
(positions * B, features); others flatten to (B * positions, features). A layout is found by comparing the shapes and
values of two runs with different batch sizes, never guessed from one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tangentlab._sums import quick_norm

_SAME = 5e-2
"""Relative difference that rounding, even in half precision, stays below."""


@dataclass(frozen=True)
class Layout:
    """The axis that counts samples, and how it counts them.

    Attributes:
        axis: The axis of length ``inner * B``.
        inner: How many consecutive rows a sample has there.
        minor: True if the sample index runs fastest (inner, B), False if slowest (B, inner).
    """

    axis: int
    inner: int = 1
    minor: bool = False

    def fits(self, tensor: Tensor, batch: int) -> bool:
        """Return whether a tensor can have that many samples in this layout."""
        return self.axis < tensor.ndim and tensor.shape[self.axis] == self.inner * batch

    def split(self, tensor: Tensor, batch: int) -> Tensor:
        """Return a view (B, *shape), where ``shape`` is the tensor's with ``inner`` in place of ``inner * B``.

        Each row is one sample's tensor with the rank of the whole, so a rule is written as for a batch of one.
        """
        sizes = (self.inner, batch) if self.minor else (batch, self.inner)
        parts = tensor.unflatten(self.axis, sizes)
        return parts.movedim(self.axis + int(self.minor), 0)

    def of_rows(self, function: Callable[[Tensor], Tensor], tensor: Tensor, batch: int, rows: slice) -> Tensor:
        """Return what a function of a batch gives for some of its samples alone, split as by :meth:`split`."""
        parts = self.split(tensor, batch)[rows]
        count = len(parts)
        if count < batch:
            tensor = parts.movedim(0, self.axis + int(self.minor)).flatten(self.axis, self.axis + 1)
        return self.split(function(tensor), count)


def candidates(small: torch.Size, large: torch.Size, batches: tuple[int, int]) -> list[Layout]:
    """Return the layouts that explain a shape seen with two batch sizes; empty if none does.

    Equal shapes mean that the tensor has no sample axis: call :func:`batch_free` first.
    """
    if len(small) != len(large):
        return []
    moved = [axis for axis, (a, b) in enumerate(zip(small, large, strict=True)) if a != b]
    if len(moved) != 1:
        return []
    axis = moved[0]
    inner, rest = divmod(small[axis], batches[0])
    if rest or inner * batches[1] != large[axis]:
        return []
    return [Layout(axis)] if inner == 1 else [Layout(axis, inner), Layout(axis, inner, minor=True)]


def batch_free(small: torch.Size, large: torch.Size) -> bool:
    """Return whether a tensor has no sample axis: its shape does not depend on the batch size."""
    return small == large


def choose(small: Tensor, large: Tensor, batches: tuple[int, int], shared: Sequence[int]) -> Layout | None:
    """Return the layout under which both runs hold the same values for the samples they share.

    None if there is no such layout, or if the samples are too much alike to tell two of them apart.

    Args:
        small: The tensor in the run with ``batches[0]`` samples.
        large: The tensor in the run with ``batches[1]`` samples.
        batches: The two batch sizes, the smaller one first.
        shared: Which of the larger run's samples the smaller run has.
    """
    small, large = _real(small.detach()), _real(large.detach())

    def error(layout: Layout) -> float:
        one, two = layout.split(small, batches[0]), layout.split(large, batches[1])
        # Bit for bit is usual, and read faster than a difference; it is looked for without a copy of the rows.
        if all(torch.equal(one[i], two[row]) for i, row in enumerate(shared)):
            return 0.0
        return quick_norm(one - two[list(shared)])

    options = candidates(small.shape, large.shape, batches)
    if not options:
        return None
    (least, best), *others = sorted((error(layout), i) for i, layout in enumerate(options))
    if least == 0 and not others:
        return options[best]
    rounding = _SAME * quick_norm(small)
    if any(other <= 10 * least + 1e-6 * rounding for other, _ in others):
        return None
    # Rows that were sorted, packed or routed by their content have the right number and the wrong order.
    return options[best] if least <= rounding else None


def _real(tensor: Tensor) -> Tensor:
    """Return a tensor as real numbers that can be subtracted and squared; the parts of complex ones as a last axis."""
    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj())
    return tensor if tensor.dtype.itemsize >= 4 else tensor.float()
