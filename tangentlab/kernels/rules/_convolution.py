"""Rules for convolutions of one, two and three dimensions, grouped, strided, dilated, transposed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentlab._signatures import ConvolutionCall
from tangentlab.kernels.rules._broadcast import Broadcast
from tangentlab.kernels.rules._correlate import Geometry, correlate
from tangentlab.kernels.rules._registry import rule
from tangentlab.kernels.rules._use import Meeting, Use, Uses


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
        product = correlate(small, big, self.geometry, self.shape[2:])
        product = product.unflatten(0, (batch, images))
        product = product.sum(1) if images > 1 else product.squeeze(1)
        if self.transposed:  # (B, G, C/G, R O/G, *k)
            product = product.unflatten(3, (readouts, -1)).movedim(3, 1)
        else:  # (B, G, R O/G, C/G, *k)
            product = product.unflatten(2, (readouts, -1)).movedim(2, 1)
        return product.reshape(batch, readouts, *self.shape)


@rule(
    *(torch.conv1d, torch.conv2d, torch.conv3d),
    example="nn.Conv1d/2d/3d: stride, dilation, groups, depthwise, every padding mode",
    form="convolution",
)
def convolution(meeting: Meeting, *args: Any, **kwargs: Any) -> Uses:
    """y = W * x + b; other padding modes than zeros pad before, as an operation of their own."""
    input, weight, bias, stride, padding, dilation, groups = ConvolutionCall(*args, **kwargs)
    kernel = weight.shape[2:]
    if not _batched(meeting, input, len(kernel)):
        return []
    step, wide = _tuple(stride, len(kernel)), _tuple(dilation, len(kernel))
    if padding == "valid":
        padding = 0
    elif padding == "same":  # the extra column of an even kernel goes to the right, which needs no number here
        padding = tuple(d * (k - 1) // 2 for d, k in zip(wide, kernel, strict=True))
    geometry = Geometry(step, _tuple(padding, len(kernel)), wide)
    size = tuple(meeting.output.shape[2:])
    uses: Uses = [(weight, Convolution(weight.shape, meeting.split(input), geometry, groups, size))]
    if bias is not None:
        uses.append((bias, Broadcast(bias.shape, (1,))))
    return uses


@rule(
    *(torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d),
    example="nn.ConvTranspose1d/2d/3d",
    form="convolution",
)
def transposed(
    meeting: Meeting,
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
    if not _batched(meeting, input, n):
        return []
    geometry = Geometry(_tuple(stride, n), _tuple(padding, n), _tuple(dilation, n))
    size = tuple(meeting.output.shape[2:])
    uses: Uses = [(weight, Convolution(weight.shape, meeting.split(input), geometry, groups, size, True))]
    if bias is not None:
        uses.append((bias, Broadcast(bias.shape, (1,))))
    return uses


def _batched(meeting: Meeting, input: Tensor, dimensions: int) -> bool:
    return meeting.layout.axis == 0 and input.ndim == dimensions + 2


def _tuple(value: Any, length: int) -> tuple[int, ...]:
    if isinstance(value, Sequence):
        return tuple(value) if len(value) == length else tuple(value) * length
    return (value,) * length
