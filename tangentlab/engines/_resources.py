"""What a job of a batch system requests."""

import math
from dataclasses import dataclass

from tangentlab._errors import TangentError

_OVERHEAD = 1024**3
"""Bytes for Python, PyTorch and the samples, in addition to the memory budget."""
_SHARE = 0.75
"""The part of the memory that the budget may use: limits of batch systems count what PyTorch has not returned yet."""
_SLOWER = 2.0
"""How many times longer than estimated a task may take: nodes and file systems that are shared."""
_START = 600.0
"""Seconds to import PyTorch from a shared file system and to read the samples."""
_MEBIBYTE = 1024**2


@dataclass(frozen=True)
class Resources:
    """The resources of one task.

    Attributes:
        cpus: Cores, which is also the number of threads.
        memory: Bytes.
        seconds: The limit of its time.
    """

    cpus: int
    memory: int
    seconds: float

    def __post_init__(self) -> None:
        if not (self.cpus >= 1 and self.memory > 0 and 0 < self.seconds < math.inf):
            raise TangentError(f"The resources are {self}.", "", "Pass positive numbers.")

    @classmethod
    def of_work(cls, cpus: int, memory: float, seconds: float) -> "Resources":
        """Return what to request for a computation, with margins for what an estimate does not cover.

        Args:
            cpus: Cores.
            memory: Bytes of its memory budget.
            seconds: The estimated time.
        """
        return cls(cpus, int(memory / _SHARE) + _OVERHEAD, _SLOWER * seconds + _START)

    @property
    def mebibytes(self) -> int:
        """The memory in MiB, rounded up."""
        return -(-self.memory // _MEBIBYTE)

    @property
    def time(self) -> str:
        """The time as batch systems write it, days-hours:minutes:seconds, rounded up to minutes."""
        minutes = math.ceil(self.seconds / 60)
        days, hours = minutes // 1440, minutes // 60 % 24
        return (f"{days}-" if days else "") + f"{hours:02d}:{minutes % 60:02d}:00"
