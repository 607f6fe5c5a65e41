"""Per-image correlations: the gradient of a convolution's weight, one image at a time."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import torch
import torch.nn.functional as F
from torch import Tensor

_COPY = 1 << 19
"""Entries of the unfolded images held at a time: small enough to stay in a CPU's cache."""


@dataclass(frozen=True)
class Geometry:
    """Stride, zero padding before the first entry, and dilation, each for every dimension."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    def span(self, axis: int, offset: int, size: int, outputs: int) -> tuple[slice, slice]:
        """Return the output positions that see inside the image at a kernel offset, and the pixels that they see."""
        step, shift = self.stride[axis], offset * self.dilation[axis] - self.padding[axis]
        first = max(0, -(shift // step))
        last = min(outputs - 1, (size - 1 - shift) // step)
        if last < first:
            return slice(0, 0), slice(0, 0)
        start = first * step + shift
        return slice(first, last + 1), slice(start, start + step * (last - first) + 1, step)


def correlate(small: Tensor, big: Tensor, geometry: Geometry, kernel: Sequence[int]) -> Tensor:
    """Compute out[n, g, m, c, k] = sum_t small[n, g, m, t] big[n, g, c, stride t + dilation k - padding].

    Args:
        small: (N, G, M, *T).
        big: (N, G, C, *size), zero outside.
        geometry: Stride, padding, dilation.
        kernel: Sizes of k.

    Returns:
        (N, G, M, C, *kernel). Cost 2 N G M C |kernel| |T| operations; images are unfolded a few at a time into one
        buffer, because copying within the cache is cheap and memory that is new to the process is not.
    """
    count, groups, maps = small.shape[:3]
    channels, spatial = big.shape[2], small.shape[3:]
    columns, positions = channels * math.prod(kernel), math.prod(spatial)
    left = small.reshape(count * groups, maps, positions)
    out = small.new_empty(count * groups, maps, columns)
    step = max(1, _COPY // max(1, groups * columns * positions))
    buffer = small.new_empty(min(step, count), groups, channels, *kernel, *spatial)
    for start in range(0, count, step):
        stop = min(start + step, count)
        windows = buffer[: stop - start]
        windows.copy_(_windows(big[start:stop], geometry, kernel, spatial))
        rows = slice(start * groups, stop * groups)
        torch.bmm(left[rows], windows.view(-1, columns, positions).mT, out=out[rows])
    return out.view(count, groups, maps, channels, *kernel)


def _windows(big: Tensor, geometry: Geometry, kernel: Sequence[int], spatial: Sequence[int]) -> Tensor:
    """Return the image as seen from every kernel offset: a view (n, G, C, *kernel, *T) of its zero-padded copy."""
    padding: list[int] = []
    for axis, size in enumerate(big.shape[3:]):
        reach = (spatial[axis] - 1) * geometry.stride[axis] + geometry.dilation[axis] * (kernel[axis] - 1) + 1
        padding = [geometry.padding[axis], max(0, reach - size - geometry.padding[axis]), *padding]
    image = F.pad(big, padding) if any(padding) else big
    steps = image.stride()
    offset = [step * d for step, d in zip(steps[3:], geometry.dilation, strict=True)]
    position = [step * s for step, s in zip(steps[3:], geometry.stride, strict=True)]
    return image.as_strided(
        [*image.shape[:3], *kernel, *spatial], [*steps[:3], *offset, *position], image.storage_offset()
    )


def offsets(kernel: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield all kernel offsets."""
    return product(*(range(k) for k in kernel))
