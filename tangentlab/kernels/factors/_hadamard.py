"""Gradients that are one outer product per sample."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from tangentlab.kernels.factors._base import Factor
from tangentlab.kernels.factors._total import CHUNK, Total, product

if TYPE_CHECKING:
    from tangentlab.kernels._projection import Sketch


@dataclass
class Hadamard(Factor):
    """Gradient g a^T: the kernel is the entrywise product of two small Gram matrices,

        K[n, r, m, s] = (a_n . a_m + b^2) (g_nr . g_ms)

    at 2 (d_in / R^2 + d_out) operations per pair of rows instead of 2 d_in d_out. A bias shares g, with the constant
    input b.

    Attributes:
        a: Inputs, (n, d_in).
        g: Output gradients, (n, R, d_out).
        bias: b, the input of a bias that shares g (0 for no bias).
    """

    a: Tensor
    g: Tensor
    bias: float

    def add_gram(self, other: Self, total: Total) -> None:
        if self.a.shape[1] <= CHUNK:
            inputs = torch.addmm(self.a.new_tensor(self.bias**2), self.a, other.a.T)
        else:
            inputs = product(self.a, other.a).add_(self.bias**2)
        outputs = product(self.g.flatten(0, 1), other.g.flatten(0, 1))
        if self.readouts == other.readouts == 1:
            total.room().addcmul_(inputs, outputs)
            return
        # Each input's number for all readouts of the other sample, so that the long last axis is read in order.
        wide = inputs.unsqueeze(2).expand(-1, -1, other.readouts).reshape(self.count, 1, -1)
        shape = (self.count, self.readouts, other.count * other.readouts)
        total.room().view(shape).addcmul_(outputs.view(shape), wide)

    def diagonal(self) -> Tensor:
        return ((self.a * self.a).sum(1) + self.bias**2)[:, None, None] * product(self.g, self.g)

    def pull(self, v: Tensor) -> Tensor:
        weighted = torch.einsum("nro,nrm->mno", self.g, v)
        u = product(weighted.mT, self.a.T).flatten(1)
        return torch.cat([u, self.bias * weighted.sum(1)], 1) if self.bias else u

    def push(self, u: Tensor) -> Tensor:
        d_out, d_in = self.g.shape[2], self.a.shape[1]
        y = product(self.a, u[:, : d_out * d_in].unflatten(1, (d_out, d_in)))
        if self.bias:
            y = y + self.bias * u[:, None, -d_out:]
        return product(self.g, y.transpose(0, 1))

    def merged(self) -> Self:
        return type(self)(self.a, self.g.flatten(1).unsqueeze(1), self.bias)

    def add_sketch(self, names: Sequence[str], sketch: "Sketch") -> None:
        for rows in sketch.pieces(1):
            sketch.add_outer(names[0], rows, self.a[rows].unsqueeze(1), self.g[rows].unsqueeze(2))
        if self.bias:
            sketch.add_entries(names[1], self.bias * self.g)

    @property
    def pair_operations(self) -> float:
        return 2.0 * (self.a.shape[1] + self.readouts**2 * self.g.shape[2])

    @property
    def pull_operations(self) -> float:
        return 2.0 * self.g.shape[2] * (self.a.shape[1] + self.readouts)
