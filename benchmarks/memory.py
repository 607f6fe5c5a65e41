"""Memory of this process and of the machine, and a ceiling that makes a too large request fail early."""

from __future__ import annotations

import contextlib
import re
import resource
import sys
from pathlib import Path

GIB = 2**30


def _status(field: str) -> int | None:
    """Return a field of ``/proc/self/status`` in bytes; ``None`` if there is no such file."""
    with contextlib.suppress(OSError):
        match = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
        return int(match[1]) * 1024 if match else None
    return None


def start_watch() -> int:
    """Begin to watch the peak: forget the one so far where the system can, and return what is in use now.

    ``ru_maxrss`` alone would not do: Linux lets a child inherit the peak of the process that started it.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS") or peak()


def peak() -> int:
    """Return the peak resident memory of this process in bytes since :func:`start_watch` (else since its start)."""
    watched = _status("VmHWM")
    if watched is not None:
        return watched
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def available() -> int:
    """Return the bytes that a new process may use: three quarters of what is free now."""
    with contextlib.suppress(OSError):
        match = re.search(r"^MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
        if match:
            return int(0.75 * 1024 * int(match[1]))
    return 8 * GIB


def limit(memory: int) -> None:
    """Let the address space grow by ``memory`` bytes from here; a larger request fails instead of swapping."""
    mapped = _status("VmSize")
    if mapped is None:
        return
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    wanted = mapped + memory
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
