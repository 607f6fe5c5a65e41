"""Contracting: from factors to kernel tiles."""

from collections.abc import Iterator

from torch import Tensor

from tangentlab._progress import Ticker
from tangentlab.kernels.factorize import Factors

TILE = 1024
"""Rows of a tile: the intermediates of a tile stay in a CPU's cache, and its products are large enough to be fast."""
_SIDES = 6
"""Tiles a side that a symmetric kernel is cut into at least, so that skipping a triangle pays."""


def tile_rows(count: int, readouts: int, symmetric: bool) -> int:
    """Samples a tile."""
    rows = TILE
    if symmetric:
        rows = min(rows, max(256, -(-count * readouts // _SIDES)))
    return max(1, rows // readouts)


def tile_ranges(count: int, rows: int) -> Iterator[slice]:
    """The samples of each tile, of nearly equal size."""
    tiles = -(-count // rows)
    for i in range(tiles):
        yield slice(count * i // tiles, count * (i + 1) // tiles)


def contract(left: Factors, right: Factors, out: Tensor, symmetric: bool, tick: Ticker) -> None:
    """Fill ``out`` (n1 R, n2 R) with the kernel of two sets of samples, tile by tile.

    Args:
        left: Factors of n1 samples.
        right: Factors of n2 samples; the same object if ``symmetric``.
        out: Where the kernel goes; may be a strided view.
        symmetric: Compute one triangle and mirror it, so that the result is symmetric to the last bit.
        tick: Told the number of sample pairs done.
    """
    readouts = left.readouts
    rows = tile_rows(max(left.count, right.count), readouts, symmetric)
    for i in tile_ranges(left.count, rows):
        one = left[i]
        for j in tile_ranges(right.count, rows):
            if symmetric and j.start < i.start:
                continue
            two = right[j]
            block = out[i.start * readouts : i.stop * readouts, j.start * readouts : j.stop * readouts]
            block.zero_()
            one.add_gram(two, block)
            pairs = one.count * two.count
            if symmetric and i == j:
                block.copy_((block + block.T) / 2)
            elif symmetric:
                out[j.start * readouts : j.stop * readouts, i.start * readouts : i.stop * readouts] = block.T
                pairs *= 2
            tick(pairs)
