"""Gradients written out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from torch import Tensor

from tangentlab.kernels.factors._base import Factor
from tangentlab.kernels.factors._total import Total, add_product, chunks, product

if TYPE_CHECKING:
    from tangentlab.kernels._projection import Sketch


@dataclass
class Direct(Factor):
    """Gradients written out. A pair of rows costs 2 P operations, in one product.

    Attributes:
        g: The gradients, (n, R, P).
    """

    g: Tensor

    def add_gram(self, other: Self, total: Total) -> None:
        one, two = self.g.flatten(0, 1), other.g.flatten(0, 1)
        for part in chunks(one.shape[1]):
            add_product(total, one[:, part], two[:, part])

    def diagonal(self) -> Tensor:
        return product(self.g, self.g)

    def pull(self, v: Tensor) -> Tensor:
        return product(v.flatten(0, 1).T, self.g.flatten(0, 1).T)

    def push(self, u: Tensor) -> Tensor:
        return product(self.g.flatten(0, 1), u).unflatten(0, self.g.shape[:2])

    def merged(self) -> Self:
        return type(self)(self.g.flatten(1).unsqueeze(1))

    def add_sketch(self, names: Sequence[str], sketch: "Sketch") -> None:
        (name,) = names
        sketch.add_entries(name, self.g)

    @property
    def pair_operations(self) -> float:
        return 2.0 * self.readouts**2 * self.g.shape[2]

    @property
    def pull_operations(self) -> float:
        return 2.0 * self.readouts * self.g.shape[2]
