"""A worker that computes tiles from factors and writes them."""

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from enum import Enum
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab.kernels.internal import Factors, Plan, all_finite, contract, run
from tangentlab.store._array import Guard, open_array
from tangentlab.store._files import disk_errors
from tangentlab.store._inventory import Inventory
from tangentlab.store._leases import Leases
from tangentlab.store._panels import Panels
from tangentlab.store._place import Folder, PathLike, Place, as_place
from tangentlab.store._tiles import Tile, row_blocks
from tangentlab.store._writer import WAITING, Writer

TILES_IN_MEMORY = 3 + 2 * (WAITING + 1)
"""Tiles in memory at a time: the one being computed and those waiting to be written, also in encoded form."""

Finished = Callable[[Tile], None]


class _Claim(Enum):
    """Who computes a tile."""

    MINE = "this process"
    OTHERS = "another process"
    DONE = "no process: it is done"


class Worker:
    """A worker that computes tiles of one store in this process and skips those of other processes.

    Args:
        kernel_plan: How the kernel of all samples is computed.
        path: The store.
        scratch: Folder for spilled factors, or None for none.
        capacity: Panels whose factors fit into memory.
        key: That of the store that the network was recognized by.
        check: Compare a few samples with plain differentiation first.
    """

    def __init__(
        self,
        kernel_plan: Plan,
        path: PathLike | Place,
        scratch: Path | None,
        capacity: int,
        key: str,
        check: bool = True,
    ) -> None:
        self.place, self.check = as_place(path), check
        self.array, manifest = open_array(self.place, writable=True)
        self.plan, self.inventory = manifest.plan, Inventory(self.place, self.array, manifest)
        self.guard = Guard(self.place, key)
        self.guard()
        self.leases = self.factor_leases = self.place.leases()
        if scratch is not None and not isinstance(self.place, Folder):  # who shares the scratch folder shares factors
            self.factor_leases = Leases(scratch / "claims")
        self.panels = Panels(kernel_plan, self.plan, capacity, scratch, self.factor_leases)
        self.written: list[Tile] = []

    def run(
        self,
        tiles: Sequence[Tile],
        finished: Finished = lambda tile: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> list[Tile]:
        """Compute those of the given tiles that are not done.

        Args:
            tiles: The tiles.
            finished: Called with each tile that is done, by this process or another.
            stop: Called before each tile; the rest is left out if it returns True.

        Returns:
            The tiles that this process computed.
        """
        self.written = []

        def written(tile: Tile) -> None:
            self.leases.release(_lease(tile))
            self.written.append(tile)
            finished(tile)

        def attempt(kernel_plan: Plan) -> None:
            self._follow(kernel_plan)
            if self.check:
                self.panels.check()
            with Writer(self.array, written, self.guard) as writer:
                others = self._pass(tiles, writer, finished, stop)
            for tile in others:  # what others were computing is done by now, or they died
                if self.leases.wait(_lease(tile), partial(self.inventory.is_done, tile)):
                    with Writer(self.array, written, self.guard) as writer:
                        writer.put(tile, self._tile(tile))
                else:
                    finished(tile)

        with self._at_work():
            run(self.panels.kernel_plan, attempt)
            self.check = False
        return self.written

    def factorize(self, panels: Sequence[int]) -> int:
        """Put the factors of some panels into the scratch folder, unless another process does; how many were put."""

        def attempt(kernel_plan: Plan) -> int:
            self._follow(kernel_plan)
            before = self.panels.computed
            for panel in panels:
                self.panels.ensure(panel)
            return self.panels.computed - before

        with self._at_work():
            return run(self.panels.kernel_plan, attempt)[0]

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(self.place.errors())
            stack.enter_context(self.leases)
            if self.factor_leases is not self.leases:
                stack.enter_context(disk_errors(self.factor_leases.folder))
                stack.enter_context(self.factor_leases)
            yield

    def _follow(self, kernel_plan: Plan) -> None:
        """Start again with no factors if they are made in another way now (the fallback)."""
        old = self.panels
        if kernel_plan is not old.kernel_plan:
            self.panels = Panels(kernel_plan, self.plan, old.capacity, old.scratch, self.factor_leases)

    def _pass(self, tiles: Sequence[Tile], writer: Writer, finished: Finished, stop: Callable[[], bool]) -> list[Tile]:
        """Compute the tiles that are free; return those that other processes are computing."""
        others = []
        for columns in row_blocks(tiles, self.panels.capacity - 1):
            self.panels.keep(frozenset(row for _, rows in columns for row in rows))
            with closing(self._claims([(row, column) for column, rows in columns for row in rows])) as claims:
                for tile, claim in claims:
                    if stop():
                        if claim is _Claim.MINE:
                            self.leases.release(_lease(tile))
                        return []
                    if claim is _Claim.DONE:
                        finished(tile)
                    elif claim is _Claim.OTHERS:
                        others.append(tile)
                    else:
                        writer.put(tile, self._tile(tile))
        return others

    def _claims(self, tiles: Sequence[Tile]) -> Generator[tuple[Tile, _Claim], None, None]:
        """Acquire one tile after the other; in an object store, where that takes several requests, one tile ahead."""
        if isinstance(self.place, Folder):
            yield from ((tile, self._claim(tile)) for tile in tiles)
            return
        with ThreadPoolExecutor(1) as thread:
            ahead = thread.submit(self._claim, tiles[0])
            for number, tile in enumerate(tiles, 1):
                claim = ahead.result()
                if number == len(tiles):
                    yield tile, claim
                    return
                ahead = thread.submit(self._claim, tiles[number])
                try:
                    yield tile, claim
                except GeneratorExit:  # the next tile is left to others
                    if ahead.exception() is None and ahead.result() is _Claim.MINE:
                        self.leases.release(_lease(tiles[number]))
                    raise

    def _claim(self, tile: Tile) -> _Claim:
        if self.inventory.is_done(tile):
            return _Claim.DONE
        if not self.leases.take(_lease(tile)):
            return _Claim.OTHERS
        if self.inventory.is_done(tile):  # it was finished in the meantime
            self.leases.release(_lease(tile))
            return _Claim.DONE
        return _Claim.MINE

    def _tile(self, tile: Tile) -> np.ndarray:
        left = self.panels[tile[0]]
        right = left if tile[0] == tile[1] else self.panels[tile[1]]
        network = self.panels.kernel_plan.network
        out = torch.empty(self.plan.shape(tile), dtype=network.dtype, device=network.device)
        begun = self.inventory.begun(tile)
        if begun is None:
            contract(left, right, out, left is right, _silent)
        else:
            _extend(left, right, out, torch.from_numpy(begun).to(out), left is right)
        if not all_finite(out):
            raise TangentError(
                f"The kernel holds NaN or infinite values in tile {self.plan.name(tile)}.",
                "A gradient is not finite (for example of a square root at zero), or too large for the precision.",
                "Compute in dtype=torch.float64, or look for the sample with tangentlab.ntk(..., diagonal=True).",
            )
        return out.cpu().numpy()


def _extend(left: Factors, right: Factors, out: Tensor, begun: Tensor, symmetric: bool) -> None:
    """Complete a tile whose first columns (if symmetric: first rows and columns) exist."""
    width = begun.shape[1]
    old, new = slice(0, width // right.readouts), slice(width // right.readouts, right.count)
    if not symmetric:
        out[:, :width] = begun
        contract(left, right[new], out[:, width:], False, _silent)
        return
    out[:width, :width] = begun[:width]
    contract(right[old], right[new], out[:width, width:], False, _silent)
    out[width:, :width] = out[:width, width:].T
    contract(right[new], right[new], out[width:, width:], True, _silent)


def _silent(steps: float = 1, note: str | None = None) -> None:
    """Report nothing."""


def _lease(tile: Tile) -> str:
    return f"tile-{tile[0]}-{tile[1]}"
