"""The tiling of a kernel."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Tile = tuple[int, int]
"""Row panel and column panel of a tile of the upper triangle, row <= column."""

MOST_TILES = 1_000_000
"""The largest number of tiles: with the default tile 2.9 million samples, 16 TB in single precision."""

DEFAULT_TILE = 2048
"""Rows per tile unless memory is short: 16 MiB in single precision."""


@dataclass(frozen=True)
class TilePlan:
    """A tiling of N samples with R readouts each into panels of ``tile`` samples; the last panel may be shorter.

    The kernel is the (N R, N R) matrix whose rows run over samples, then over readouts. A tile is a pair of panels;
    those with row <= column are stored, each as one chunk.

    Attributes:
        samples: N.
        readouts: R.
        tile: Samples per panel.
        batch: Samples per forward pass. It is part of the plan because rounding may depend on it; every panel starts
            a new batch.
    """

    samples: int
    readouts: int
    tile: int
    batch: int

    @property
    def size(self) -> int:
        """The number of rows of the kernel, N R."""
        return self.samples * self.readouts

    @property
    def side(self) -> int:
        """The number of rows of a full tile."""
        return self.tile * self.readouts

    @property
    def panels(self) -> int:
        """The number of panels."""
        return -(-self.samples // self.tile)

    def panel(self, index: int) -> range:
        """Return the samples of a panel."""
        return range(index * self.tile, min((index + 1) * self.tile, self.samples))

    def rows(self, index: int) -> slice:
        """Return the rows of the kernel that belong to a panel."""
        samples = self.panel(index)
        return slice(samples.start * self.readouts, samples.stop * self.readouts)

    def tiles(self) -> Iterator[Tile]:
        """List all stored tiles."""
        return ((i, j) for i in range(self.panels) for j in range(i, self.panels))

    @property
    def count(self) -> int:
        """The number of stored tiles."""
        return self.panels * (self.panels + 1) // 2

    def shape(self, tile: Tile) -> tuple[int, int]:
        """Return the numbers of rows and columns of a tile."""
        row, column = (len(self.panel(index)) * self.readouts for index in tile)
        return row, column

    def entries(self, tile: Tile) -> int:
        """Count the entries of a tile that are computed: one triangle of a tile on the diagonal."""
        row, column = self.shape(tile)
        return row * (row + 1) // 2 if tile[0] == tile[1] else row * column

    def name(self, tile: Tile) -> str:
        """Describe a tile in words."""
        row, column = (self.rows(index) for index in tile)
        return f"{tile[0]}/{tile[1]} (rows {row.start} to {row.stop - 1}, columns {column.start} to {column.stop - 1})"


def row_blocks(tiles: Sequence[Tile], rows: int) -> Iterator[list[tuple[int, list[int]]]]:
    """Order tiles so that few panels are read: blocks of rows stay in memory, columns pass once per block.

    Args:
        tiles: Any tiles.
        rows: The number of row panels that stay in memory.

    Yields:
        The columns of each block, each with its rows. Long columns come first, so that processes that share a block
        finish at about the same time.
    """
    wanted = sorted({row for row, _ in tiles})
    for start in range(0, len(wanted), max(1, rows)):
        block = set(wanted[start : start + max(1, rows)])
        columns: dict[int, list[int]] = {}
        for row, column in sorted(tiles):
            if row in block:
                columns.setdefault(column, []).append(row)
        yield sorted(columns.items(), reverse=True)


def units(plan: TilePlan, workers: int) -> list[list[Tile]]:
    """Group all tiles into square blocks, enough of them that workers of unequal speed finish together.

    There are no more blocks than that, because within a block a tile is written while the next one is computed. The
    smaller blocks, on the diagonal and at the edge, come last, when workers wait for each other.

    The list depends only on its arguments: processes that share the work by number all make the same list.
    """
    block = max(1, round(plan.panels / (10 * workers) ** 0.5))
    groups: dict[tuple[int, int], list[Tile]] = {}
    for row, column in plan.tiles():
        groups.setdefault((row // block, column // block), []).append((row, column))
    return sorted(groups.values(), key=lambda group: -sum(map(plan.entries, group)))
