"""Gradients written out."""

from dataclasses import dataclass
from typing import Self

from torch import Tensor

from tangentlab.kernels.factors._base import Factor


@dataclass
class Direct(Factor):
    """g: the gradients, (n, R, P). A pair of rows costs 2 P operations, in one matrix product for all parameters."""

    g: Tensor

    def add_gram(self, other: Self, out: Tensor) -> None:
        out.addmm_(self.g.flatten(0, 1), other.g.flatten(0, 1).T)

    def diagonal(self) -> Tensor:
        return self.g @ self.g.mT

    def pull(self, v: Tensor) -> Tensor:
        return v.flatten(0, 1).T @ self.g.flatten(0, 1)

    def push(self, u: Tensor) -> Tensor:
        return self.g @ u.T

    def merged(self) -> Self:
        return type(self)(self.g.flatten(1).unsqueeze(1))
