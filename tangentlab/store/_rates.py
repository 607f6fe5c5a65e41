"""Measured rates, and the decision whether factors are kept on disk or computed again."""

import shutil
import time
from pathlib import Path
from typing import NamedTuple

import torch

from tangentlab.kernels.internal import DiskRates, Plan, existing, measure_disk, run, size_in_bytes
from tangentlab.store._panels import Panels
from tangentlab.store._tiles import TilePlan

_LEAST_SECONDS = 0.2
_FREE_SHARE = 0.8


class FactorRate(NamedTuple):
    """Seconds that the factors of one sample take, and their bytes."""

    seconds: float
    bytes: float


def synchronize(device: torch.device) -> None:
    """Wait for a device, so that measured times are correct."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def free_disk(path: Path) -> int:
    """Return the free bytes on the disk of a folder that exists or would be created."""
    return shutil.disk_usage(existing(path)).free


def measure_factors(kernel_plan: Plan, plan: TilePlan, own: int | None = None) -> FactorRate:
    """Time the factors of enough batches for a reliable rate.

    Args:
        kernel_plan: How the kernel is computed.
        plan: The tiling of the kernel.
        own: The number of samples that the kernel_plan has, if it is not that of the plan.
    """
    return run(kernel_plan, lambda kernel_plan: _measure(kernel_plan, plan, own or plan.samples))[0]


def _measure(kernel_plan: Plan, plan: TilePlan, own: int) -> FactorRate:
    panels, size = Panels(kernel_plan, plan, 1), min(plan.batch, own)
    panels.compute(range(size))  # PyTorch's one-time setup
    synchronize(kernel_plan.network.device)
    done, start, seconds = 0, time.perf_counter(), 0.0
    while seconds < _LEAST_SECONDS:
        first = done % (own - size + 1)
        factors = panels.compute(range(first, first + size))
        synchronize(kernel_plan.network.device)
        done += size
        seconds = time.perf_counter() - start
    return FactorRate(seconds / done, size_in_bytes(factors) / size)


def visits(plan: TilePlan, capacity: int, workers: int) -> float:
    """Count how often the factors of a sample are needed, over all processes."""
    if capacity >= plan.panels:
        return float(workers)
    blocks = -(-plan.panels // max(1, capacity - 1))
    return min(float(plan.panels), workers * (blocks + 1) / 2)


def spilling_pays(count: float, factors: FactorRate, disk: DiskRates) -> bool:
    """Return whether writing factors once and reading them ``count`` times beats computing them ``count`` times."""
    spilled = factors.seconds + factors.bytes / disk.write + count * factors.bytes / disk.read
    return spilled < count * factors.seconds


def spill_folder(kernel_plan: Plan, plan: TilePlan, capacity: int, workers: int, folder: Path) -> Path | None:
    """Return the folder for spilled factors, or None if they are needed once or are cheaper to compute again."""
    count = visits(plan, capacity, workers)
    if count <= 1:
        return None
    factors = measure_factors(kernel_plan, plan)
    if factors.bytes * plan.samples > _FREE_SHARE * free_disk(folder):
        return None
    return folder if spilling_pays(count, factors, measure_disk(folder)) else None
