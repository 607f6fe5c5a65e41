"""The processes that compute tiles of a store, by the signs of life that they leave."""

from collections.abc import Mapping
from dataclasses import dataclass

from tangentlab._files import is_dead


@dataclass(frozen=True)
class WorkerState:
    """A process that computes tiles of a store, or died while it did.

    Attributes:
        host: Its machine.
        process: Its number there.
        alive: Whether it is running, as far as this machine can tell.
        silent: Seconds since its last sign of life; one comes every five seconds.
        held: The number of tiles and factors that it is computing, or was when it died.
    """

    host: str
    process: int
    alive: bool
    silent: float
    held: int

    def __str__(self) -> str:
        state = "running" if self.alive else "dead"
        return (
            f"{state}: process {self.process} on {self.host}, {self.held} in progress, silent for {self.silent:.0f} s"
        )


def worker_states(
    seen: Mapping[str, float], held: Mapping[str, int], now: float, stale: float
) -> tuple[WorkerState, ...]:
    """Describe processes, the living ones first.

    Args:
        seen: When each of them gave its last sign of life.
        held: The number of leases that each of them holds.
        now: The time by the same clock.
        stale: Seconds of silence after which a process counts as dead.
    """
    found = []
    for name, time_seen in seen.items():
        host, _, rest = name.partition("~")
        number = rest.partition("~")[0]
        silent = max(0.0, now - time_seen)
        alive = silent <= stale and not is_dead(name)
        found.append(WorkerState(host, int(number) if number.isdecimal() else 0, alive, silent, held.get(name, 0)))
    return tuple(sorted(found, key=lambda worker: (not worker.alive, worker.host, worker.process)))
