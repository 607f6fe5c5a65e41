"""Gradients that are sums of outer products over a sample's positions, G = sum_t g_t a_t^T.

For few samples, few positions and large weights they are contracted by pairs of positions,

    K[n, r, m, s] = sum_{t,u} (a_nt . a_mu) (g_nrt . g_msu)

and otherwise written out late: for some outputs at a time, for all samples at once, and forgotten after their product.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from tangentlab.kernels._cost import ENTRYWISE, Operations
from tangentlab.kernels.factors._base import Factor
from tangentlab.kernels.factors._total import Total, Workspace, product

if TYPE_CHECKING:
    from tangentlab.kernels._projection import Sketch

_BLOCK = 1 << 20
"""Pairs of positions held at a time: they stay in a CPU's cache."""


@dataclass
class Pairs(Factor):
    """Gradients G = sum_t g_t a_t^T; subclasses hold the inputs a.

    Attributes:
        g: Output gradients by position, (n, R, T, d_out).
        bias: The input of a bias that shares g, the same at every position (0 for no bias).
    """

    g: Tensor
    bias: float

    @abstractmethod
    def inputs_gram(self, other: Self) -> Tensor:
        """Return a_nt . a_mu as (T1, n1, T2, n2): positions first, so that summing over them runs along memory."""

    @abstractmethod
    def vectors(self) -> Tensor:
        """Return the inputs a written out, (n, T, d_in)."""

    @property
    @abstractmethod
    def inputs(self) -> int:
        """The length d_in of an input."""

    @property
    def positions(self) -> int:
        """The number T of positions."""
        return self.g.shape[2]

    def add_gram(self, other: Self, total: Total) -> None:
        target = total.room().view(self.count, self.readouts, other.count, other.readouts)
        pairs = self.pair_size(other)
        width = max(1, min(other.count, int((_BLOCK / pairs) ** 0.5)))
        height = max(1, min(self.count, _BLOCK // (pairs * width)))
        for i in range(0, self.count, height):
            for j in range(0, other.count, width):
                one, two = self[i : i + height], other[j : j + width]
                inputs = one.inputs_gram(two)
                if self.bias:
                    inputs = inputs + self.bias**2
                tile = target[i : i + height, :, j : j + width, :]
                right = [two._rows(s) for s in range(other.readouts)]
                for r in range(self.readouts):
                    left = one._rows(r)
                    for s in range(other.readouts):
                        products = product(left, right[s]).view(inputs.shape).mul_(inputs)
                        tile[:, r, :, s] += products.sum(0).sum(1)  # much faster than sum((0, 2))

    def pair_size(self, other: Self) -> int:
        """Return the number of entries of the largest intermediate for one pair of samples."""
        return self.positions * other.positions

    def _rows(self, readout: int) -> Tensor:
        return self.g[:, readout].transpose(0, 1).reshape(-1, self.g.shape[-1])

    def diagonal(self) -> Tensor:
        a = self.vectors()
        inputs = product(a, a).add_(self.bias**2)
        rows = self.g.flatten(1, 2)
        outputs = product(rows, rows).unflatten(2, self.g.shape[1:3]).unflatten(1, self.g.shape[1:3])
        return (outputs * inputs[:, None, :, None, :]).sum((2, 4))

    def pull(self, v: Tensor) -> Tensor:
        a = self.vectors().flatten(0, 1)
        weighted = torch.einsum("nrto,nrm->mnto", self.g, v).flatten(1, 2)
        u = product(weighted.mT, a.T).flatten(1)
        return torch.cat([u, self.bias * weighted.sum(1)], 1) if self.bias else u

    def push(self, u: Tensor) -> Tensor:
        a, d_out = self.vectors(), self.g.shape[3]
        maps = u[:, : d_out * a.shape[2]].unflatten(1, (d_out, a.shape[2]))
        y = product(a.flatten(0, 1), maps).unflatten(1, a.shape[:2])
        if self.bias:
            y = y + self.bias * u[:, None, None, -d_out:]
        return product(self.g.flatten(2), y.transpose(0, 1).flatten(2))

    def merged(self) -> Self:
        g = self.g.movedim(1, 2).flatten(2).unsqueeze(1)
        return self.map(lambda tensor: g if tensor is self.g else tensor)

    def add_sketch(self, names: Sequence[str], sketch: "Sketch") -> None:
        for rows in sketch.pieces(self.positions):
            some = self[rows]
            sketch.add_outer(names[0], rows, some.vectors(), some.g)
        if self.bias:
            sketch.add_entries(names[1], self.bias * self.g.sum(2))

    @property
    def pair_operations(self) -> Operations | float:
        outputs = self.readouts**2 * (2 * self.g.shape[3] + ENTRYWISE)
        return self.positions**2 * (2 * self.inputs + outputs)

    @property
    def pull_operations(self) -> float:
        return 2.0 * self.positions * self.g.shape[3] * (self.inputs + self.readouts)

    @property
    def expand_operations(self) -> Operations | float:
        return self.readouts * self.g.shape[3] * self.inputs * (2.0 * self.positions + ENTRYWISE)

    @property
    def row_size(self) -> int:
        return self.inputs

    def columns(self, step: int, workspace: Workspace | None = None) -> Iterator[Tensor]:
        a, outputs = self.vectors(), self.g.shape[3]
        for start in range(0, outputs, step):
            g = self.g[..., start : start + step].mT.flatten(1, 2)
            room = (workspace or Workspace()).room(a, *g.shape[:2], a.shape[2])
            yield torch.bmm(g, a, out=room).view(self.count * self.readouts, -1)
        if self.bias:
            yield (self.bias * self.g.sum(2)).flatten(0, 1)
