"""The disk for factors that do not fit into memory: where it is, how much of it is free, how fast it is."""

import os
import shutil
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tangentlab._files import process_name

_BLOCK = 16 * 1024**2
_FREE_SHARE = 0.8
"""Share of the free space that may be taken."""
_IN_MEMORY = ("tmpfs", "ramfs")
"""File systems that are memory: factors on them would take what the budget is there to save."""


@dataclass(frozen=True)
class DiskRates:
    """Bytes per second, past the system's cache."""

    write: float = 2e8
    read: float = 5e8


def spill_folder() -> Path:
    """Return the folder for spilled factors: that of ``tempfile``, which the environment variable TMPDIR sets."""
    return Path(tempfile.gettempdir())


def room_on_disk(folder: Path) -> int:
    """Return the bytes that may be written to a folder; 0 where it is in memory or cannot be asked."""
    try:
        return 0 if _is_in_memory(folder) else int(_FREE_SHARE * shutil.disk_usage(folder).free)
    except OSError:
        return 0


def _is_in_memory(folder: Path) -> bool:
    """Return whether a folder's file system is memory, as /tmp is on some systems; False where that is not known."""
    path, found = folder.resolve(), ("", "")
    with suppress(OSError), open("/proc/mounts") as mounts:
        for line in mounts:
            _, place, kind, *_ = line.split()
            if path.is_relative_to(place) and len(place) >= len(found[0]):
                found = place, kind
    return found[1] in _IN_MEMORY


def existing(path: Path) -> Path:
    """Return the folder itself, or the one in which it would be created."""
    path = path.absolute()
    while not path.is_dir():
        path = path.parent
    return path


def measure_disk(folder: Path) -> DiskRates:
    """Measure the rates of writing and reading a small file."""
    folder = existing(folder)
    path, data = folder / f".{process_name()}.rate", os.urandom(_BLOCK)
    try:
        start = time.perf_counter()
        with open(path, "wb", buffering=0) as file:
            file.write(data)
            os.fsync(file.fileno())
            written = time.perf_counter() - start
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        start = time.perf_counter()
        path.read_bytes()
        read = time.perf_counter() - start
    finally:
        path.unlink(missing_ok=True)
    return DiskRates(_BLOCK / written, _BLOCK / read)
