"""The interface of an engine, which executes tasks."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Any, TypeVar

from tangentlab._errors import TangentError

T = TypeVar("T")


class Engine(ABC):
    """A place where tasks are executed: plain callables without arguments that can be pickled.

    Attributes:
        workers: The number of tasks that are executed at a time, as far as it is known.
        here: Whether tasks run in this process, one after the other.
    """

    workers: int = 1
    here: bool = False

    def share(self, items: Sequence[T]) -> Sequence[T]:
        """Return those of the items that are this engine's to do: all, unless several engines share them."""
        return items

    @abstractmethod
    def run(self, tasks: Sequence[Callable[[], T]]) -> Iterator[tuple[int, T]]:
        """Execute tasks and yield their numbers and results, each as soon as it is finished.

        An exception of a task is raised here, and the tasks that have not started are canceled.
        """


def as_engine(value: Any) -> Engine:
    """Convert what a user passes to an engine.

    Args:
        value: None for this process, an :class:`Engine`, or any ``concurrent.futures.Executor``.

    Raises:
        TangentError: The value is none of these.

    Examples:
        >>> from tangentlab import engines
        >>> type(engines.as_engine(None)).__name__
        'InProcess'

    See also:
        :func:`tangentlab.engines.process_pool`, :func:`tangentlab.store.compute`.
    """
    from tangentlab.engines._executor import Executor
    from tangentlab.engines._in_process import InProcess

    if value is None:
        return InProcess()
    if isinstance(value, Engine):
        return value
    if isinstance(value, futures.Executor):
        return Executor(value)
    raise TangentError(
        f"The engine is of type {type(value).__name__}.",
        "An engine executes tasks.",
        "Pass None, engines.InProcess(), any concurrent.futures.Executor, engines.Dask(...) or engines.Shard(i, n).",
    )
