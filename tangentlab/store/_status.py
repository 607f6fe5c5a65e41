"""How far the computation of a store is: finished tiles, their rate, and the workers."""

import os
from dataclasses import asdict, dataclass
from typing import Any

from tangentlab._durations import show_seconds
from tangentlab.engines import Shard
from tangentlab.store._array import present_entries
from tangentlab.store._kernel import StoredKernel
from tangentlab.store._tiles import units
from tangentlab.store._workers import WorkerState

_WINDOW = 600.0
"""Seconds over which the rate is measured."""


@dataclass(frozen=True)
class Status:
    """The state of a store while it is computed.

    Attributes:
        path: The store.
        tiles: The number of tiles of the kernel.
        done: The number of finished tiles.
        progress: The share of the entries that are computed, 0 to 1.
        tiles_per_minute: Tiles finished per minute over the last ten minutes; None if that is not known.
        seconds_left: The time until the kernel is complete at that rate; None if that is not known.
        workers: The processes that compute it, or died while they did.
    """

    path: str
    tiles: int
    done: int
    progress: float
    tiles_per_minute: float | None
    seconds_left: float | None
    workers: tuple[WorkerState, ...]

    @property
    def complete(self) -> bool:
        """Whether all tiles are computed."""
        return self.done == self.tiles

    @property
    def running(self) -> list[WorkerState]:
        """The workers that are alive."""
        return [worker for worker in self.workers if worker.alive]

    @property
    def dead(self) -> list[WorkerState]:
        """The workers that died; the tiles that they hold are taken over by any other."""
        return [worker for worker in self.workers if not worker.alive]

    def to_json(self) -> dict[str, Any]:
        """Convert to plain values."""
        return asdict(self) | {"complete": self.complete, "running": len(self.running), "dead": len(self.dead)}

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.done} of {self.tiles} tiles done, {self.progress:.1%} of the entries"]
        if self.complete:
            return lines[0] + ", complete"
        if self.tiles_per_minute is None or self.seconds_left is None:
            reason = "fewer than two tiles in the last ten minutes" if self.running else "no worker is running"
            lines.append(f"  time left  unknown: {reason}")
        else:
            lines.append(
                f"  time left  {show_seconds(self.seconds_left)} at {self.tiles_per_minute:.3g} tiles a minute"
            )
        lines.append(f"  workers    {len(self.running)} running, {len(self.dead)} dead")
        lines += [f"    {worker}" for worker in self.workers]
        return "\n".join(lines)


def status(path: str | os.PathLike[str]) -> Status:
    """Report how far the computation of a store is. No tile is read.

    Args:
        path: The store.

    The rate is that of the tiles that were finished in the last ten minutes by the clock of the place. A worker
    counts as dead if it ran on this machine and has ended, or if it has shown no sign of life for a minute.

    Cost: one file status per finished tile.

    Examples:
        >>> import torch
        >>> from tangentlab import store
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> kernel = store.compute(network, x, "kernel.zarr", readout="pntk", progress=False)
        >>> type(store.status("kernel.zarr")).__name__
        'Status'

    See also:
        :func:`tangentlab.store.compute`, :func:`tangentlab.store.missing_shards`.
    """
    kernel = StoredKernel(path)
    plan, missing = kernel.plan, set(kernel.missing)
    done = [tile for tile in plan.tiles() if tile not in missing]
    remaining = sum(map(plan.entries, missing))
    workers: tuple[WorkerState, ...] = ()
    speed = rate = None
    if missing and not kernel.packed:
        leases = kernel.place.leases()
        now, workers = leases.clock(), leases.workers()
        if any(worker.alive for worker in workers):
            written = ((entry.time, tile) for tile, entry in present_entries(kernel.place).items())
            recent = sorted((time, tile) for time, tile in written if now - time <= _WINDOW and tile not in missing)
            if len(recent) > 1 and now > recent[0][0]:
                span = now - recent[0][0]
                rate = 60 * (len(recent) - 1) / span
                speed = sum(plan.entries(tile) for _, tile in recent[1:]) / span
    return Status(
        str(path),
        plan.count,
        len(done),
        kernel.progress,
        rate,
        0.0 if not missing else remaining / speed if speed else None,
        workers,
    )


def missing_shards(path: str | os.PathLike[str], count: int) -> list[int]:
    """List the shards of a store that have anything left to compute.

    Cost: one listing of the tiles. Only tiles that :func:`tangentlab.store.append` has enlarged are read.

    Args:
        path: The store.
        count: The number of shards, n of ``Shard(i, n)``.

    Returns:
        Their numbers, from 0 to ``count`` - 1.

    Examples:
        >>> import torch
        >>> from tangentlab import store
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> kernel = store.compute(network, x, "kernel.zarr", readout="pntk", progress=False)
        >>> store.missing_shards("kernel.zarr", 4)
        []

    See also:
        :func:`tangentlab.store.create`, :func:`tangentlab.store.status`.
    """
    kernel = StoredKernel(path)
    missing, groups = set(kernel.missing), units(kernel.plan, count)
    return [
        index
        for index in range(count)
        if any(tile in missing for group in Shard(index, count).share(groups) for tile in group)
    ]
