"""Gradients that are sums of outer products over a sample's positions, G = sum_t g_t a_t^T.

For few samples, few positions and large weights they are contracted by pairs of positions,

    K[n, r, m, s] = sum_{t,u} (a_nt . a_mu) (g_nrt . g_msu)

and otherwise written out late: for some outputs at a time, for all samples at once, and forgotten after their product.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import torch
from torch import Tensor

from tangentlab.kernels._cost import ENTRYWISE, Operations
from tangentlab.kernels.factors._base import Factor
from tangentlab.kernels.factors._total import Total, Workspace, product

if TYPE_CHECKING:
    from tangentlab.kernels._projection import Sketch

_BLOCK = 1 << 20
"""Pairs of positions held at a time: they stay in a CPU's cache."""

Writer = Callable[[slice, Tensor, bool], None]
"""Writes the gradients of some rows of the parameter, (n R, rows, row's length), or adds them to what is there."""


@dataclass
class Pairs(Factor):
    """Gradients G = sum_t g_t a_t^T; subclasses hold the inputs a.

    Attributes:
        positions_first: Whether pairs of positions are kept as (T n) x (T n) instead of (n T) x (n T). Samples first,
            nothing is copied; positions first, sums over shifts of an image run along memory.
        g: Output gradients by position, (n, R, T, d_out).
        bias: The input of a bias that shares g, the same at every position (0 for no bias).
    """

    positions_first: ClassVar[bool] = False

    g: Tensor
    bias: float

    @abstractmethod
    def inputs_gram(self, other: Self) -> Tensor:
        """Return a_nt . a_mu as (n1 T1, n2 T2), or (T1 n1, T2 n2) if positions come first."""

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

    @property
    def product_rows(self) -> int:
        return 1 if self.positions_first else self.positions

    @property
    def sparse(self) -> bool:
        """Whether an input has only one entry that is not zero."""
        return False

    def dot(self, vectors: Tensor) -> Tensor:
        """Return the inner products of vectors (m, d_in) with all inputs, (m, n T)."""
        return product(vectors, self.vectors().flatten(0, 1))

    def add_gram(self, other: Self, total: Total) -> None:
        target = total.room().view(self.count, self.readouts, other.count, other.readouts)
        alike = type(self) is type(other)
        first = self.positions_first and alike
        for i, j in self.tiles(other):
            one, two = self[i], other[j]
            inputs = one.inputs_gram(two) if alike else _mixed_gram(one, two)
            if self.bias:
                inputs = inputs + self.bias**2
            right = [two.output_rows(s, first) for s in range(other.readouts)]
            for r in range(self.readouts):
                left = one.output_rows(r, first)
                for s in range(other.readouts):
                    pairs = product(left, right[s]).mul_(inputs)
                    if first:  # two sums along memory are much faster than one over both axes
                        pairs = pairs.view(one.positions, one.count, two.positions, two.count).sum(0).sum(1)
                    else:
                        pairs = pairs.view(-1, two.positions).sum(1).view(one.count, one.positions, two.count).sum(1)
                    target[i, r, j, s] += pairs

    def tiles(self, other: "Pairs") -> Iterator[tuple[slice, slice]]:
        """Yield samples of both in pieces whose pairs of positions stay in a CPU's cache."""
        pairs = self.pair_size(other)
        width = max(1, min(other.count, int((_BLOCK / pairs) ** 0.5)))
        height = max(1, min(self.count, _BLOCK // (pairs * width)))
        for i in range(0, self.count, height):
            for j in range(0, other.count, width):
                yield slice(i, i + height), slice(j, j + width)

    def pair_size(self, other: "Pairs") -> int:
        """Return the number of entries of the largest intermediate for one pair of samples."""
        return self.positions * other.positions

    def output_rows(self, readout: int, positions_first: bool = False) -> Tensor:
        """Return the output gradients of one readout, (n T, d_out) or (T n, d_out)."""
        return rows_of(self.g[:, readout], positions_first)

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
        write, outputs, rows = self.writer(), self.g.shape[3], self.count * self.readouts
        for start in range(0, outputs, step):
            some = slice(start, min(start + step, outputs))
            room = (workspace or Workspace()).room(self.g, rows, some.stop - some.start, self.inputs)
            write(some, room, False)
            yield room.view(rows, -1)
        if self.bias:
            yield (self.bias * self.g.sum(2)).flatten(0, 1)

    def writer(self, by_inputs: bool = False) -> Writer:
        """Return what writes gradients out, G of some outputs or, ``by_inputs``, G^T of some inputs at a time."""
        a, count, readouts = self.vectors(), self.count, self.readouts

        def write(some: slice, out: Tensor, add: bool) -> None:
            if by_inputs:
                left = a[..., some].mT.unsqueeze(1).expand(-1, readouts, -1, -1).flatten(0, 1)
                right = self.g.flatten(0, 1)
            else:
                left, right, out = self.g[..., some].mT.flatten(1, 2), a, out.view(count, -1, a.shape[2])
            if add:
                out.baddbmm_(left, right)
            else:
                torch.bmm(left, right, out=out)

        return write


def rows_of(vectors: Tensor, positions_first: bool = False) -> Tensor:
    """Return vectors (n, T, d) as (n T, d) or (T n, d)."""
    return (vectors.transpose(0, 1) if positions_first else vectors).reshape(-1, vectors.shape[-1])


def _mixed_gram(one: Pairs, two: Pairs) -> Tensor:
    """Return the inner products of inputs that two families keep in different ways, (n1 T1, n2 T2)."""
    if two.sparse:
        return two.dot(rows_of(one.vectors()))
    return one.dot(rows_of(two.vectors())).T
