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
_TILE = 3
"""Kernel offsets per axis for which the library has fast code where every channel is convolved by itself."""
_LANES, _POSITIONS, _WEIGHTS = 8, 64, 1 << 18
"""Where the library's code is faster for groups of several channels: multiples of 8, from 64 positions on, and for up
to 2^18 entries of a group's gradient, which it has to reorder."""
_IMAGES = 1 << 20
"""Entries of images that the library is given at a time: it copies them."""


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
        count = max(0, min(outputs, (size - 1 - shift) // step + 1) - first)
        start = first * step + shift
        return slice(first, first + count), slice(start, start + count * step, step)


def correlate(small: Tensor, big: Tensor, geometry: Geometry, kernel: Sequence[int]) -> Tensor:
    """Compute out[n, g, m, c, k] = sum_t small[n, g, m, t] big[n, g, c, stride t + dilation k - padding].

    Args:
        small: (N, G, M, *T).
        big: (N, G, C, *size), zero outside.
        geometry: Stride, padding, dilation.
        kernel: Sizes of k.

    Returns:
        (N, G, M, C, *kernel). Cost 2 N G M C |kernel| |T| operations.
    """
    if _library_is_faster(small, big, geometry, kernel):
        out = small.new_empty(*small.shape[:3], big.shape[2], *kernel)
        step = max(1, _IMAGES // (small[0].numel() + big[0].numel()))
        for i in range(0, len(out), step):
            _by_library(small[i : i + step], big[i : i + step], geometry, kernel, out[i : i + step])
        return out
    return _by_unfolding(small, big, geometry, kernel)


def _by_unfolding(small: Tensor, big: Tensor, geometry: Geometry, kernel: Sequence[int]) -> Tensor:
    """Unfold images a few at a time into one buffer: copying within the cache is cheap, new memory is not."""
    count, groups, maps = small.shape[:3]
    channels, spatial = big.shape[2], small.shape[3:]
    columns, positions = channels * math.prod(kernel), math.prod(spatial)
    left = small.reshape(count * groups, maps, positions)
    out = small.new_empty(count * groups, maps, columns)
    step = max(1, _COPY // (groups * columns * positions))
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
    image = _padded(big, geometry, kernel, spatial)
    steps = image.stride()
    offset = [step * d for step, d in zip(steps[3:], geometry.dilation, strict=True)]
    position = [step * s for step, s in zip(steps[3:], geometry.stride, strict=True)]
    return image.as_strided(
        [*image.shape[:3], *kernel, *spatial], [*steps[:3], *offset, *position], image.storage_offset()
    )


def _padded(big: Tensor, geometry: Geometry, kernel: Sequence[int], spatial: Sequence[int]) -> Tensor:
    """Return the image with as many zeros around it as T positions of the kernel reach."""
    padding: list[int] = []
    for axis, size in enumerate(big.shape[3:]):
        reach = (spatial[axis] - 1) * geometry.stride[axis] + geometry.dilation[axis] * (kernel[axis] - 1) + 1
        padding = [geometry.padding[axis], max(0, reach - size - geometry.padding[axis]), *padding]
    return F.pad(big, padding) if any(padding) else big


def _library_is_faster(small: Tensor, big: Tensor, geometry: Geometry, kernel: Sequence[int]) -> bool:
    """Return whether oneDNN, for which all images are groups of one, is faster than a product of unfolded images.

    Measured on a CPU: up to 10 times for a channel by itself (depthwise), about 2 times for multiples of 8 channels. It
    has no such code for other numbers, dilated or three-dimensional kernels, nor in double precision.
    """
    known = big.device.type == "cpu" and big.dtype == small.dtype == torch.float32 and torch.backends.mkldnn.enabled
    if not known or not torch.backends.mkldnn.is_available() or len(kernel) > 2 or max(geometry.dilation) > 1:
        return False
    maps, channels = small.shape[2], big.shape[2]
    if channels == 1:
        return small.shape[1] > 1
    if math.prod(small.shape[3:]) < _POSITIONS or maps * channels * math.prod(kernel) > _WEIGHTS:
        return False
    return maps % _LANES == channels % _LANES == 0


def _by_library(small: Tensor, big: Tensor, geometry: Geometry, kernel: Sequence[int], out: Tensor) -> None:
    """Fill ``out`` with the weight's gradient of one convolution in which each image's groups are groups of their own.

    A channel by itself is taken map by map, and some offsets of its kernel at a time: kernels of 3 x 3 are fast.
    """
    spatial, channels = small.shape[3:], big.shape[2]
    if channels > 1:
        tiles = [[(0, k)] for k in kernel]
    else:
        tiles = [[(min(i, max(0, k - _TILE)), min(k, _TILE)) for i in range(0, k, _TILE)] for k in kernel]
    sizes = zip(big.shape[3:], spatial, kernel, geometry.stride, geometry.padding, strict=True)
    whole = all(len(axis) == 1 for axis in tiles) and all((n + 2 * p - k) // s + 1 == t for n, t, k, s, p in sizes)
    padding = geometry.padding if whole else (0,) * len(kernel)
    image = big if whole else _padded(big, geometry, kernel, spatial)
    maps = [slice(None)] if channels > 1 else [slice(m, m + 1) for m in range(small.shape[2])]
    for tile in product(*tiles):
        spans = zip(tile, spatial, geometry.stride, strict=True)
        at = tuple(slice(i, i + (t - 1) * s + k) for (i, k), t, s in spans)
        seen = image if whole else image[(slice(None), slice(None), slice(None), *at)]
        to = tuple(slice(i, i + k) for i, k in tile)
        for some in maps:
            part = small[:, :, some]
            target = out[(slice(None), slice(None), some, slice(None), *to)]
            _, found, _ = torch.ops.aten.convolution_backward(
                # In memory of their own: how the library rounds depends on alignment.
                part.clone(memory_format=torch.contiguous_format).view(1, -1, *spatial),
                seen.clone(memory_format=torch.contiguous_format).view(1, -1, *seen.shape[3:]),
                *(small.new_empty(target.shape[:3].numel(), *target.shape[3:]), None),
                *(geometry.stride, padding, geometry.dilation, False, [0] * len(kernel)),
                *(part.shape[:2].numel(), [False, True, False]),
            )
            target.copy_(found.view(target.shape))


def offsets(kernel: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield all kernel offsets."""
    return product(*(range(k) for k in kernel))
