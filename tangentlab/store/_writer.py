"""Writing tiles in the background, while the next one is computed."""

import queue
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

import numpy as np
import zarr

from tangentlab.store._array import write_tile
from tangentlab.store._tiles import Tile

WAITING = 1
"""Tiles that wait to be written, in addition to the one being written."""


class Writer:
    """A thread that writes tiles. An error is raised at the next tile, or on leaving.

    Args:
        array: The array to write to.
        finished: Called with each tile that is on the disk, in the writer's thread.
        allow: Called before each tile; raises an error if the tile must not be written.
    """

    def __init__(self, array: zarr.Array, finished: Callable[[Tile], None], allow: Callable[[], None]) -> None:
        self._array, self._finished, self._allow = array, finished, allow
        self._queue: queue.Queue[tuple[Tile, np.ndarray] | None] = queue.Queue(WAITING)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def put(self, tile: Tile, values: np.ndarray) -> None:
        """Queue a tile for writing; block while too many are waiting."""
        self._raise()
        self._queue.put((tile, values))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue.put(None)
        self._thread.join()
        if kind is None:
            self._raise()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            if self._error is not None:
                continue  # nothing more is written, so that the first error is the one that is raised
            try:
                self._allow()
                write_tile(self._array, *item)
                self._finished(item[0])
            except BaseException as error:
                self._error = error
