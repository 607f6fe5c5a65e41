"""One of several processes that divide the work by number, as in a job array."""

from collections.abc import Sequence
from typing import TypeVar

from tangentlab._errors import TangentError
from tangentlab.engines._in_process import InProcess

T = TypeVar("T")


class Shard(InProcess):
    """The ``index``-th of ``count`` processes that divide the work without communicating.

    Each takes every ``count``-th item of the same list. They may run at the same time, one after the other, or twice.
    The work is done when all of them are done.

    Args:
        index: 0 to ``count`` - 1 (SLURM: ``$SLURM_ARRAY_TASK_ID`` of an ``--array=0-(count - 1)``).
        count: The number of processes.
    """

    def __init__(self, index: int, count: int) -> None:
        whole = all(isinstance(value, int) and not isinstance(value, bool) for value in (index, count))
        if not whole or not 0 <= index < count:
            raise TangentError(
                f"Shard {index}/{count} does not exist.",
                "Shards are numbered from 0 to their count minus 1.",
                "Pass i/n with 0 <= i < n, for instance 0/4 to 3/4.",
            )
        self.index, self.workers = index, count

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Parse a shard from a text such as "0/4"."""
        index, slash, count = text.partition("/")
        if not (slash and index.strip().isdecimal() and count.strip().isdecimal()):
            raise TangentError(f"The shard is {text!r}.", "", "Pass i/n with 0 <= i < n, for instance 0/4.")
        return cls(int(index), int(count))

    def share(self, items: Sequence[T]) -> Sequence[T]:
        return items[self.index :: self.workers]

    def __repr__(self) -> str:
        return f"Shard({self.index}, {self.workers})"
