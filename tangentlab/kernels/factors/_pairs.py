"""Gradients that are sums of outer products over a sample's positions, contracted by pairs of positions.

    K[n, r, m, s] = sum_{t,u} (a_nt . a_mu) (g_nrt . g_msu)

For few positions and large weights this is far cheaper than writing the gradients out.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from tangentlab.kernels.factors._base import Factor
from tangentlab.kernels.factors._total import Total, product
from tangentlab.kernels.rules._correlate import Geometry, offsets

_BLOCK = 1 << 22
"""Pairs of positions held at a time."""


@dataclass
class Pairs(Factor):
    """Attributes:
    g: Output gradients by position, (n, R, T, d_out).
    bias: The input of a bias that shares g, the same at every position (0 for no bias).
    """

    g: Tensor
    bias: float

    @abstractmethod
    def inputs_gram(self, other: Self) -> Tensor:
        """a_nt . a_mu as (T1, n1, T2, n2): positions first, so that summing over them runs along memory."""

    @abstractmethod
    def vectors(self) -> Tensor:
        """The inputs a written out, (n, T, d_in)."""

    @property
    def positions(self) -> int:
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
                        tile[:, r, :, s] += products.sum((0, 2))

    def pair_size(self, other: Self) -> int:
        """Entries of the largest intermediate for one pair of samples."""
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
        return self._map(lambda tensor: g if tensor is self.g else tensor)


@dataclass
class LinearPairs(Pairs):
    """A dense layer applied to T positions.

    Attributes:
        a: Inputs, (n, T, d_in).
    """

    a: Tensor

    def inputs_gram(self, other: Self) -> Tensor:
        left, right = (f.a.transpose(0, 1).reshape(-1, f.a.shape[2]) for f in (self, other))
        return product(left, right).view(self.positions, self.count, other.positions, other.count)

    def vectors(self) -> Tensor:
        return self.a


@dataclass
class LookupPairs(Pairs):
    """An embedding of T tokens.

    Attributes:
        index: The rows looked up, (n, T).
        rows: Length of the table.
    """

    index: Tensor
    rows: int

    def inputs_gram(self, other: Self) -> Tensor:
        left, right = self.index.T[:, :, None, None], other.index.T[None, None]
        return (left == right).to(self.g.dtype)

    def vectors(self) -> Tensor:
        return torch.nn.functional.one_hot(self.index.long(), self.rows).to(self.g.dtype)


@dataclass
class ConvolutionPairs(Pairs):
    """A convolution. Patches overlap, so their Gram matrix is summed from that of the pixels over the kernel's shifts,

        (patch at t) . (patch at u) = sum_k x[stride t + dilation k - padding] . x'[stride u + dilation k - padding]

    at 2 C operations a pair of pixels instead of 2 C |kernel| a pair of positions.

    Attributes:
        x: Pixels, (n, pixels, C).
        size: The image's size.
        outputs: The output's size, of T entries.
        kernel: The kernel's size.
        geometry: Stride, padding, dilation.
    """

    x: Tensor
    size: tuple[int, ...]
    outputs: tuple[int, ...]
    kernel: tuple[int, ...]
    geometry: Geometry

    def pair_size(self, other: Self) -> int:
        return max(self.positions * other.positions, self.x.shape[1] * other.x.shape[1])

    def inputs_gram(self, other: Self) -> Tensor:
        left, right = (f.x.transpose(0, 1).reshape(-1, f.x.shape[2]) for f in (self, other))
        pixels = product(left, right).view(*self.size, self.count, *other.size, other.count)
        patches = pixels.new_zeros(*self.outputs, self.count, *other.outputs, other.count)
        for offset in offsets(self.kernel):
            to, seen = self._spans(offset)
            to2, seen2 = other._spans(offset)
            patches[(*to, slice(None), *to2)] += pixels[(*seen, slice(None), *seen2)]
        return patches.view(self.positions, self.count, other.positions, other.count)

    def _spans(self, offset: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        spans = [self.geometry.span(a, k, self.size[a], self.outputs[a]) for a, k in enumerate(offset)]
        return tuple(to for to, _ in spans), tuple(seen for _, seen in spans)

    def vectors(self) -> Tensor:
        image = self.x.unflatten(1, self.size)
        parts = []
        for offset in offsets(self.kernel):
            to, seen = self._spans(offset)
            part = image.new_zeros(self.count, *self.outputs, image.shape[-1])
            part[(slice(None), *to)] = image[(slice(None), *seen)]
            parts.append(part.flatten(1, -2))
        return torch.cat(parts, 2)
