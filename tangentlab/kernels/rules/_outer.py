"""Linear maps: gradients that are sums over positions of outer products.

y_t = W a_t  =>  dL/dW = sum_t g_t a_t^T        (d_out x d_in),  t = 1..S positions of a sample
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from tangentlab.kernels._cost import Cost, outer_products
from tangentlab.kernels.factors import Factor, Hadamard, Pairs, Terms
from tangentlab.kernels.factors._total import product
from tangentlab.kernels.rules._use import Use


@dataclass
class Outer(Use):
    """A weight that multiplies S vectors of a sample.

    Attributes:
        shape: (d_out, d_in), or (d_in, d_out) if ``transposed``, perhaps with axes of length one.
        a: Inputs, (B, S, d_in).
        transposed: Whether the parameter is W^T.
        feature_axis: The axis of the output that counts d_out, from the end; all others are positions.
    """

    shape: torch.Size
    a: Tensor
    transposed: bool = False
    feature_axis: int = -1

    @property
    def positions(self) -> int:
        return self.a.shape[1]

    @property
    def order(self) -> Hashable:
        return self.transposed

    def numbering(self) -> Tensor:
        numbers = super().numbering()
        return numbers.view(self.a.shape[2], -1).T.flatten() if self.transposed else numbers

    def outputs(self, g: Tensor) -> Tensor:
        """Return output gradients by position: (B, R, *) to (B, R, S, d_out)."""
        g = g.movedim(self.feature_axis, -1)
        return g.reshape(*g.shape[:2], -1, g.shape[-1])

    def gradient(self, g: Tensor) -> Tensor:
        g = self.outputs(g)
        left, right = (self.a.mT.unsqueeze(1), g) if self.transposed else (g.mT, self.a.unsqueeze(1))
        found = left * right if self.positions == 1 else left @ right
        return found.view(*g.shape[:2], *self.shape)

    def compact_cost(self, readouts: int, k: int = 0) -> Cost:
        d_in = self.a.shape[2]
        return outer_products(self.positions, d_in, math.prod(self.shape) // max(1, d_in), readouts, k)

    def compact(self, g: Tensor, scale: float, bias: float) -> Factor:
        a = self.a if scale == 1 else self.a * scale
        g = self.outputs(g)
        if self.positions > 1:
            return LinearPairs(g.contiguous(), bias, a)
        return Hadamard(a.squeeze(1), g.squeeze(2), bias)

    @property
    def terms(self) -> Terms:
        d_in = self.a.shape[2]
        return Terms(self.positions, d_in, math.prod(self.shape) // max(1, d_in), transposed=self.transposed)

    def pairs(self, g: Tensor, scale: float) -> Pairs:
        return LinearPairs(self.outputs(g).contiguous(), 0.0, self.a if scale == 1 else self.a * scale)

    def of_transpose(self) -> Self:
        return replace(self, shape=torch.Size(reversed(self.shape)), transposed=not self.transposed)

    @staticmethod
    def merge(uses: Sequence[Use]) -> Use | None:
        """Return one use with all positions: applying a layer twice is applying it to twice the positions."""
        first = uses[0]
        assert isinstance(first, Outer)
        if len(uses) == 1:
            return first
        alike = [u for u in uses if isinstance(u, Outer) and u.transposed == first.transposed]
        if len(alike) < len(uses):
            return None
        return _Joined(first.shape, torch.cat([u.a for u in alike], 1), first.transposed, parts=alike)


@dataclass
class _Joined(Outer):
    """Several uses of one weight, their positions one after the other."""

    parts: Sequence[Outer] = ()

    @property
    def kind(self) -> Hashable:
        return Outer, False

    def join(self, grads: Sequence[Tensor]) -> Tensor:
        return torch.cat([part.outputs(g) for part, g in zip(self.parts, grads, strict=True)], 2)


@dataclass
class LinearPairs(Pairs):
    """The gradients of a dense layer applied to T positions.

    Attributes:
        a: Inputs, (n, T, d_in).
    """

    a: Tensor

    @property
    def inputs(self) -> int:
        return self.a.shape[2]

    def inputs_gram(self, other: Self) -> Tensor:
        return product(self.a.flatten(0, 1), other.a.flatten(0, 1))

    def vectors(self) -> Tensor:
        return self.a
