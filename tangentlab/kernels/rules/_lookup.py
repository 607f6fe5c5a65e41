"""Embeddings: gradients that add an output gradient to the row of every token.

y_t = W[i_t]  =>  dL/dW[v] = sum over t with i_t = v of g_t        (V x d),  t = 1..S tokens of a sample
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from tangentlab._signatures import EmbeddingCall
from tangentlab.kernels._cost import ENTRYWISE, STORE, Cost, Operations
from tangentlab.kernels.factors import Factor, Pairs, Terms
from tangentlab.kernels.factors._pairs import Writer
from tangentlab.kernels.factors._total import product
from tangentlab.kernels.rules._registry import rule
from tangentlab.kernels.rules._use import Call, Use, Uses

if TYPE_CHECKING:
    from tangentlab.kernels._projection import Sketch


@rule(F.embedding, example="nn.Embedding", form="lookup")
def embedding(call: Call, *args: Any, **kwargs: Any) -> Uses:
    """y = W[i]; rows under ``padding_idx`` get no gradient."""
    arguments = EmbeddingCall(*args, **kwargs)
    weight, padding_idx = arguments.weight, arguments.padding_idx
    if arguments.max_norm is not None or arguments.scale_grad_by_freq:
        return []
    if padding_idx is not None:
        padding_idx %= len(weight)
    return [(weight, Lookup(weight.shape, call.split(arguments.input.unsqueeze(-1)).flatten(1), padding_idx))]


@dataclass
class Lookup(Use):
    """A table of V rows of which a sample looks up S.

    Attributes:
        shape: (V, d).
        index: The rows looked up, (B, S).
        padding: The row that gets no gradient, or None.
    """

    shape: torch.Size
    index: Tensor
    padding: int | None = None

    @property
    def kind(self) -> Hashable:
        return Lookup

    def outputs(self, g: Tensor) -> Tensor:
        """Return output gradients by position, (B, R, S, d), zero for padding."""
        g = g.reshape(*g.shape[:2], -1, self.shape[1])
        if self.padding is None:
            return g
        return g * (self.index != self.padding)[:, None, :, None]

    def gradient(self, g: Tensor) -> Tensor:
        g = self.outputs(g)
        batch, readouts = g.shape[:2]
        first = torch.arange(batch, device=g.device).unsqueeze(1) * self.shape[0]  # one table after the other
        tables = g.new_zeros(batch * self.shape[0], readouts, self.shape[1])
        tables.index_add_(0, (first + self.index).flatten(), g.transpose(1, 2).flatten(0, 1))
        return tables.unflatten(0, (batch, -1)).transpose(1, 2)

    def narrowed(self) -> tuple[Tensor, Use] | None:
        if self.index.numel() >= self.shape[0]:
            return None
        rows, index = self.index.long().unique(return_inverse=True)
        padding = None if self.padding is None else int(torch.searchsorted(rows, self.padding))
        if padding is not None and (padding == len(rows) or int(rows[padding]) != self.padding):
            padding = None
        return rows, replace(self, shape=torch.Size((len(rows), self.shape[1])), index=index, padding=padding)

    def compact_cost(self, readouts: int, k: int = 0) -> Cost:
        t, d = self.index.shape[1], self.shape[1]
        floats = t * (1 + readouts * d)
        pair = t * t * (ENTRYWISE + readouts**2 * (2 * d + ENTRYWISE))
        return Cost(pair, 0, floats, 2 * readouts * t * d, (ENTRYWISE + STORE) * floats, rows=t)

    def numbering(self) -> Tensor:
        return super().numbering().view(self.shape).T.flatten()

    def compact(self, g: Tensor, scale: float, bias: float) -> Factor:
        assert bias == 0  # no bias shares an embedding's output gradients
        return self.pairs(g, scale)

    @property
    def terms(self) -> Terms:
        rows, width = self.shape
        return Terms(self.index.shape[1], rows, width, sparse=True, transposed=True)

    def pairs(self, g: Tensor, scale: float) -> Pairs:
        return LookupPairs(self.outputs(g) * scale, 0.0, self.index, self.shape[0])

    @staticmethod
    def merge(uses: Sequence[Use]) -> Use | None:
        first = uses[0]
        assert isinstance(first, Lookup)
        if len(uses) == 1:
            return first
        alike = cast(Sequence[Lookup], uses)
        return _JoinedLookup(first.shape, torch.cat([u.index for u in alike], 1), parts=alike)


@dataclass
class _JoinedLookup(Lookup):
    parts: Sequence[Lookup] = ()

    def join(self, grads: Sequence[Tensor]) -> Tensor:
        return torch.cat([part.outputs(g) for part, g in zip(self.parts, grads, strict=True)], 2)


@dataclass
class LookupPairs(Pairs):
    """The gradients of an embedding of T tokens.

    Attributes:
        index: The rows looked up, (n, T).
        rows: V, the length of the table.
    """

    index: Tensor
    rows: int

    @property
    def inputs(self) -> int:
        return self.rows

    @property
    def sparse(self) -> bool:
        return True

    def dot(self, vectors: Tensor) -> Tensor:
        return vectors[:, self.index.flatten().long()]

    def inputs_gram(self, other: Self) -> Tensor:
        return (self.index.flatten()[:, None] == other.index.flatten()).to(self.g.dtype)

    def vectors(self) -> Tensor:
        return F.one_hot(self.index.long(), self.rows).to(self.g.dtype)

    def pull(self, v: Tensor) -> Tensor:
        weighted = torch.einsum("nrtd,nrm->mntd", self.g, v).flatten(1, 2)
        table = weighted.new_zeros(len(weighted), self.rows, weighted.shape[2])
        return table.index_add_(1, self.index.flatten().long(), weighted).mT.flatten(1)

    def push(self, u: Tensor) -> Tensor:
        rows = u.unflatten(1, (-1, self.rows))[:, :, self.index.long()]  # (m, d, n, T)
        return product(self.g.flatten(2), rows.permute(2, 0, 3, 1).flatten(2))

    def writer(self, by_inputs: bool = False) -> Writer:
        """Return what writes the rows of the table: only those of tokens are touched."""
        assert by_inputs  # by outputs, nearly all entries would be zero
        readouts, positions = self.g.shape[1:3]
        tokens, order = self.index.flatten().long().sort(stable=True)
        g = self.g.transpose(1, 2).flatten(0, 1)  # (n T, R, d)
        each = torch.arange(readouts, device=g.device)

        def write(some: slice, out: Tensor, add: bool) -> None:
            if not add:
                out.zero_()
            first, last = torch.searchsorted(tokens, tokens.new_tensor([some.start, some.stop])).tolist()
            chosen, row = order[first:last], tokens[first:last] - some.start
            places = ((chosen // positions)[:, None] * readouts + each) * (some.stop - some.start) + row[:, None]
            out.view(-1, g.shape[2]).index_add_(0, places.flatten(), g[chosen].flatten(0, 1))

        return write

    def add_sketch(self, names: Sequence[str], sketch: "Sketch") -> None:
        (name,) = names
        sketch.add_lookup(name, self.index, self.rows, self.g)

    @property
    def pair_operations(self) -> Operations | float:
        return self.positions**2 * (ENTRYWISE + self.readouts**2 * (2 * self.g.shape[3] + ENTRYWISE))

    @property
    def expand_operations(self) -> Operations | float:
        return math.inf  # nearly all entries are zero

    @property
    def pull_operations(self) -> float:
        return 2.0 * self.readouts * self.positions * self.g.shape[3]
