"""Integrity: comparing every tile with its checksum."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import zarr

from tangentlab._errors import TangentError
from tangentlab._progress import Ticker
from tangentlab.store._array import read_tile
from tangentlab.store._tiles import Tile, TilePlan


@dataclass(frozen=True)
class Verification:
    """The result of a verification.

    Attributes:
        checked: The number of tiles that were read.
        damaged: The tiles whose content is not what was written.
        missing: The tiles that are not computed yet.
        plan: The tiling of the kernel, to name tiles.
    """

    checked: int
    damaged: list[Tile]
    missing: list[Tile]
    plan: TilePlan

    @property
    def good(self) -> bool:
        """Whether nothing is damaged."""
        return not self.damaged

    @property
    def complete(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing

    def __str__(self) -> str:
        bad = "".join(f"\n  damaged: tile {self.plan.name(tile)}" for tile in self.damaged)
        return f"{self.checked} tiles checked, {len(self.damaged)} damaged, {len(self.missing)} missing{bad}"


def verify_tiles(
    array: zarr.Array, plan: TilePlan, tiles: Sequence[Tile], missing: list[Tile], tick: Ticker
) -> Verification:
    """Read tiles and compare them with their checksums; a NaN is damage too."""
    damaged = []
    for tile in tiles:
        try:
            if np.isnan(read_tile(array, tile)).any():
                damaged.append(tile)
        except TangentError:
            damaged.append(tile)
        tick(1)
    return Verification(len(tiles), damaged, missing, plan)
