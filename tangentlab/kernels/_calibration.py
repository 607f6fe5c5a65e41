"""Calibration: the rates of a device, measured once in a fraction of a second and kept in the user's cache.

The cost model compares exact forms by :class:`~tangentlab.kernels._cost.Rates`. Those of a GPU differ from those of a
CPU by an order of magnitude, those of float64 from those of float32, so they are measured for each device and dtype.
Those of the disk decide whether factors are spilled, see :mod:`~tangentlab.kernels._arrangement`.
Measured rates are rounded to powers of sqrt(2) and kept, so that a machine that was calibrated once chooses the same
forms ever after. ``TANGENTLAB_CALIBRATION=off`` takes the same constants everywhere and neither measures nor reads.
"""

import hashlib
import json
import math
import mmap
import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from tangentlab._errors import TangentError
from tangentlab._files import user_cache, written_whole
from tangentlab.kernels._cost import DEFAULT, Rates
from tangentlab.kernels._disk import DiskRates, measure_disk

VARIABLE = "TANGENTLAB_CALIBRATION"
_FORMAT = 2
"""Number of the way in which rates are measured; another one is measured anew."""
_BOUNDS = {"entrywise": (1.0, 1e5), "store": (1.0, 1e5), "speed": (1e6, 1e18)}
"""What rates can be; others are a mistake, of the measurement or in the file."""
_PROCESSOR = {"entrywise": (8.0, 128.0), "store": (64.0, 1024.0)}
"""What they are on a processor, in single and double precision: measured on a busy one, they can be anything."""
_SECONDS = 0.02
"""Time for each measurement."""
_LONGEST_PRODUCT = 2048
_TILE, _POSITIONS = 1024, 16
"""Rows of the tile of an entrywise product, and positions of a sample in it, as contraction has them."""
_FRESH = 40 << 20
"""Bytes of an allocation that the allocator takes from the system anew, as it does for factors."""
_REUSED = 31 << 20
"""Bytes after whose release a C library keeps smaller allocations for itself, as it does in any longer computation."""

_DISK = {"write": (1e5, 1e12), "read": (1e5, 1e12)}
"""What rates of a disk can be, in bytes per second."""
_FILES = 4
"""Files that are written and read to measure them."""
_Kind = TypeVar("_Kind", Rates, DiskRates)

_known: dict[str, Any] = {}


def rates(device: torch.device, dtype: torch.dtype) -> Rates:
    """Return the rates of a device for a dtype: the measured ones, or the defaults where calibration is off.

    Raises:
        TangentError: The environment variable has another value than "on" and "off".
    """
    if not _is_on() or device.type not in ("cpu", "cuda"):
        return DEFAULT
    return _kept_or_measured(_describe(device, dtype), lambda: measure(device, dtype), DEFAULT)


def disk_rates(folder: Path) -> DiskRates:
    """Return the rates of the disk that a folder is on; as :func:`rates`."""
    if not _is_on():
        return DiskRates()
    key = {"format": _FORMAT, "folder": str(folder.absolute()), "disk": os.stat(folder).st_dev}

    def measured() -> DiskRates:
        found = [measure_disk(folder) for _ in range(_FILES)]  # the fastest counts: others may be using the disk
        write, read = (_rounded(max(getattr(f, name) for f in found), *bounds) for name, bounds in _DISK.items())
        return DiskRates(write, read)

    return _kept_or_measured(key, measured, DiskRates())


def _is_on() -> bool:
    chosen = os.environ.get(VARIABLE, "on").strip().lower()
    if chosen not in ("on", "off", ""):
        raise TangentError(
            f"The environment variable {VARIABLE} is {chosen!r}.",
            "It decides whether the cost model is calibrated on this machine.",
            "Set it to on or off.",
        )
    return chosen != "off"


def synchronize(device: torch.device) -> None:
    """Wait for a device, so that measured times are correct."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _describe(device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """Return what rates depend on."""
    key = {"format": _FORMAT, "torch": torch.__version__, "dtype": str(dtype)}
    if device.type == "cuda":
        return key | {"device": torch.cuda.get_device_name(device), "tf32": torch.get_float32_matmul_precision()}
    return key | {"device": _processor(), "threads": torch.get_num_threads()}


@cache
def _processor() -> str:
    with suppress(OSError), open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _kept_or_measured(key: dict[str, Any], measured: Callable[[], _Kind], default: _Kind) -> _Kind:
    name = json.dumps(key, sort_keys=True)
    if name not in _known:
        path = user_cache() / "rates" / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.json"
        found = _read(path, key, type(default))
        if found is None:
            try:
                found = _keep(path, key, measured())
            except (RuntimeError, OSError):  # the device does not have this dtype, no memory left, or the disk is full
                found = default
        _known[name] = found
    return _known[name]


def _keep(path: Path, key: dict[str, Any], found: _Kind) -> _Kind:
    """Write the file unless another process has written it meanwhile; all take the rates of the first one."""
    own = path.with_suffix(f".{os.getpid()}")
    try:
        if _read(path, key, type(found)) is None:  # a damaged one
            path.unlink(missing_ok=True)
        with written_whole(own, durable=False) as file:
            file.write(json.dumps({"key": key, "rates": asdict(found)}).encode())
        try:
            with suppress(FileExistsError):
                os.link(own, path)
        finally:
            own.unlink(missing_ok=True)
    except OSError:  # the cache cannot be written to: this process measured for itself
        return found
    return _read(path, key, type(found)) or found


def _read(path: Path, key: dict[str, Any], kind: type[_Kind]) -> _Kind | None:
    """Return the rates of a file; None if there is none that makes sense."""
    bounds = _BOUNDS if kind is Rates else _DISK
    try:
        content = json.loads(path.read_bytes())
        values = {name: float(content["rates"][name]) for name in bounds}
        sound = content["key"] == key and all(low <= values[name] <= high for name, (low, high) in bounds.items())
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return kind(**values) if sound else None


@torch.no_grad()
def measure(device: torch.device, dtype: torch.dtype) -> Rates:
    """Measure the rates of a device for a dtype."""
    size, seconds = 64, 0.0
    while seconds < _SECONDS / 10 and size < _LONGEST_PRODUCT:  # a slow device stays with small products
        size *= 2
        one = torch.ones(size, size, dtype=dtype, device=device)
        seconds = _fastest(partial(torch.mm, one, one), device)
    speed = 2 * size**3 / seconds
    torch.empty(_REUSED, dtype=torch.uint8, device=device)
    tile = torch.ones(_TILE, _TILE, dtype=dtype, device=device)
    split = tile.unflatten(1, (_POSITIONS, -1)).unflatten(0, (_POSITIONS, -1))
    # As in a sum over pairs of positions: two tiles that products write, their entrywise product, and its sums.
    entrywise = _fastest(lambda: split.clone().mul_(split.clone()).sum(0).sum(1), device) / tile.numel()
    count = _FRESH // dtype.itemsize
    store = _fastest(lambda: _new_memory(count, dtype, device).fill_(1), device) / count
    found = {"entrywise": entrywise * speed, "store": store * speed, "speed": speed}
    bounds = _BOUNDS | _PROCESSOR if device.type == "cpu" and dtype.itemsize >= 4 else _BOUNDS
    return Rates(**{name: _rounded(value, *bounds[name]) for name, value in found.items()})


def _new_memory(count: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return memory that the system gives anew; an allocator may have some of its own left from larger work."""
    if device.type != "cpu" or not hasattr(mmap, "MAP_PRIVATE"):
        return torch.empty(count, dtype=dtype, device=device)
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    return torch.frombuffer(mmap.mmap(-1, count * dtype.itemsize, flags=private), dtype=dtype)


def _rounded(value: float, low: float, high: float) -> float:
    """Return the nearest power of sqrt(2): two measurements on one machine then agree almost always."""
    return float(2 ** (round(2 * math.log2(min(max(value, low), high))) / 2))


def _fastest(work: Callable[[], Any], device: torch.device) -> float:
    """Return the seconds of the fastest of some calls; the first one, which sets things up, does not count."""
    work()
    synchronize(device)
    fastest, end, calls = math.inf, time.perf_counter() + _SECONDS, 0
    while calls < 4 or (time.perf_counter() < end and calls < 50):
        start = time.perf_counter()
        work()
        synchronize(device)
        fastest = min(fastest, time.perf_counter() - start)
        calls += 1
    return fastest
