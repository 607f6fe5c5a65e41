"""The cost of a kernel, estimated from a short measurement, on this machine or on many like it."""

import os
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from tangentlab._durations import show_seconds
from tangentlab._errors import TangentError
from tangentlab._memory import show_bytes
from tangentlab.engines import Resources
from tangentlab.kernels.internal import Plan, contract
from tangentlab.store._array import exists, open_array
from tangentlab.store._hashes import sample_hashes
from tangentlab.store._kernel import StoredKernel
from tangentlab.store._panels import Panels
from tangentlab.store._place import UNLIMITED, as_place
from tangentlab.store._rates import (
    DiskRates,
    FactorRate,
    measure_factors,
    spilling_pays,
    synchronize,
    visits,
)
from tangentlab.store._setup import Request, capacity, choose_plan, working_memory
from tangentlab.store._tiles import TilePlan

_LEAST_SECONDS = 0.5
_MOST_SECONDS = 4.0
_HASHED = 256


@dataclass(frozen=True)
class Estimate:
    """The cost of computing a kernel.

    Attributes:
        samples: N.
        rows: N R.
        workers: Machines like the one measured.
        tile: Samples per side of a tile.
        tiles: The number of tiles.
        seconds: The total; some of the parts below overlap.
        factor_seconds: Making factors, spilling and reading them.
        contract_seconds: Contracting them.
        write_seconds: Writing tiles, in the background.
        read_seconds: Reading and hashing the samples, by every worker.
        memory: Bytes per process.
        disk: Bytes of the finished store.
        scratch: Bytes of spilled factors during the computation.
        free: Free bytes on the disk.
        factors: Where factors are kept: "in memory", "spilled" or "computed again".
        processes: Processes on each machine, which share its cores and memory.
    """

    samples: int
    rows: int
    workers: int
    tile: int
    tiles: int
    seconds: float
    factor_seconds: float
    contract_seconds: float
    write_seconds: float
    read_seconds: float
    memory: int
    disk: int
    scratch: int
    free: int
    factors: str
    processes: int = 1

    @property
    def core_hours(self) -> float:
        """The hours of all workers together."""
        return self.seconds * self.workers / 3600

    @property
    def budget(self) -> int:
        """The memory budget in bytes that lets a process work as estimated."""
        return int(1.1 * self.memory)

    def resources(self, cpus: int | None = None) -> Resources:
        """Return what a job that is one of the workers should request from a batch system, with margins.

        Args:
            cpus: Cores; None for the number of threads that PyTorch uses here.
        """
        return Resources.of_work(cpus or torch.get_num_threads(), self.budget, self.seconds)

    def to_json(self) -> dict[str, Any]:
        """Convert to plain values."""
        return asdict(self)

    def __str__(self) -> str:
        workers = "1 worker" if self.workers == 1 else f"{self.workers} workers like this one"
        if self.processes > 1:
            workers = f"{workers} of {self.processes} processes" if self.workers > 1 else f"{self.processes} processes"
        one = "process" if self.processes > 1 else "worker"
        tiles = "tile" if self.tiles == 1 else "tiles"
        free = "no limit" if self.free >= UNLIMITED else f"free {show_bytes(self.free)}"
        short = "" if self.disk + self.scratch <= self.free else " (more than is free)"
        return (
            f"{self.rows} x {self.rows} kernel of {self.samples} samples, {self.tiles} {tiles} of {self.tile} samples, "
            f"{workers}\n"
            f"  time    {show_seconds(self.seconds)} (factors {show_seconds(self.factor_seconds)}, contraction "
            f"{show_seconds(self.contract_seconds)}, writing {show_seconds(self.write_seconds)})\n"
            f"  memory  {show_bytes(self.memory)} per {one}, factors {self.factors}\n"
            f"  disk    {show_bytes(self.disk)}, scratch {show_bytes(self.scratch)}, {free}"
            f"{short}"
        )


@dataclass(frozen=True)
class Probe:
    """Measured rates, from which the costs of kernels of other sizes follow.

    Attributes:
        plan: The plan that was measured.
        factors: The rate of making factors.
        entry_seconds: The time to contract one entry of the kernel.
        sample_seconds: The time to read and hash one sample.
        disk: The rates of writing and reading.
        free: Free bytes on the disk.
        capacity: The number of panels whose factors fit into memory.
        working: Bytes in addition to factors.
        itemsize: Bytes per number.
        missing: The share of the entries that remains to be computed.
        processes: Processes on each machine, which share its cores and memory. More of them are not faster, because the
            rates are those of all cores; each of them needs factors of its own.
    """

    plan: TilePlan
    factors: FactorRate
    entry_seconds: float
    sample_seconds: float
    disk: DiskRates
    free: int
    capacity: int
    working: int
    itemsize: int
    missing: float = 1.0
    processes: int = 1

    def estimate(self, workers: int = 1) -> Estimate:
        """Estimate the cost with a number of machines."""
        if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
            raise TangentError(f"The number of workers is {workers!r}.", "", "Pass a positive number.")
        plan, everyone = self.plan, workers * self.processes
        count = visits(plan, self.capacity, everyone)
        once, spilled = plan.samples * self.factors.seconds, plan.samples * self.factors.bytes
        spill = count > 1 and spilled <= self.free and spilling_pays(count, self.factors, self.disk)
        if spill:
            factor = once + spilled / self.disk.write + count * spilled / self.disk.read
        else:
            factor = count * once
        factor /= workers
        contract_ = self.missing * plan.size * (plan.size + 1) / 2 * self.entry_seconds / workers
        stored = plan.count * (plan.side**2 * self.itemsize + 4)
        write = self.missing * stored / self.disk.write / workers
        read = plan.samples * self.sample_seconds
        held = min(self.capacity, plan.panels) * min(plan.tile, plan.samples) * self.factors.bytes
        again = "computed again" if count > everyone else "in memory"
        return Estimate(
            samples=plan.samples,
            rows=plan.size,
            workers=workers,
            tile=plan.tile,
            tiles=plan.count,
            seconds=read + (factor if self.missing else 0.0) + max(contract_, write),
            factor_seconds=factor,
            contract_seconds=contract_,
            write_seconds=write,
            read_seconds=read,
            memory=int(self.working + held),
            disk=int(stored),
            scratch=int(spilled) if spill else 0,
            free=self.free,
            factors="spilled" if spill else again,
            processes=self.processes,
        )


def probe(
    model: torch.nn.Module,
    x: Any,
    path: str | os.PathLike[str] = ".",
    *,
    samples: int | None = None,
    processes: int = 1,
    **options: Any,
) -> Probe:
    """Measure the rates of a kernel's parts for a few seconds.

    Cost: factors of batches for 0.2 s, those of one tile, in up to about 4 s, and its contraction, for at least 0.5 s.

    Args:
        model: As for :func:`compute`.
        x: Some samples; as many as a tile has give the best estimate.
        path: The place of the store; tiles that already exist are taken into account.
        samples: The number of samples of the whole kernel; None for those of ``x``.
        processes: Processes on this machine, which share its cores and, unless there is a memory budget, its memory.
        options: As for :func:`compute`: readout, dtype, tile, memory_budget (of one process) and so on.

    Examples:
        >>> import torch
        >>> from tangentlab import store
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> type(store.probe(network, x, samples=1000, readout="pntk")).__name__
        'Probe'

    See also:
        :func:`tangentlab.store.estimate`.
    """
    request, place = Request.of(model, x, **options), as_place(path)
    kernel_plan = request.kernel_plan()
    if processes > 1 and options.get("memory_budget") is None:
        request = Request.of(model, x, **options | {"memory_budget": kernel_plan.memory // processes})
        kernel_plan = request.kernel_plan()
    stored = open_array(place)[1] if samples is None and exists(place) else None
    own = len(kernel_plan.left.samples)
    if samples is not None:
        kernel_plan = kernel_plan.solving(kernel_plan.problem.sized(samples))
    plan = choose_plan(request, kernel_plan, stored, samples)
    kernel_plan = kernel_plan.batched(plan.batch)
    panels = capacity(kernel_plan, plan)
    factors = measure_factors(kernel_plan, plan, own)
    missing = 1.0
    if stored is not None:
        missing = 1 - StoredKernel(place).progress
    return Probe(
        plan,
        factors,
        _entry_seconds(kernel_plan, plan, factors, own),
        _sample_seconds(kernel_plan, own),
        *place.rates(),
        panels,
        working_memory(kernel_plan, plan),
        np.dtype(str(kernel_plan.network.dtype).removeprefix("torch.")).itemsize,
        missing,
        processes,
    )


def estimate(
    model: torch.nn.Module,
    x: Any,
    path: str | os.PathLike[str] = ".",
    *,
    samples: int | None = None,
    workers: int = 1,
    **options: Any,
) -> Estimate:
    """Estimate the cost of :func:`compute` from a measurement of a few seconds.

    Cost: that of :func:`probe`.

    Args:
        workers: Machines like this one that share the work.
        others: As for :func:`probe`, whose result gives estimates for any number of workers.

    Examples:
        >>> import torch
        >>> from tangentlab import store
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> type(store.estimate(network, x, samples=1000, readout="pntk")).__name__
        'Estimate'

    See also:
        :func:`tangentlab.store.probe`, :func:`tangentlab.store.compute`.
    """
    return probe(model, x, path, samples=samples, **options).estimate(workers)


def _entry_seconds(kernel_plan: Plan, plan: TilePlan, factors: FactorRate, own: int) -> float:
    """Time the contraction of a tile with itself, treated as two different panels, so that one panel suffices."""
    affordable = max(plan.batch, int(_MOST_SECONDS / max(factors.seconds, 1e-9)))
    rows = min(plan.tile, own, affordable)
    one = Panels(kernel_plan, plan, 1).compute(range(rows))
    out = torch.empty(
        rows * plan.readouts, rows * plan.readouts, dtype=kernel_plan.network.dtype, device=kernel_plan.network.device
    )
    times: list[float] = []
    start = time.perf_counter()
    while time.perf_counter() - start < _LEAST_SECONDS or len(times) < 2:
        begin = time.perf_counter()
        contract(one, one, out, False, lambda *_: None)
        synchronize(kernel_plan.network.device)
        times.append(time.perf_counter() - begin)
    return float(np.median(times[1:])) / out.numel()


def _sample_seconds(kernel_plan: Plan, own: int) -> float:
    rows = range(min(own, _HASHED))
    start = time.perf_counter()
    sample_hashes(kernel_plan.left.samples, rows)
    return (time.perf_counter() - start) / len(rows)
