"""Rows of the kernel of an operator, for some samples at a time: J_B of samples B, by their factors."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._progress import silent
from tangentlab.kernels._calibration import rates
from tangentlab.kernels._contract import contract
from tangentlab.kernels._cost import price
from tangentlab.kernels._inputs import Samples
from tangentlab.kernels._products import Products, add_term
from tangentlab.kernels.factors import Factors, Key, Total

Weights = dict[Key, Tensor]
"""Directions in parameter space, (m, P), in the parts in which a plan keeps the gradients."""


@dataclass(frozen=True)
class Rows:
    """The gradients J_B of some samples B, as factors.

    Attributes:
        factors: The factors.
        dtype: The precision of products.
        share: Numbers that a product may hold at a time, beside its result.
    """

    factors: Factors
    dtype: torch.dtype
    share: int

    def gram(self) -> Tensor:
        """Compute J_B J_B^T, (b R, b R), exactly symmetric."""
        return self._contracted(self.factors, True)

    def cross(self, other: "Rows") -> Tensor:
        """Compute J_B J_C^T, (b R, c R)."""
        return self._contracted(other.factors, False)

    def _contracted(self, other: Factors, symmetric: bool) -> Tensor:
        size = self.factors.readouts
        some = next(iter(self.factors.parts.values())).g
        out = torch.empty(self.factors.count * size, other.count * size, dtype=self.dtype, device=some.device)
        contract(self.factors, other, out, symmetric, silent)
        return out

    def diagonal(self) -> Tensor:
        """Compute the diagonal of J_B J_B^T, (b R,)."""
        return self.factors.cast(self.dtype).diagonal().diagonal(dim1=1, dim2=2).reshape(-1)

    def pull(self, v: Tensor) -> Weights:
        """Compute J_B^T v for m vectors, (b R, m)."""
        block = v.to(self.dtype).reshape(self.factors.count, self.factors.readouts, -1)
        sums: dict[Key, Total] = {}
        for key, part in self.factors.parts.items():
            for some in self._pieces(part, block.shape[2]):
                add_term(sums, key, part[some].cast(self.dtype).pull(block[some]))
        return {key: total.finish() for key, total in sums.items()}

    def push(self, weights: Mapping[Key, Tensor]) -> Tensor:
        """Compute J_B u for m directions, as (b R, m)."""
        columns = len(next(iter(weights.values())))
        out = None
        for key, part in self.factors.parts.items():
            direction = weights[key].to(self.dtype)
            pieces = [part[some].cast(self.dtype).push(direction) for some in self._pieces(part, columns)]
            term = torch.cat(pieces).double()
            out = term if out is None else out.add_(term)
        assert out is not None
        return out.reshape(-1, columns)

    def _pieces(self, part: Any, columns: int) -> Iterator[slice]:
        """Cut the samples so that weighting the output gradients with every column stays within the share."""
        height = max(1, self.share // max(1, columns * part.g[0].numel()))
        return (slice(start, start + height) for start in range(0, part.count, height))


def _has_targets(samples: Samples) -> bool:
    return samples.batch([0]).targets is not None


class RowAccess:
    """Rows of an operator's kernel for any of its samples, and for new ones.

    Factors come from those that the operator keeps; where it keeps none, they are computed for each call.

    Args:
        products: The products of the operator, of samples with themselves.
    """

    def __init__(self, products: Products) -> None:
        self.products = products
        plan = products.plan
        self.readouts, self.samples = plan.network.readout.size, plan.work.rows
        self.dtype, self.device = plan.network.kernel_dtype, plan.network.device
        self.sample_bytes = products.budget.sample
        """Bytes of the factors of one sample."""
        self.held_bytes = self.samples * self.sample_bytes if products.kept else 0
        """Bytes of the factors that are kept."""
        self.batch_bytes = products.budget.batch * products.budget.batch_sample + products.budget.tile
        """Bytes of making the factors of a batch, and of contracting a tile."""
        self.parameters = sum(p.numel() for p in plan.network.parameters.values())

    @property
    def share(self) -> int:
        """Numbers that a product may hold at a time: a sixteenth of the memory budget, at most 64 MiB."""
        return min(self.products.budget.total // 16, 1 << 26) // self.dtype.itemsize

    def cheaper_by_weights(self, columns: int) -> bool:
        """Return whether a product with that many vectors takes fewer operations by J (J^T v) than by tiles."""
        own = rates(self.device, self.dtype)
        parts = self.take([0]).factors.parts.values()
        by_tiles = sum(self.samples * price(part.pair_operations, own) for part in parts)
        return sum(2 * columns * part.pull_operations for part in parts) <= by_tiles

    def take(self, samples: Sequence[int]) -> Rows:
        """Return the rows of some samples, by their numbers."""
        kept = self.products.kept
        if kept:
            factors = kept[0].take(samples)
        else:
            side = self.products.plan.left
            factors = self.products.plan.factorizer(side, self.products.budget).some(side.samples, samples)
        return Rows(factors, self.dtype, self.share)

    def new(self, x: Any, targets: Any = None) -> Iterator[Rows]:
        """Yield the rows of other samples, batch by batch.

        Args:
            x: The samples, in any form that the operator takes.
            targets: Their targets, where the readout needs them and they do not come with the samples.
        """
        plan = self.products.plan
        network, options = plan.network, plan.problem.options
        samples = Samples(
            x,
            name="x",
            device=network.device,
            dtype=network.cast,
            input=options.input,
            model=network.model,
            targets=targets,
            labeled=network.takes_targets,
        )
        network.refuse_targets(samples)
        # A readout may take None for a target, and would be another function than that of the operator's samples.
        if network.takes_targets and _has_targets(samples) != _has_targets(plan.left.samples):
            raise TangentError(
                "Either the operator's samples or the new ones have no targets, and the others have some.",
                "The readout is a function of outputs and targets.",
                "Pass the new samples in the same form, with targets as a Dataset: TensorDataset(x, y).",
            )
        factorizer = plan.factorizer(plan.left, self.products.budget)
        for start in range(0, len(samples), factorizer.batch_size):
            numbers = range(start, min(len(samples), start + factorizer.batch_size))
            yield Rows(factorizer.some(samples, list(numbers)), self.dtype, self.share)
