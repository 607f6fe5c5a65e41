"""The processes that compute units of work: this one, started ones, or those of an executor of the caller."""

import os
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context

from tangentlab._errors import TangentError
from tangentlab._warnings import show_plainly, shown_plainly


class Workers:
    """An executor for units of work, shared by the contexts of several runs.

    Processes are started when the first unit is submitted. An executor of the caller is never shut down.

    Args:
        count: Processes to start; 1 for none beside this one.
        executor: Any ``concurrent.futures`` executor whose workers see the same folders, instead of processes.
    """

    def __init__(self, count: int = 1, executor: Executor | None = None) -> None:
        if count < 1:
            raise TangentError(f"workers={count} is not a number of processes.", remedy="Use 1 or more.")
        self.count = count
        self._given = executor
        self._own: Executor | None = None

    @property
    def threads(self) -> int:
        """The number of PyTorch threads per process, so that all processes together use the cores; 0 for no change."""
        return 0 if self._given is not None else max(1, (os.cpu_count() or 1) // self.count)

    def executor(self, units: int) -> Executor | None:
        """Return the executor for this many independent units; None for this process."""
        if self._given is not None:
            return self._given
        if self.count == 1 or units < 2:
            return None
        if self._own is None:
            self._own = ProcessPoolExecutor(
                self.count, mp_context=get_context("spawn"), initializer=show_plainly, initargs=(shown_plainly(),)
            )
        return self._own

    def close(self) -> None:
        """End the processes that were started here."""
        if self._own is not None:
            self._own.shutdown(cancel_futures=True)
            self._own = None
