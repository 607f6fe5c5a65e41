"""Tiles as tasks for other processes."""

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
from tangentlab.store._job import read_job, write_job
from tangentlab.store._setup import Request, capacity, recognize
from tangentlab.store._tiles import Tile, TilePlan
from tangentlab.store._worker import Worker

_lock = threading.Lock()
_current: tuple[Path, Worker] | None = None
"""The worker that this process has for the latest job, so that model, data and factors outlive a task."""


@dataclass(frozen=True)
class WorkerTask:
    """Some panels to factorize, or some tiles to compute.

    Model and data lie in a file in the store, which all processes see, so a task itself is a few bytes. When that
    file is gone, the one who started the tasks is too, and they stop after the tile they are at.

    Attributes:
        job: That file.
        kind: What to do.
        items: Panels or tiles.
    """

    job: Path
    kind: Literal["factors", "tiles"]
    items: tuple[Any, ...]

    def __call__(self) -> int:
        with _lock:  # one task a process at a time: PyTorch uses the cores by itself
            worker = _worker(self.job)
            if self.kind == "factors":
                worker.factorize(self.items)
            else:
                worker.run(self.items, stop=lambda: not self.job.exists())
        return len(self.items)


def _worker(job: Path) -> Worker:
    global _current
    if _current is None or _current[0] != job:
        _current = None
        request, path, folder, check = read_job(job)
        manifest = open_array(path)[1]
        engine = recognize(request, manifest, path)  # this process may have another file of the model's class
        _current = job, Worker(engine, path, folder, capacity(engine, manifest.plan), manifest.key, check)
    return _current[1]


def run_tasks(
    places: Engine,
    request: Request,
    path: Path,
    folder: Path | None,
    groups: Sequence[Sequence[Tile]],
    plan: TilePlan,
    check: bool,
    tick: Ticker,
) -> None:
    """Compute tiles in other processes.

    Args:
        places: Where.
        request: What kernel.
        path: The store.
        folder: For factors that processes share, or None.
        groups: Tiles, one group a task.
        plan: How the kernel is cut.
        check: Compare a few samples with plain differentiation first.
        tick: Told the entries done.
    """
    path = path.resolve()
    job = path / PRIVATE / f"{process_name()}.job"
    write_job(job, (request, path, None if folder is None else folder.resolve(), check))
    try:
        if folder is not None:
            needed = sorted({panel for group in groups for tile in group for panel in tile})
            for _ in places.run([WorkerTask(job, "factors", (panel,)) for panel in needed]):
                tick(0)
        for number, _ in places.run([WorkerTask(job, "tiles", tuple(group)) for group in groups]):
            tick(sum(map(plan.entries, groups[number])))
    finally:
        job.unlink(missing_ok=True)
