"""Parameters that act entry by entry: biases, scalings, the weights of normalizations.

y = h * p + ...  =>  dL/dp = sum over the entries that share p of  g * h        (h = 1 for a bias)
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from tangentlab.kernels.rules._use import Use

_ALL = slice(None)


@dataclass
class Broadcast(Use):
    """A parameter broadcast over the output.

    Attributes:
        shape: The parameter's shape.
        axes: The axes of the output that the parameter's axes lie along.
        h: Gives dy/dp of some samples, (B, *) broadcastable against the output split by sample; None for 1. Computed
            when needed, so that a recording holds no second copy of the activations.
        scale: A constant factor of dy/dp.
    """

    shape: torch.Size
    axes: tuple[int, ...]
    h: Callable[[slice], Tensor] | None = None
    scale: float = 1.0

    @staticmethod
    def aligned(
        parameter: Tensor, output: Tensor, h: Callable[[slice], Tensor] | None = None, scale: float = 1.0
    ) -> "Broadcast":
        """Return the use of a parameter that is broadcast by NumPy's rule: its last axis along the output's last."""
        axes = tuple(range(output.ndim - parameter.ndim, output.ndim))
        return Broadcast(parameter.shape, axes, h, scale)

    def __getitem__(self, rows: slice) -> Self:
        h = self.h
        return self if h is None else replace(self, h=lambda within: h(rows) if within == _ALL else h(rows)[within])

    def outline(self) -> Self:
        return self if self.h is None else replace(self, h=_unknown)

    @property
    def is_bias(self) -> bool:
        return self.h is None and self.scale == 1 and 1 not in self.shape

    def gradient(self, g: Tensor) -> Tensor:
        kept = {axis + 2 for axis, size in zip(self.axes, self.shape, strict=True) if size != 1}
        summed = [axis for axis in range(2, g.ndim) if axis not in kept]
        if self.h is not None:
            g = g * self.h(_ALL).unsqueeze(1)
        if summed:
            g = g.sum(summed)
        if self.scale != 1:
            g = g * self.scale
        return g.reshape(*g.shape[:2], *self.shape)


def _unknown(_: slice) -> Tensor:
    """Refuse to give dy/dp: a use without its numbers has none."""
    raise AssertionError("an outline has no numbers")
