"""Tiles as tasks for other processes."""

import importlib
import pickle
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tangentlab._errors import TangentError
from tangentlab._progress import Ticker
from tangentlab.engines import Engine
from tangentlab.store._array import open_array
from tangentlab.store._files import PRIVATE, process_name, written_whole
from tangentlab.store._setup import Request, capacity
from tangentlab.store._tiles import Tile, TilePlan
from tangentlab.store._worker import Worker

_lock = threading.Lock()
_current: tuple[Path, Worker] | None = None
"""The worker that this process has for the latest job, so that model, data and factors outlive a task."""


@dataclass(frozen=True)
class Task:
    """Some panels to factorise, or some tiles to compute.

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
        try:
            content = job.read_bytes()
        except FileNotFoundError as error:
            raise TangentError(
                f"{job} is not there.",
                "workers find model and data in the store, so all must see the same folder.",
                "put the store on a file system that all machines share.",
            ) from error
        try:
            request, path, folder, check = pickle.loads(content)
        except (ImportError, AttributeError) as error:
            raise TangentError(
                f"a worker cannot load the model or the data: {error}",
                "it must be able to import the classes that they are made of.",
                "put them into a module that workers can import (PYTHONPATH), not into the script itself.",
            ) from error
        plan = open_array(path)[1].plan
        engine = request.engine(plan.batch)
        _current = job, Worker(engine, path, folder, capacity(engine, plan), check)
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
    with written_whole(job, durable=False) as file:
        file.write(_dumps((request, path, None if folder is None else folder.resolve(), check)))
    try:
        if folder is not None:
            needed = sorted({panel for group in groups for tile in group for panel in tile})
            for _ in places.run([Task(job, "factors", (panel,)) for panel in needed]):
                tick(0)
        for number, _ in places.run([Task(job, "tiles", tuple(group)) for group in groups]):
            tick(sum(map(plan.entries, groups[number])))
    finally:
        job.unlink(missing_ok=True)


def _dumps(content: Any) -> bytes:
    """Pickled, where possible with functions and classes of a script or notebook."""
    try:
        pickler = importlib.import_module("cloudpickle")
    except ImportError:
        pickler = pickle
    try:
        return pickler.dumps(content)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TangentError(
            f"the model or the data cannot be sent to other processes: {str(error).splitlines()[0]}",
            "they are pickled.",
            "define classes and functions at the top of a module, or compute in this process (engine=None) or in "
            "shards (engines.Shard).",
        ) from error
