"""Gradients of a parameter with several uses: sums of outer products that are kept in several ways.

GPT-2's table of tokens W (V x d) is looked up and is the weight of its last layer, so its gradient is

    G = sum_t e(i_t) q_t^T + sum_t g_t a_t^T

with q_t the output gradients of the lookup of token i_t, and g_t and a_t those and the inputs of the last layer. Some
rows of G at a time are written out for all samples, each use adding its share: a lookup touches the rows of its tokens
alone. By pairs of positions, a term of one orientation meets one of the other in

    (g_t a_t^T) . (e(i_u) q_u^T) = (g_t . e(i_u)) (a_t . q_u)

so what a lookup and a layer have in common is read from the row of the layer's gradient that belongs to a token.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from tangentlab.kernels._cost import ENTRYWISE, Operations
from tangentlab.kernels.factors._base import Factor
from tangentlab.kernels.factors._pairs import Pairs
from tangentlab.kernels.factors._total import Total, Workspace, product

if TYPE_CHECKING:
    from tangentlab.kernels._projection import Sketch

_WRITTEN = 1 << 22
"""Entries of gradients that are written out at a time."""


@dataclass(frozen=True)
class Terms:
    """The outer products that one use adds to the gradient of a sample: sum_t g_t a_t^T.

    Attributes:
        positions: T.
        inputs: Length of a_t.
        outputs: Length of g_t.
        sparse: Whether a_t has only one entry that is not zero.
        transposed: Whether the parameter has the inputs as its rows, so that its gradient is sum_t a_t g_t^T.
    """

    positions: int
    inputs: int
    outputs: int
    sparse: bool = False
    transposed: bool = False

    @property
    def matrix(self) -> tuple[int, int]:
        """Rows and columns of the parameter."""
        return (self.inputs, self.outputs) if self.transposed else (self.outputs, self.inputs)


def pair_operations(terms: Sequence[Terms], readouts: int) -> Operations | float:
    """Return the operations of contracting sums by pairs of positions, per pair of samples."""

    def inner(one: Terms) -> Operations | float:
        return ENTRYWISE if one.sparse else 2.0 * one.inputs

    total: Operations | float = 0.0
    for one in terms:
        for two in terms:
            if one.transposed == two.transposed:
                inputs = ENTRYWISE if two.sparse else inner(one)
                each = inputs + readouts**2 * (2 * one.outputs + ENTRYWISE)
            else:
                each = readouts * (inner(one) + inner(two)) + readouts**2 * ENTRYWISE
            total = total + one.positions * two.positions * each
    return total


def expand_operations(terms: Sequence[Terms], readouts: int) -> Operations | float:
    """Return the operations of writing sums out, per sample."""
    total = terms[0].inputs * terms[0].outputs * ENTRYWISE
    for one in terms:
        each = one.outputs * ENTRYWISE if one.sparse else 2.0 * one.inputs * one.outputs
        total = total + one.positions * each
    return readouts * total


@dataclass
class PairsSum(Factor):
    """Gradients of a parameter with several uses, in the order of the parameter's rows.

    Attributes:
        parts: The outer products of each use, without biases.
        transposed: For each, whether the parameter has its inputs as rows.
        traced: Whether the kernel is the trace over the readouts, which then count as one.
    """

    parts: tuple[Pairs, ...]
    transposed: tuple[bool, ...]
    traced: bool = False

    @property
    def g(self) -> Tensor:  # type: ignore[override]
        """The output gradients of the first part, for their type and their number."""
        return self.parts[0].g

    @property
    def readouts(self) -> int:
        return 1 if self.traced else self.g.shape[1]

    @property
    def product_rows(self) -> int:
        return min(part.product_rows for part in self.parts)

    @property
    def terms(self) -> list[Terms]:
        """What the costs depend on."""
        each = zip(self.parts, self.transposed, strict=True)
        return [Terms(p.positions, p.inputs, p.g.shape[3], p.sparse, transposed) for p, transposed in each]

    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        return replace(self, parts=tuple(part.map(function) for part in self.parts))

    def tensors(self) -> dict[str, Tensor]:
        return {f"{i} {name}": t for i, part in enumerate(self.parts) for name, t in part.tensors().items()}

    def write(self, part: Self) -> None:
        for own, other in zip(self.parts, part.parts, strict=True):
            own.write(other)

    def select(self, readout: int) -> Self:
        return replace(self, parts=tuple(part.select(readout) for part in self.parts))

    def merged(self) -> Self:
        return replace(self, traced=True)

    def add_gram(self, other: Self, total: Total) -> None:
        for one, across in zip(self.parts, self.transposed, strict=True):
            for two, other_across in zip(other.parts, other.transposed, strict=True):
                if across != other_across:
                    _add_crossed(one, two, total, self.traced)
                elif self.traced:
                    one.merged().add_gram(two.merged(), total)
                else:
                    one.add_gram(two, total)

    def diagonal(self) -> Tensor:
        total = Total(self.g.new_zeros(self.count, self.readouts, self.readouts))
        for columns in self.columns(self._step):
            rows = columns.view(self.count, self.readouts, -1)
            total.room().add_(product(rows, rows))
        return total.finish()

    def pull(self, v: Tensor) -> Tensor:
        total = None
        for part, across in zip(self.parts, self.transposed, strict=True):
            found = part.pull(v).view(v.shape[2], part.g.shape[3], part.inputs)
            found = found.mT if across else found
            total = found if total is None else total + found
        assert total is not None
        return total.flatten(1)

    def push(self, u: Tensor) -> Tensor:
        matrices = u.unflatten(1, self.terms[0].matrix)
        each = zip(self.parts, self.transposed, strict=True)
        found = [part.push((matrices.mT if across else matrices).flatten(1)) for part, across in each]
        return torch.stack(found).sum(0)

    def add_sketch(self, names: Sequence[str], sketch: "Sketch") -> None:
        size, start = self.row_count * self.row_size, 0
        for columns in self.columns(self._step):
            sketch.add_entries(names[0], columns.unflatten(0, (self.count, -1)), start, size)
            start += columns.shape[1]

    @property
    def _step(self) -> int:
        """Rows of the parameter that are written out at a time where nothing else says how many."""
        return max(1, _WRITTEN // max(1, self.count * self.g.shape[1] * self.row_size))

    @property
    def pair_operations(self) -> Operations | float:
        readouts = self.g.shape[1]
        return pair_operations(self.terms, readouts)

    @property
    def pull_operations(self) -> float:
        return sum(part.pull_operations for part in self.parts)

    @property
    def expand_operations(self) -> Operations | float:
        return expand_operations(self.terms, self.g.shape[1])

    @property
    def row_count(self) -> int:
        return self.terms[0].matrix[0]

    @property
    def row_size(self) -> int:
        return self.terms[0].matrix[1] * (self.g.shape[1] if self.traced else 1)

    def columns(self, step: int, workspace: Workspace | None = None) -> Iterator[Tensor]:
        writers = [part.writer(across) for part, across in zip(self.parts, self.transposed, strict=True)]
        (height, width), rows = self.terms[0].matrix, self.count * self.g.shape[1]
        for start in range(0, height, step):
            some = slice(start, min(start + step, height))
            room = (workspace or Workspace()).room(self.g, rows, some.stop - some.start, width)
            for number, write in enumerate(writers):
                write(some, room, number > 0)
            yield room.view(self.count * self.readouts, -1)


def _add_crossed(left: Pairs, right: Pairs, total: Total, traced: bool) -> None:
    """Add the inner products of sums of g_t a_t^T with sums of a_u g_u^T, or the trace over the readouts of both.

    K[n, r, m, s] = sum_{t,u} (g_nrt . a_mu) (a_nt . g_msu)
    """
    shape = (left.count, 1, right.count, 1) if traced else (left.count, left.readouts, right.count, right.readouts)
    target = total.room().view(shape)
    for i, j in left.tiles(right):
        one, two = left[i], right[j]
        size = one.count, one.positions, two.count, two.positions
        outputs: list[Any] = [two.dot(one.output_rows(r)) for r in range(left.readouts)]
        inputs = [one.dot(two.output_rows(s)).T for s in range(right.readouts)]
        for r, mine in enumerate(outputs):
            for s in (r,) if traced else range(right.readouts):
                at = (0, 0) if traced else (r, s)
                target[i, at[0], j, at[1]] += (mine * inputs[s]).view(size).sum(3).sum(1)
