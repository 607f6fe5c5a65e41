"""Convolutions of one, two and three dimensions, grouped, strided, dilated, transposed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentlab._signatures import ConvolutionCall
from tangentlab.kernels._cost import Cost, outer_products
from tangentlab.kernels.factors import Factor, Hadamard, Terms
from tangentlab.kernels.rules._broadcast import Broadcast
from tangentlab.kernels.rules._correlate import Geometry, correlate
from tangentlab.kernels.rules._outer import Outer
from tangentlab.kernels.rules._patches import ConvolutionPairs, GroupedPairs, inputs_operations
from tangentlab.kernels.rules._registry import rule
from tangentlab.kernels.rules._use import Call, Use, Uses


@dataclass
class Convolution(Use):
    """A convolution's weight. A sample may bring several images, counted by c.

    For output positions t and kernel offsets k, with x zero outside the image,

        y[o, t] = sum_{c,k} W[o, c, k] x[c, stride t + dilation k - padding]
        dL/dW[o, c, k] = sum_t g[o, t] x[c, stride t + dilation k - padding]

    The transposed convolution exchanges the roles of x and y.

    Attributes:
        shape: (O, C / groups, *kernel), or (C, O / groups, *kernel) if transposed.
        x: Input images, (B, c, C, *size).
        geometry: Stride, padding, dilation.
        groups: Number of groups.
        outputs: The output's size.
        transposed: Whether it is a transposed convolution.
    """

    shape: torch.Size
    x: Tensor
    geometry: Geometry
    groups: int
    outputs: tuple[int, ...]
    transposed: bool = False

    def gradient(self, g: Tensor) -> Tensor:
        batch, readouts, images = g.shape[:3]
        groups = self.groups
        # (B, R, c, G, channels of a group, *size) and (B, c, G, channels of a group, *size)
        g = g.unflatten(3, (groups, -1))
        x = self.x.unflatten(2, (groups, -1))
        if self.transposed:
            big = g.movedim(1, 3).reshape(batch * images, groups, -1, *g.shape[5:])
            small = x.flatten(0, 1)
        else:
            small = g.movedim(1, 3).reshape(batch * images, groups, -1, *g.shape[5:])
            big = x.flatten(0, 1)
        found = correlate(small, big, self.geometry, self.shape[2:])
        found = found.unflatten(0, (batch, images))
        found = found.sum(1) if images > 1 else found.squeeze(1)
        if self.transposed:  # (B, G, C/G, R O/G, *k)
            found = found.unflatten(3, (readouts, -1)).movedim(3, 1)
        else:  # (B, G, R O/G, C/G, *k)
            found = found.unflatten(2, (readouts, -1)).movedim(2, 1)
        return found.reshape(batch, readouts, *self.shape)

    @property
    def positions(self) -> int:
        """Output positions of a sample: kernel steps that fit into the padded image, over all its images."""
        size = self.x.shape[3:] if self.transposed else self.outputs
        return math.prod(size) * self.x.shape[1]

    def compact_cost(self, readouts: int, k: int = 0) -> Cost | None:
        if self.transposed or self.x.shape[1] > 1:
            return None
        pixels, channels, outputs = math.prod(self.x.shape[3:]), self.shape[1], self.shape[0] // self.groups
        floats = pixels * channels + readouts * self.positions * outputs
        gram = inputs_operations(pixels, channels, self.positions, self.shape[2:])
        group = outer_products(self.positions, math.prod(self.shape[1:]), outputs, readouts, k, floats, gram)
        return self.groups * group

    def numbering(self) -> Tensor:
        """Return the numbers of a filter's entries, offset by offset, where the parameter has channel by channel."""
        return super().numbering().view(self.shape).flatten(2).mT.flatten()

    @property
    def terms(self) -> Terms | None:
        if self.groups > 1 or self.compact_cost(1) is None:
            return None
        return Terms(self.positions, math.prod(self.shape[1:]), self.shape[0])

    def pairs(self, g: Tensor, scale: float) -> ConvolutionPairs:
        return self._pairs(g, scale, 0.0)

    def _pairs(self, g: Tensor, scale: float, bias: float) -> ConvolutionPairs:
        x = self.x.flatten(3).squeeze(1).mT
        return ConvolutionPairs(
            g.flatten(4).squeeze(2).mT.contiguous(),
            bias,
            x if scale == 1 else x * scale,
            tuple(self.x.shape[3:]),
            self.outputs,
            tuple(self.shape[2:]),
            self.geometry,
        )

    def compact(self, g: Tensor, scale: float, bias: float) -> Factor:
        pairs = self._pairs(g, scale, bias)
        if self.groups > 1:
            return GroupedPairs(**vars(pairs), groups=self.groups)
        if pairs.positions > 1:
            return pairs
        return Hadamard(pairs.vectors().squeeze(1), pairs.g.squeeze(2), bias)


@rule(
    *(torch.conv1d, torch.conv2d, torch.conv3d),
    example="nn.Conv1d/2d/3d: stride, dilation, groups, depthwise, every padding mode",
    form="convolution",
)
def convolution(call: Call, *args: Any, **kwargs: Any) -> Uses:
    """y = W * x + b; other padding modes than zeros pad before, as an operation of their own."""
    input, weight, bias, stride, padding, dilation, groups = ConvolutionCall(*args, **kwargs)
    kernel = weight.shape[2:]
    if not _batched(call, input, len(kernel)):
        return []
    step, wide = _tuple(stride, len(kernel)), _tuple(dilation, len(kernel))
    if padding == "valid":
        padding = 0
    elif padding == "same":  # the extra column of an even kernel goes to the right, which needs no number here
        padding = tuple(d * (k - 1) // 2 for d, k in zip(wide, kernel, strict=True))
    geometry = Geometry(step, _tuple(padding, len(kernel)), wide)
    size = tuple(call.output.shape[2:])
    x = call.split(input)
    if math.prod(kernel) == groups == 1 and not any(geometry.padding):  # a dense layer applied to some pixels
        pixels = x[(slice(None), slice(None), slice(None), *(slice(None, None, s) for s in step))]
        use: Use = Outer(weight.shape, pixels.movedim(2, -1).flatten(1, -2), feature_axis=-1 - len(kernel))
    else:
        use = Convolution(weight.shape, x, geometry, groups, size)
    uses: Uses = [(weight, use)]
    if bias is not None:
        uses.append((bias, Broadcast(bias.shape, (1,))))
    return uses


@rule(
    *(torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d),
    example="nn.ConvTranspose1d/2d/3d",
    form="convolution",
)
def transposed(
    call: Call,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Uses:
    """y = W *^T x + b."""
    n = weight.ndim - 2
    if not _batched(call, input, n):
        return []
    geometry = Geometry(_tuple(stride, n), _tuple(padding, n), _tuple(dilation, n))
    size = tuple(call.output.shape[2:])
    uses: Uses = [(weight, Convolution(weight.shape, call.split(input), geometry, groups, size, True))]
    if bias is not None:
        uses.append((bias, Broadcast(bias.shape, (1,))))
    return uses


def _batched(call: Call, input: Tensor, dimensions: int) -> bool:
    return call.layout.axis == 0 and input.ndim == dimensions + 2


def _tuple(value: Any, length: int) -> tuple[int, ...]:
    if isinstance(value, Sequence):
        return tuple(value) if len(value) == length else tuple(value) * length
    return (value,) * length
