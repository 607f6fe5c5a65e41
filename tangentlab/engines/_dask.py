"""Executing tasks in a Dask cluster."""

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self, TypeVar

from tangentlab._errors import TangentError
from tangentlab.engines._allocator import keep_freed_memory
from tangentlab.engines._base import Engine
from tangentlab.engines._executor import share_of_cores

T = TypeVar("T")
_RETRIES = 3
_PATIENCE = "30s"
_SPAWN = "distributed.nanny.pre-spawn-environ"


class Dask(Engine):
    """An engine that executes tasks with Dask distributed; the extra ``tangentlab[dask]`` installs it.

    The scheduler gives a task of a worker that dies to another worker. Use the engine as a context manager, or call
    :meth:`close`, if it starts processes of its own.

    Args:
        cluster: The address of a scheduler ("tcp://host:8786"), a ``distributed.Client``, or a number of processes
            to start on this machine, which share its cores; None for one process per core.
    """

    def __init__(self, cluster: Any = None) -> None:
        try:
            distributed = importlib.import_module("distributed")
        except ImportError as error:
            raise TangentError(
                "Dask is not installed.",
                "The engine Dask needs the package distributed.",
                "Run pip install 'tangentlab[dask]', or use a process pool or shards, which need no package.",
            ) from error
        self._mine: list[Any] = []
        if isinstance(cluster, distributed.Client):
            self.client = cluster
        elif isinstance(cluster, str):
            try:
                self.client = distributed.Client(cluster, timeout=_PATIENCE, set_as_default=False)
            except (OSError, ValueError, TimeoutError) as error:
                raise TangentError(
                    f"There is no Dask scheduler at {cluster!r}.",
                    str(error).splitlines()[0] if str(error) else type(error).__name__,
                    "Start one with 'dask scheduler' and pass the address it prints, such as tcp://host:8786.",
                ) from error
            self._mine = [self.client]
        elif cluster is None or (isinstance(cluster, int) and not isinstance(cluster, bool) and cluster > 0):
            workers = cluster or os.cpu_count() or 1
            # Unless the environment sets the number, Dask gives each process one thread, however many cores there are.
            # PyTorch uses MKL's number.
            threads = os.environ.get("OMP_NUM_THREADS") or share_of_cores(workers)
            with importlib.import_module("dask").config.set(
                {f"{_SPAWN}.{name}": threads for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
            ):
                # Dask does not limit the workers' memory: the memory budget does, and a worker that Dask kills for
                # a peak would only be restarted.
                # Other machines must not reach the cluster or its dashboard: workers run whatever they are sent.
                local = distributed.LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    processes=True,
                    memory_limit=None,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                    worker_dashboard_address="127.0.0.1:0",
                )
            self.client = distributed.Client(local, set_as_default=False)
            self._mine = [self.client, local]
        else:
            raise TangentError(
                f"The Dask cluster is {cluster!r}.",
                "",
                "Pass an address, a distributed.Client, or a number of workers.",
            )

    @property
    def workers(self) -> int:  # type: ignore[override]
        """The number of present workers; if there is none, one is waited for."""
        if not self.client.scheduler_info(n_workers=-1)["workers"]:
            self.client.wait_for_workers(1)
        return len(self.client.scheduler_info(n_workers=-1)["workers"])

    def run(self, tasks: Sequence[Callable[[], T]]) -> Iterator[tuple[int, T]]:
        distributed = importlib.import_module("distributed")
        pending = {
            self.client.submit(_execute, task, pure=False, retries=_RETRIES): number
            for number, task in enumerate(tasks)
        }
        try:
            for done in distributed.as_completed(list(pending), loop=self.client.loop):
                try:
                    result = done.result()
                except distributed.KilledWorker as error:
                    raise TangentError(
                        "A task of the cluster lost its worker several times.",
                        "The workers probably run out of memory.",
                        "Lower the memory budget or the number of workers, then rerun to resume.",
                    ) from error
                yield pending[done], result
        finally:
            self.client.cancel([future for future in pending if not future.done()])

    def close(self) -> None:
        """Close what this engine started."""
        for part in self._mine:
            part.close()
        self._mine = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Dask({self.client.scheduler.address if self.client.scheduler else 'closed'})"


def _execute(task: Callable[[], T]) -> T:
    """Execute a task in a worker."""
    keep_freed_memory()
    return task()
