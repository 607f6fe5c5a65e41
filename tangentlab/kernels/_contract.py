"""Contracting: from factors to kernel tiles."""

from collections.abc import Iterator

from torch import Tensor

from tangentlab._progress import Ticker
from tangentlab.kernels.factors import Factors

TILE = 1 << 20
"""Entries of a tile: its intermediates stay in a CPU's cache, and its products are large enough to be fast."""
_ROWS = (128, 512)
"""Rows of a tile, at least and at most."""
_PANELS = 10
"""Panels of rows that a small symmetric kernel is cut into, so that skipping a triangle pays."""


def tile_shape(count: int, readouts: int, symmetric: bool = True) -> tuple[int, int]:
    """Rows and columns of a tile, in samples: wide tiles, because matrix products like them."""
    least, most = _ROWS
    rows = min(most, max(least, count * readouts // _PANELS)) if symmetric else most
    return max(1, rows // readouts), max(1, max(rows, TILE // rows) // readouts)


def ranges(start: int, stop: int, size: int) -> Iterator[slice]:
    """A range cut into pieces."""
    return (slice(i, min(i + size, stop)) for i in range(start, stop, size))


def contract(left: Factors, right: Factors, out: Tensor, symmetric: bool, tick: Ticker) -> None:
    """Fill ``out`` (n1 R, n2 R) with the kernel of two sets of samples, tile by tile.

    Args:
        left: Factors of n1 samples.
        right: Factors of n2 samples; the same samples if ``symmetric``.
        out: Where the kernel goes; may be a strided view.
        symmetric: Compute one triangle and mirror it, so that the result is symmetric to the last bit.
        tick: Told the number of sample pairs done.
    """
    readouts = left.readouts
    height, width = tile_shape(left.count, readouts, symmetric)

    def entries(samples: slice) -> slice:
        return slice(samples.start * readouts, samples.stop * readouts)

    for i in ranges(0, left.count, height):
        one = left[i]
        for j in ranges(i.start if symmetric else 0, right.count, width):
            block = out[entries(i), entries(j)]
            block.zero_()
            one.add_gram(right[j], block)
            pairs = one.count * (j.stop - j.start)
            if symmetric:
                inside = slice(j.start, min(max(i.stop, j.start), j.stop))  # columns that are also rows of this panel
                corner = out[entries(inside), entries(inside)]
                corner.copy_((corner + corner.T) / 2)
                beyond = slice(inside.stop, j.stop)
                out[entries(beyond), entries(i)] = out[entries(i), entries(beyond)].T
                pairs += one.count * (beyond.stop - beyond.start)
            tick(pairs)
