"""Products with the kernel by a plan, from factors that are kept or recomputed for every product."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentlab._sums import inner
from tangentlab.kernels._calibration import rates
from tangentlab.kernels._cost import price
from tangentlab.kernels._memory import Budget
from tangentlab.kernels._plan import Plan
from tangentlab.kernels._verify import verify
from tangentlab.kernels.factors import Factor, Factors, Key, Total


@dataclass(frozen=True)
class Products:
    """Products with J1 J2^T of a plan.

    Attributes:
        plan: The plan.
        budget: Its memory.
        kept: The factors of each side, if they fit into memory; otherwise none.
    """

    plan: Plan
    budget: Budget
    kept: Mapping[int, Factors]

    def _blocks(self, number: int) -> Iterator[tuple[range, Factors]]:
        """Yield the factors of one side, in pieces of a batch unless they are kept."""
        number = min(number, len(self.plan.sides) - 1)
        side = self.plan.sides[number]
        everything = range(len(side.samples))
        if number in self.kept:
            yield everything, self.kept[number]
            return
        factorizer = self.plan.factorizer(side, self.budget)
        for rows in factorizer.batches(everything):
            yield rows, factorizer(side.samples, rows)

    def product(self, v: Tensor, out_side: int, in_side: int) -> Tensor:
        """Return J_out (J_in^T v) for a block of vectors, (n R, m)."""
        return self.push(self.pull(v, in_side), out_side)

    def pull(self, v: Tensor, side: int) -> dict[Key, Tensor]:
        """Return J^T v for a block of vectors, (n R, m): for each factor (m, P), in the factor's own order."""
        readouts = self.plan.network.readout.size
        block = v.reshape(v.shape[0] // readouts, readouts, -1)
        sums: dict[Key, Total] = {}
        for rows, factors in self._blocks(side):
            for key, part in factors.parts.items():
                for some, places in self._pieces(part, rows, v.shape[1]):
                    add_term(sums, key, some.cast(v.dtype).pull(block[places]))
        return {key: total.finish() for key, total in sums.items()}

    def push(self, u: Mapping[Key, Tensor], side: int) -> Tensor:
        """Return J u, (n R, m), of what :meth:`pull` gives."""
        found = []
        for _, factors in self._blocks(side):
            products: dict[str, Total] = {}
            for key, part in factors.parts.items():
                each = self._pieces(part, range(part.count), len(u[key]))
                add_term(products, "", torch.cat([some.cast(u[key].dtype).push(u[key]) for some, _ in each]))
            found.append(products[""].finish())
        return torch.cat(found).flatten(0, 1)

    def _pieces(self, part: Factor, rows: range, columns: int) -> Iterator[tuple[Factor, slice]]:
        """Cut a factor into samples whose output gradients, times so many vectors, take an eighth of the budget.

        A factor weights its output gradients with every vector before it sums over samples.
        """
        height = max(1, self._share // (columns * part.g[0].numel()))
        for start in range(0, part.count, height):
            some = part[start : start + height]
            yield some, slice(rows.start + start, rows.start + start + some.count)

    @property
    def _columns(self) -> int:
        """How many vectors are pulled back at a time, so that they take an eighth of the memory budget."""
        parameters = sum(p.numel() for p in self.plan.network.parameters.values())
        return max(1, self._share // parameters)

    @property
    def _share(self) -> int:
        """Numbers that an eighth of the memory budget holds."""
        return self.budget.total // (8 * self.plan.network.kernel_dtype.itemsize)

    def squares(self, v: Tensor) -> Tensor:
        """Return ||J^T v||^2 for each column of a block of vectors."""
        return torch.cat([self._squares(part) for part in v.split(self._columns, 1)])

    def _squares(self, v: Tensor) -> Tensor:
        block = v.reshape(self.plan.work.rows, -1, v.shape[1])
        tiled = self._cheaper_by_tiles(block)
        pulled: dict[Key, Total] = {}
        for rows, factors in self._blocks(0):
            for key, part in factors.parts.items():
                if key in tiled:
                    continue
                for some, places in self._pieces(part, rows, v.shape[1]):
                    add_term(pulled, key, some.cast(v.dtype).pull(block[places]))
        total = torch.zeros(v.shape[1], dtype=torch.float64, device=v.device)
        for sum_ in pulled.values():
            total += torch.stack([inner(row, row) for row in sum_.finish()])
        if tiled:
            total += self._tiled_squares(Factors({key: self.kept[0].parts[key] for key in tiled}), block)
        return total.to(v.dtype)

    def _cheaper_by_tiles(self, block: Tensor) -> set[Key]:
        """Return the factors whose Gram matrix costs fewer operations than pulling back, its product included."""
        if 0 not in self.kept:
            return set()
        samples, readouts, columns = block.shape
        chosen, saved = set(), 0.0
        own = rates(block.device, block.dtype)
        for key, part in self.kept[0].parts.items():
            gain = columns * part.pull_operations - samples / 2 * price(part.pair_operations, own)
            if gain > 0:
                chosen.add(key)
                saved += gain
        return chosen if saved > samples * readouts**2 * columns else set()

    def _tiled_squares(self, factors: Factors, block: Tensor) -> Tensor:
        """Return v^T K v of these factors' kernel, from the panels of its upper triangle."""
        samples, readouts, columns = block.shape
        height = max(1, min(1024, self._share // (4 * samples * readouts**2)))
        total = torch.zeros(columns, dtype=torch.float64, device=block.device)
        for start in range(0, samples, height):
            one, right = factors[start : start + height].cast(block.dtype), block[start:].flatten(0, 1)
            size = one.count * readouts
            panel = block.new_zeros(size, len(right))
            one.add_gram(factors[start:].cast(block.dtype), panel)
            panel[:, size:] *= 2  # the other triangle
            total += (right[:size] * (panel @ right)).sum(0)
        return total.clamp_(min=0)

    def diagonal(self) -> Tensor:
        """Return the diagonal of a kernel of samples with themselves, (N R,)."""
        blocks = torch.cat([factors.cast(self.plan.network.kernel_dtype).diagonal() for _, factors in self._blocks(0)])
        return blocks.diagonal(dim1=1, dim2=2).reshape(-1)


def prepare(plan: Plan) -> Products:
    """Compute the factors of all samples if they fit into memory, and compare a few with plain differentiation."""
    budget = plan.budget(0)
    fits = sum(len(side.samples) for side in plan.sides) <= budget.resident
    first = []
    for side in plan.sides:
        rows = range(len(side.samples) if fits else min(len(side.samples), budget.batch))
        first.append((plan.factorizer(side, budget)(side.samples, rows), rows))
    if plan.problem.options.check:
        verify(plan, *first[0], *first[-1])
    return Products(plan, budget, {number: factors for number, (factors, _) in enumerate(first)} if fits else {})


def add_term(sums: dict[Any, Total], key: Any, term: Tensor) -> None:
    """Add a term to one of several sums; the first one becomes the sum."""
    if key in sums:
        sums[key].room().add_(term)
    else:
        sums[key] = Total(term)
