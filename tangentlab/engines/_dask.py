"""Executing tasks in a Dask cluster."""

import importlib
import logging
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any, Self, TypeVar

from tangentlab._errors import TangentError
from tangentlab._extras import require
from tangentlab.engines._allocator import keep_freed_memory
from tangentlab.engines._base import Engine
from tangentlab.engines._executor import share_of_cores
from tangentlab.engines._resources import Resources

T = TypeVar("T")
_RETRIES = 3
_PATIENCE = "30s"
_SPAWN = "distributed.nanny.pre-spawn-environ"


class Dask(Engine):
    """An engine that executes tasks with Dask distributed; the extra ``tangentlab[dask]`` installs it.

    The scheduler gives a task of a worker that dies to another worker. Use the engine as a context manager, or call
    :meth:`close`, if it starts processes of its own.

    Cost: that of the tasks. Each task and its result are pickled and sent through the scheduler. Processes that the
    engine starts import PyTorch first.

    Args:
        cluster: The address of a scheduler ("tcp://host:8786"), a ``distributed.Client``, a cluster such as
            dask-jobqueue's ``SLURMCluster`` or dask-cuda's ``LocalCUDACluster``, or a number of processes to start on
            this machine, which share its cores; None for one process per core.
    """

    def __init__(self, cluster: Any = None) -> None:
        distributed = require(
            "distributed", "Dask", "dask", "The engine Dask needs the package distributed.",
            ", or use a process pool or shards, which need no package",
        )  # fmt: skip
        self._mine: list[Any] = []
        if isinstance(cluster, distributed.Client):
            self.client = cluster
        elif isinstance(cluster, distributed.deploy.Cluster):
            self.client = distributed.Client(cluster, set_as_default=False)
            self._mine = [self.client]
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
            spawn = {f"{_SPAWN}.{name}": threads for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
            with importlib.import_module("dask").config.set(spawn), _leaving_interrupts():
                # Dask does not limit the workers' memory: the memory budget does, and a worker that Dask kills for
                # a peak would only be restarted.
                # Other machines must not reach the cluster or its dashboard: workers run whatever they are sent.
                local = distributed.LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    processes=True,
                    memory_limit=None,
                    silence_logs=logging.ERROR,  # Dask warns of every task that Ctrl-C cancels
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
                "Pass an address, a distributed.Client, a Dask cluster, or a number of workers.",
            )

    @classmethod
    def on_slurm(cls, workers: int, resources: Resources, **settings: Any) -> "Dask":
        """Start Dask workers as jobs of Slurm, with dask-jobqueue; closing the engine cancels them.

        Args:
            workers: The number of jobs, each of which is one worker that executes one task at a time.
            resources: What each job requests; ``store.estimate(...).resources(cpus)`` returns it for a kernel.
            settings: Further arguments of ``dask_jobqueue.SLURMCluster``, for instance ``queue="long"``.

        Raises:
            TangentError: dask-jobqueue is not installed.
        """
        jobqueue = require(
            "dask_jobqueue", "The package dask-jobqueue", "slurm", "It submits Dask workers to Slurm.",
            ", or 'tangentlab kernel submit --slurm', which needs no package",
        )  # fmt: skip
        threads = f"export OMP_NUM_THREADS={resources.cpus} MKL_NUM_THREADS={resources.cpus}"
        cluster = jobqueue.SLURMCluster(
            **{
                # Dask counts one core, so that a worker executes one task at a time, which uses all of its threads.
                "cores": 1,
                "job_cpu": resources.cpus,
                "processes": 1,
                "memory": f"{resources.memory}B",
                "job_mem": f"{resources.mebibytes}M",
                "walltime": resources.time,
                "job_script_prologue": [threads],
            }
            | settings
        )
        cluster.scale(jobs=workers)
        engine = cls(cluster)
        engine._mine.append(cluster)
        return engine

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
                    raise _lost("Lower the memory budget or the number of workers, then rerun to resume.") from error
                yield pending[done], result
        finally:
            self.client.cancel([future for future in pending if not future.done()])

    # Tasks that use the results of others, which stay in the memory of workers

    @property
    def addresses(self) -> list[str]:
        """The addresses of the present workers; if there is none, one is waited for."""
        return sorted(self.client.scheduler_info(n_workers=-1)["workers"]) if self.workers else []

    def submit(
        self, function: Callable[..., Any], *arguments: Any, priority: int = 0, worker: str | None = None
    ) -> Any:
        """Start a task in the cluster.

        Args:
            function: A pure function that can be pickled.
            arguments: Its arguments: values, results of :meth:`submit` and :meth:`send`, or lists of them.
            priority: Tasks of higher priority run first.
            worker: The address of the worker that is to run it, as long as there is this worker.

        Returns:
            A ``distributed.Future``; what nothing refers to any longer is removed from the workers' memory.
        """
        where = {} if worker is None else {"workers": [worker], "allow_other_workers": True}
        return self.client.submit(_call, function, *arguments, pure=False, priority=priority, **where)

    def send(self, values: Sequence[Any]) -> list[Any]:
        """Put values into the cluster, of some megabytes each.

        They take the way of tasks, by the scheduler, which sends them again if a worker is lost. What Dask scatters is
        gone with its worker.
        """
        return [self.submit(_same, value) for value in values]

    def wait(self, futures: Sequence[Any]) -> None:
        """Wait for results, and leave them where they are; raises the error of one that failed."""
        distributed = importlib.import_module("distributed")
        for future in distributed.as_completed(list(futures), loop=self.client.loop):
            if future.status != "finished":
                self.gather([future])

    def gather(self, futures: Sequence[Any]) -> list[Any]:
        """Wait for results and bring them to this process.

        Raises:
            TangentError: A task lost its worker several times.
        """
        distributed = importlib.import_module("distributed")
        try:
            return self.client.gather(list(futures))
        except distributed.KilledWorker as error:
            raise _lost("Start more workers, or workers with more memory.") from error

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


def _lost(remedy: str) -> TangentError:
    return TangentError(
        "A task of the cluster lost its worker several times.", "The workers probably run out of memory.", remedy
    )


@contextmanager
def _leaving_interrupts() -> Iterator[None]:
    """Let Ctrl-C reach this process alone: workers that are started here, or restarted later, do not get it.

    A terminal sends it to all processes, and each would print a traceback. Blocked signals are inherited by the thread
    that Dask starts here, and by the processes that this thread starts. One that arrives meanwhile is delivered
    afterward.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # the first process that multiprocessing starts; starting it unblocks the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _call(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function in a worker."""
    keep_freed_memory()
    return function(*arguments)


def _same(value: T) -> T:
    """Return what was sent."""
    return value


def _execute(task: Callable[[], T]) -> T:
    """Execute a task in a worker."""
    keep_freed_memory()
    return task()
