"""Gradients that are one outer product a sample."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from tangentlab.kernels.factors.base import Factor


@dataclass
class Hadamard(Factor):
    """Gradient g a^T: the kernel is the entrywise product of two small Gram matrices,

        K[n, r, m, s] = (a_n . a_m) (g_nr . g_ms)

    at 2 (d_in / R^2 + d_out) operations a pair of rows instead of 2 d_in d_out. A bias shares g, with a constant input:
    it is one more column of a.

    Attributes:
        a: Inputs, (n, d_in).
        g: Output gradients, (n, R, d_out).
    """

    a: Tensor
    g: Tensor

    def add_gram(self, other: Self, out: Tensor) -> None:
        inputs = self.a @ other.a.T
        outputs = self.g.flatten(0, 1) @ other.g.flatten(0, 1).T
        if self.readouts == other.readouts == 1:
            out.addcmul_(inputs, outputs)
            return
        shape = (self.count, self.readouts, other.count, other.readouts)
        out.view(shape).addcmul_(outputs.view(shape), inputs[:, None, :, None])

    def diagonal(self) -> Tensor:
        return (self.a * self.a).sum(1)[:, None, None] * (self.g @ self.g.mT)

    def pull(self, v: Tensor) -> Tensor:
        weighted = torch.einsum("nro,nrm->mno", self.g, v)
        return (weighted.mT @ self.a).flatten(1)

    def push(self, u: Tensor) -> Tensor:
        maps = u.unflatten(1, (self.g.shape[2], self.a.shape[1]))
        return torch.einsum("nro,mno->nrm", self.g, self.a @ maps.mT)

    def merged(self) -> Self:
        return type(self)(self.a, self.g.flatten(1).unsqueeze(1))
