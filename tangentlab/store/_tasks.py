"""Tasks for other processes."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tangentlab._files import process_name
from tangentlab._progress import Ticker
from tangentlab.engines import Engine
from tangentlab.store._array import open_array
from tangentlab.store._files import PRIVATE
from tangentlab.store._job import JobFile
from tangentlab.store._place import Folder, Place, as_place, remove_quietly
from tangentlab.store._setup import Request, capacity, recognize
from tangentlab.store._tiles import Tile, TilePlan
from tangentlab.store._worker import Worker

_lock = threading.Lock()
_current: tuple[JobFile, Worker] | None = None
"""The worker of the latest job in this process, so that model, data and factors are kept between tasks."""


@dataclass(frozen=True)
class WorkerTask:
    """Some panels to factorize, or some tiles to compute.

    Model and data are in a file in the store, which all processes see, so a task itself is a few bytes. If that file
    is gone, the process that started the tasks has ended, and they stop after the current tile.

    Attributes:
        job: That file.
        kind: Whether to make factors of panels or to compute tiles.
        items: The panels or tiles.
    """

    job: JobFile
    kind: Literal["factors", "tiles"]
    items: tuple[Any, ...]

    def __call__(self) -> int:
        with _lock:  # one task per process at a time: PyTorch itself uses all cores
            worker = _worker(self.job)
            if self.kind == "factors":
                worker.factorize(self.items)
            else:
                worker.run(self.items, stop=self.job.is_gone)
        return len(self.items)


def _worker(job: JobFile) -> Worker:
    global _current
    if _current is None or _current[0] != job:
        _current = None
        request, folder, check = job.read()
        place = as_place(job.path)
        manifest = open_array(place)[1]
        kernel_plan = recognize(
            request, manifest, place
        )  # this process may import another version of the model's class
        _current = job, Worker(kernel_plan, place, folder, capacity(kernel_plan, manifest.plan), manifest.key, check)
    return _current[1]


def run_tasks(
    places: Engine,
    request: Request,
    place: Place,
    folder: Path | None,
    groups: Sequence[Sequence[Tile]],
    plan: TilePlan,
    check: bool,
    tick: Ticker,
) -> None:
    """Compute tiles in other processes.

    Args:
        places: The engine that executes the tasks.
        request: The requested kernel.
        place: The store.
        folder: A folder for factors that processes share, or None.
        groups: Tiles, one group per task.
        plan: The tiling of the kernel.
        check: Whether to compare a few samples with plain differentiation first.
        tick: Receives the number of computed entries.
    """
    where = place.where.resolve() if isinstance(place, Folder) else place.where
    job = JobFile(where, f"{PRIVATE}/{process_name()}.job")
    job.write((request, None if folder is None else folder.resolve(), check))
    try:
        if folder is not None:
            needed = sorted({panel for group in groups for tile in group for panel in tile})
            for _ in places.run([WorkerTask(job, "factors", (panel,)) for panel in needed]):
                tick(0)
        for number, _ in places.run([WorkerTask(job, "tiles", tuple(group)) for group in groups]):
            tick(sum(map(plan.entries, groups[number])))
    finally:
        remove_quietly(place, job.name)
