"""Per-image correlations: the gradient of a convolution's weight, one image at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

_COPY = 1 << 20
"""Entries of the unfolded images held at a time: small enough to stay in a CPU's cache."""


@dataclass(frozen=True)
class Geometry:
    """Stride, zero padding before the first entry, and dilation, each for every dimension."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    def span(self, axis: int, offset: int, size: int, outputs: int) -> tuple[slice, slice]:
        """The output positions that see inside the image at a kernel offset, and the pixels that they see."""
        step, shift = self.stride[axis], offset * self.dilation[axis] - self.padding[axis]
        first = max(0, -(shift // step))
        last = min(outputs - 1, (size - 1 - shift) // step)
        if last < first:
            return slice(0, 0), slice(0, 0)
        start = first * step + shift
        return slice(first, last + 1), slice(start, start + step * (last - first) + 1, step)


def correlate(small: Tensor, big: Tensor, geometry: Geometry, kernel: Sequence[int]) -> Tensor:
    """out[n, g, m, c, k] = sum_t small[n, g, m, t] big[n, g, c, stride t + dilation k - padding].

    Args:
        small: (N, G, M, *T).
        big: (N, G, C, *size), zero outside.
        geometry: Stride, padding, dilation.
        kernel: Sizes of k.

    Returns:
        (N, G, M, C, *kernel). Cost 2 N G M C |kernel| |T| operations; the images are unfolded a few at a time, along
        all kernel axes but the first where the stride allows it (there a shift is only another starting address).
    """
    count, groups, maps = small.shape[:3]
    channels, spatial = big.shape[2], small.shape[3:]
    if len(kernel) == 1:  # as an image of one row
        flat = Geometry((1, *geometry.stride), (0, *geometry.padding), (1, *geometry.dilation))
        return correlate(small.unsqueeze(3), big.unsqueeze(3), flat, (1, *kernel)).squeeze(4)
    shifted = geometry.stride[0] == 1
    rows = kernel[0] if shifted else 1
    columns = channels * (kernel.numel() if isinstance(kernel, torch.Size) else _product(kernel)) // rows
    out = small.new_empty(count, groups, maps, rows, columns)
    left = small.reshape(count, groups, maps, -1)
    step = max(1, _COPY // max(1, groups * columns * left.shape[-1]))
    for start in range(0, count, step):
        part = slice(start, start + step)
        windows = _windows(big[part], geometry, kernel, spatial, shifted)
        if not shifted:
            torch.matmul(left[part], windows.flatten(2, -len(spatial) - 1).flatten(3).mT, out=out[part, :, :, 0])
            continue
        # (n, G, C, *k[1:], rows of the padded image, *T[1:]): a kernel row is a contiguous range of the last axes.
        tail = _product(spatial[1:])
        lines = windows.flatten(2, -len(spatial) - 1).flatten(3)
        for row in range(rows):
            begin = row * geometry.dilation[0] * tail
            torch.matmul(left[part], lines[..., begin : begin + left.shape[-1]].mT, out=out[part, :, :, row])
    if not shifted:
        return out.reshape(count, groups, maps, channels, *kernel)
    return out.reshape(count, groups, maps, rows, channels, *kernel[1:]).movedim(3, 4)


def _windows(big: Tensor, geometry: Geometry, kernel: Sequence[int], spatial: Sequence[int], shifted: bool) -> Tensor:
    """Copies of the image, (n, G, C, *kernel, *T), or (n, G, C, *kernel[1:], rows, *T[1:]) if ``shifted``."""
    sizes = big.shape[3:]
    padding: list[int] = []
    for axis, size in enumerate(sizes):
        reach = (spatial[axis] - 1) * geometry.stride[axis] + geometry.dilation[axis] * (kernel[axis] - 1) + 1
        padding = [geometry.padding[axis], max(0, reach - size - geometry.padding[axis]), *padding]
    image = F.pad(big, padding) if any(padding) else big
    steps = image.stride()
    axes = range(1 if shifted else 0, len(sizes))
    shape = [*image.shape[:3], *(kernel[a] for a in axes)]
    strides = [*steps[:3], *(steps[3 + a] * geometry.dilation[a] for a in axes)]
    if shifted:
        shape += [spatial[0] + geometry.dilation[0] * (kernel[0] - 1)]
        strides += [steps[3]]
    shape += [spatial[a] for a in axes]
    strides += [steps[3 + a] * geometry.stride[a] for a in axes]
    return image.as_strided(shape, strides, image.storage_offset()).contiguous()


def _product(sizes: Sequence[int]) -> int:
    result = 1
    for size in sizes:
        result *= size
    return result


def offsets(kernel: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All kernel offsets."""
    return product(*(range(k) for k in kernel))
