"""Compact factors of convolutions: pixels and output gradients by position."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import torch
from torch import Tensor

from tangentlab.kernels._cost import ENTRYWISE, Operations
from tangentlab.kernels.factors import Pairs, Total
from tangentlab.kernels.factors._pairs import rows_of
from tangentlab.kernels.factors._total import Workspace, product
from tangentlab.kernels.rules._correlate import Geometry, correlate, offsets

if TYPE_CHECKING:
    from tangentlab.kernels._projection import Sketch


@dataclass
class ConvolutionPairs(Pairs):
    """A convolution. Patches overlap, so their Gram matrix is summed from that of the pixels over the kernel's shifts,

        (patch at t) . (patch at u) = sum_k x[stride t + dilation k - padding] . x'[stride u + dilation k - padding]

    at 2 C operations per pair of pixels instead of 2 C |kernel| per pair of positions.

    Attributes:
        x: Pixels, (n, pixels, C).
        size: The image's size.
        outputs: The output's size, of T entries.
        kernel: The kernel's size.
        geometry: Stride, padding, dilation.
    """

    positions_first = True

    x: Tensor
    size: tuple[int, ...]
    outputs: tuple[int, ...]
    kernel: tuple[int, ...]
    geometry: Geometry

    @property
    def inputs(self) -> int:
        return self.x.shape[2] * math.prod(self.kernel)

    @property
    def pair_operations(self) -> Operations | float:
        inputs = inputs_operations(self.x.shape[1], self.x.shape[2], self.positions, self.kernel)
        return inputs + self.positions**2 * self.readouts**2 * (2 * self.g.shape[3] + ENTRYWISE)

    def pair_size(self, other: Pairs) -> int:
        pixels = other.x.shape[1] if isinstance(other, ConvolutionPairs) else other.positions
        return max(self.positions * other.positions, self.x.shape[1] * pixels)

    def inputs_gram(self, other: Self) -> Tensor:
        left, right = (rows_of(f.x, positions_first=True) for f in (self, other))
        pixels = product(left, right).view(*self.size, self.count, *other.size, other.count)
        patches = pixels.new_zeros(*self.outputs, self.count, *other.outputs, other.count)
        for offset in offsets(self.kernel):
            to, seen = self._spans(offset)
            to2, seen2 = other._spans(offset)
            patches[(*to, slice(None), *to2)] += pixels[(*seen, slice(None), *seen2)]
        return patches.view(self.positions * self.count, -1)

    def _spans(self, offset: tuple[int, ...]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        spans = [self.geometry.span(a, k, self.size[a], self.outputs[a]) for a, k in enumerate(offset)]
        return tuple(to for to, _ in spans), tuple(seen for _, seen in spans)

    def vectors(self) -> Tensor:
        image, every = self.x.unflatten(1, self.size), slice(None)
        patches = image.new_zeros(self.count, *self.outputs, math.prod(self.kernel), image.shape[-1])
        for number, offset in enumerate(offsets(self.kernel)):
            to, seen = self._spans(offset)
            patches[(every, *to, number)] = image[(every, *seen)]
        return patches.flatten(-2).flatten(1, -2)


@dataclass
class GroupedPairs(ConvolutionPairs):
    """A convolution in groups: as many independent ones, whose kernels are added up.

    Attributes:
        groups: Number of groups, of C / groups channels and d_out / groups outputs each.
    """

    groups: int

    @property
    def inputs(self) -> int:
        return super().inputs // self.groups

    @property
    def pair_operations(self) -> Operations | float:
        return self.groups * next(self._parts(self.bias)).pair_operations

    def _parts(self, bias: float) -> Iterator[ConvolutionPairs]:
        """Yield the convolutions, with or without the biases of their outputs."""
        for g, x in zip(self.g.chunk(self.groups, 3), self.x.chunk(self.groups, 2), strict=True):
            yield ConvolutionPairs(g, bias, x, self.size, self.outputs, self.kernel, self.geometry)

    def _biases(self) -> Tensor:
        return self.bias * self.g.sum(2)

    def add_gram(self, other: Self, total: Total) -> None:
        for one, two in zip(self._parts(self.bias), other._parts(self.bias), strict=True):
            one.add_gram(two, total)

    def diagonal(self) -> Tensor:
        return torch.stack([part.diagonal() for part in self._parts(self.bias)]).sum(0)

    def pull(self, v: Tensor) -> Tensor:
        weights = [part.pull(v) for part in self._parts(0.0)]
        biases = [torch.einsum("nro,nrm->mo", self._biases(), v)] if self.bias else []
        return torch.cat(weights + biases, 1)

    def push(self, u: Tensor) -> Tensor:
        size = self.g.shape[3] * self.inputs
        parts = zip(self._parts(0.0), u[:, :size].chunk(self.groups, 1), strict=True)
        total = torch.stack([part.push(weights) for part, weights in parts]).sum(0)
        return total + self._biases() @ u[:, size:].T if self.bias else total

    def merged(self) -> Self:
        g = self.g.unflatten(3, (self.groups, -1)).movedim(1, 3).flatten(2).unsqueeze(1)
        return replace(self, g=g)

    def add_sketch(self, names: Sequence[str], sketch: "Sketch") -> None:
        for number, part in enumerate(self._parts(0.0)):  # each by a map of its own
            part.add_sketch([f"{names[0]}[{number}]"], sketch)
        if self.bias:
            sketch.add_entries(names[1], self._biases())

    def columns(self, step: int, workspace: Workspace | None = None) -> Iterator[Tensor]:
        """Yield the gradients of some groups at a time or, of groups of many outputs, of some of their outputs."""
        outputs = self.g.shape[3] // self.groups
        big = self.x.mT.unflatten(2, self.size).unflatten(1, (self.groups, -1))
        small = self.g.unflatten(3, (self.groups, outputs)).permute(0, 3, 1, 4, 2)
        height, width = max(1, step // outputs), min(step, outputs)
        for i in range(0, self.groups, height):
            for j in range(0, outputs, width):
                g = small[:, i : i + height, :, j : j + width]
                maps = g.flatten(2, 3).unflatten(3, self.outputs)
                found = correlate(maps, big[:, i : i + height], self.geometry, self.kernel)
                yield found.unflatten(2, g.shape[2:4]).movedim(2, 1).reshape(self.count * self.readouts, -1)
        if self.bias:
            yield self._biases().flatten(0, 1)


def inputs_operations(pixels: int, channels: int, positions: int, kernel: Sequence[int]) -> Operations:
    """Return the operations of the patches' Gram matrix of two images, from that of their pixels."""
    return 2.0 * pixels**2 * channels + positions**2 * math.prod(kernel) * ENTRYWISE
