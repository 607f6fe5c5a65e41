"""The tiles that are done: those whose chunk exists."""

import numpy as np
import zarr

from tangentlab.store._array import chunk_name, present, read_tile
from tangentlab.store._manifest import Manifest
from tangentlab.store._place import Place
from tangentlab.store._tiles import Tile


class Inventory:
    """The state of a store.

    A tile whose chunk exists is done, with one exception: appending enlarges a last panel that was not full. A tile in
    its column is done when no NaN is left at its right edge.

    Args:
        place: The store.
        array: Its array.
        manifest: Its manifest.
    """

    def __init__(self, place: Place, array: zarr.Array, manifest: Manifest) -> None:
        self.place, self.array, self.plan = place, array, manifest.plan
        stops = [segment.stop for segment in manifest.samples[:-1]]
        self._torn = {stop // manifest.tile for stop in stops if stop % manifest.tile}

    def missing(self) -> list[Tile]:
        """List the tiles that remain to be computed."""
        there = present(self.place)
        return [t for t in self.plan.tiles() if t not in there or (t[1] in self._torn and not self.is_done(t))]

    def is_done(self, tile: Tile) -> bool:
        """Return whether a tile is done."""
        if self.place.stat(chunk_name(tile)) is None:
            return False
        return tile[1] not in self._torn or not np.isnan(read_tile(self.array, tile)[0, -1])

    def begun(self, tile: Tile) -> np.ndarray | None:
        """Read the existing columns of a tile whose panel has grown since, or return None."""
        if tile[1] not in self._torn or self.place.stat(chunk_name(tile)) is None:
            return None
        values = read_tile(self.array, tile)
        return values[:, ~np.isnan(values[0])]
