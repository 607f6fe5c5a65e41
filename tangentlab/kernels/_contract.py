"""Contracting: from factors to kernel tiles."""

from collections.abc import Iterator
from functools import partial

from torch import Tensor

from tangentlab._progress import Ticker
from tangentlab.kernels._calibration import rates
from tangentlab.kernels._cost import PANEL_ROWS, PANELS, expanding_is_cheaper
from tangentlab.kernels.factors import Factors, Total
from tangentlab.kernels.factors._total import Workspace, add_wide_product

TILE = 1 << 20
"""Entries of a tile: its intermediates stay in a CPU's cache, and its products are large enough to be fast."""
_ROWS = (PANEL_ROWS, 512)
"""Rows of a tile, at least and at most."""
_PANELS = PANELS
EXPANDED = 1 << 22
"""Entries of gradients that are written out at a time."""
_OUTPUTS = 64
"""Outputs whose gradients are written out together even if they have more entries; fewer make products slow."""
_MOST = 16
"""How many times ``EXPANDED`` entries that may be at most."""
EXPANDED_ROWS = 4096
"""Rows of gradients that are written out together; more rows do not make products faster."""


def tile_shape(count: int, readouts: int, symmetric: bool = True, product_rows: int = 1) -> tuple[int, int]:
    """Return the rows and columns of a tile, in samples: a wide tile, because its matrix products are faster.

    Where a sample is many rows of these products, fewer samples make a tile of a symmetric kernel.
    """
    least, most = _ROWS
    rows = min(most, max(-(-least // product_rows), count * readouts // _PANELS)) if symmetric else most
    return max(1, rows // readouts), max(1, max(rows, TILE // rows) // readouts)


def ranges(start: int, stop: int, size: int) -> Iterator[slice]:
    """Yield a range cut into pieces."""
    return (slice(i, min(i + size, stop)) for i in range(start, stop, size))


def contract(left: Factors, right: Factors, out: Tensor, symmetric: bool, tick: Ticker) -> None:
    """Fill ``out`` (n1 R, n2 R) with the kernel of two sets of samples; see :func:`add_contracted`."""
    out.zero_()
    add_contracted(left, right, out, symmetric, tick)


def add_contracted(left: Factors, right: Factors, out: Tensor, symmetric: bool, tick: Ticker) -> None:
    """Add the kernel of two sets of samples to ``out`` (n1 R, n2 R).

    Factors whose gradients are written out late come first, each for all samples at once; the others tile by tile,
    those with pairs of positions in tiles of their own.

    Args:
        left: Factors of n1 samples.
        right: Factors of n2 samples; the same samples if ``symmetric``.
        out: Where the kernel goes; may be a strided view.
        symmetric: Compute one triangle and mirror it, so that the result is symmetric to the last bit, as ``out`` is.
        tick: Told the number of sample pairs done.
    """
    own = rates(out.device, out.dtype)
    late = {key for key, part in left.parts.items() if expanding_is_cheaper(part, right.count, symmetric, own)}
    if late:
        _add_expanded(left.only(late), right.only(late), out, symmetric)
    rest = {key: part.product_rows > 1 for key, part in left.parts.items() if key not in late}
    kinds = set(rest.values())
    for kind in sorted(kinds):
        keys = {key for key in rest if rest[key] == kind}
        _add_tiles(left.only(keys), right.only(keys), out, symmetric, partial(_share, tick, len(kinds)))
    if not rest:
        tick(left.count * right.count)


def _share(tick: Ticker, parts: int, pairs: float) -> None:
    tick(pairs / parts)


def _add_expanded(left: Factors, right: Factors, out: Tensor, symmetric: bool) -> None:
    """Add J1 J2^T, some columns of J1 and J2 written out for many samples at once."""
    height, readouts = max(1, EXPANDED_ROWS // left.readouts), left.readouts
    for i in ranges(0, left.count, height):
        for j in ranges(i.start if symmetric else 0, right.count, height):
            same = symmetric and i == j
            block = out[i.start * readouts : i.stop * readouts, j.start * readouts : j.stop * readouts]
            one = left[i]
            _expand_block(one, one if same else right[j], block, same)
            if symmetric and not same:
                out[j.start * readouts : j.stop * readouts, i.start * readouts : i.stop * readouts] = block.T


def _expand_block(left: Factors, right: Factors, out: Tensor, symmetric: bool) -> None:
    """Add J1 J2^T of a block, of a symmetric one by panels of its upper triangle, which is mirrored."""
    rows, columns = out.shape
    height = max(_ROWS[0], -(-rows // _PANELS)) if symmetric else rows
    panels = list(ranges(0, rows, height))
    rooms = Workspace(), Workspace()
    totals = [Total(out[panel, panel.start if symmetric else 0 :]) for panel in panels]
    for key, part in left.parts.items():
        width = part.row_size * (rows if symmetric else rows + columns)
        step = max(1, EXPANDED // width, min(_OUTPUTS, _MOST * EXPANDED // width))
        others = right.parts[key].cast(out.dtype).columns(step, rooms[1]) if not symmetric else None
        for one in part.cast(out.dtype).columns(step, rooms[0]):
            two = one if others is None else next(others)
            for panel, total in zip(panels, totals, strict=True):
                add_wide_product(total, one[panel], two[panel.start if symmetric else 0 :])
    for panel, total in zip(panels, totals, strict=True):
        total.finish()
        if symmetric:
            corner = out[panel, panel]
            corner.copy_((corner + corner.T) / 2)
            out[panel.stop :, panel] = out[panel, panel.stop :].T


def _add_tiles(left: Factors, right: Factors, out: Tensor, symmetric: bool, tick: Ticker) -> None:
    """Add the kernel tile by tile, and mirror the upper triangle of a symmetric one."""
    readouts = left.readouts
    product_rows = min(part.product_rows for part in left.parts.values())
    height, width = tile_shape(left.count, readouts, symmetric, product_rows)

    def entries(samples: slice) -> slice:
        return slice(samples.start * readouts, samples.stop * readouts)

    for i in ranges(0, left.count, height):
        one = left[i].cast(out.dtype)
        for j in ranges(i.start if symmetric else 0, right.count, width):
            one.add_gram(right[j].cast(out.dtype), out[entries(i), entries(j)])
            pairs = one.count * (j.stop - j.start)
            if symmetric:
                inside = slice(j.start, min(max(i.stop, j.start), j.stop))  # columns that are also rows of this panel
                corner = out[entries(inside), entries(inside)]
                corner.copy_((corner + corner.T) / 2)
                beyond = slice(inside.stop, j.stop)
                out[entries(beyond), entries(i)] = out[entries(i), entries(beyond)].T
                pairs += one.count * (beyond.stop - beyond.start)
            tick(pairs)
