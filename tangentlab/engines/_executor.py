"""Executing tasks in any ``concurrent.futures.Executor``."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import TypeVar

from tangentlab._errors import TangentError
from tangentlab._warnings import show_plainly, shown_plainly
from tangentlab.engines._base import Engine

T = TypeVar("T")


class Executor(Engine):
    """An engine that executes tasks in a pool of processes, threads, MPI ranks, or anything with that interface.

    The caller owns the pool: it is not shut down here. Give each process of a pool its share of the cores, for example
    by ``initializer=torch.set_num_threads, initargs=(1,)``.

    Cost: that of the tasks. A pool of processes also pickles each task and its result.

    Args:
        pool: A ``concurrent.futures.Executor``.
        workers: The number of tasks that it executes at a time; None to ask the pool.
    """

    def __init__(self, pool: futures.Executor, workers: int | None = None) -> None:
        if not isinstance(pool, futures.Executor):
            raise TangentError(f"The pool is of type {type(pool).__name__}.", "", "Pass a concurrent.futures.Executor.")
        self.pool = pool
        self.workers = workers or getattr(pool, "_max_workers", None) or 1

    def run(self, tasks: Sequence[Callable[[], T]]) -> Iterator[tuple[int, T]]:
        try:
            pending = {self.pool.submit(task): number for number, task in enumerate(tasks)}
        except RuntimeError as error:
            raise _broken(error) from error
        try:
            for done in futures.as_completed(pending):
                yield pending[done], done.result()
        except futures.BrokenExecutor as error:
            raise _broken(error) from error
        finally:
            for future in pending:
                future.cancel()

    def __repr__(self) -> str:
        return f"Executor({type(self.pool).__name__}, workers={self.workers})"


def process_pool(workers: int) -> futures.ProcessPoolExecutor:
    """Start a pool of processes that share this machine's cores and leave Ctrl-C to the process that started them.

    Cost: each process starts Python and imports PyTorch when the first tasks are submitted.
    """
    return futures.ProcessPoolExecutor(
        workers,
        multiprocessing.get_context("spawn"),
        initializer=_begin,
        initargs=(share_of_cores(workers), shown_plainly()),
    )


def share_of_cores(workers: int) -> int:
    """Return the number of threads for each of some processes on this machine."""
    return max(1, (os.cpu_count() or 1) // workers)


def _begin(threads: int, plain_warnings: bool) -> None:
    import torch

    show_plainly(plain_warnings)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)


def _broken(error: BaseException) -> TangentError:
    return TangentError(
        f"The pool cannot continue: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
        "A worker died (out of memory, killed, or it could not import what the task needs), or the pool is shut down.",
        "Rerun with a new pool to resume. A script that starts processes needs its "
        'code under if __name__ == "__main__".',
    )
