"""The treatment of freed memory in a process."""

import ctypes
import os
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt."""
_LARGEST = 32 * 1024**2
"""The largest threshold that glibc chooses by itself."""


@cache
def keep_freed_memory() -> bool:
    """Let this process reuse freed memory, as glibc does by default.

    By default, glibc adapts its threshold: after a block of up to 32 MiB is freed, blocks of that size come from memory
    that the process keeps. Dask sets MALLOC_TRIM_THRESHOLD_ for its workers, which switches this adaptation off: each
    block of more than 128 KiB then comes from the system, zeroed page by page, and is returned when it is freed. The
    intermediates of a batch or a tile are such blocks: LeNet's factors of 2,048 samples took 150,000 pages and a third
    of their time. If thresholds are set, this function sets them to the values that the adaptation reaches.

    Returns:
        Whether anything was changed.
    """
    if not {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"} & os.environ.keys():
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):  # not glibc
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST)) and bool(mallopt(_TRIM_THRESHOLD, 2 * _LARGEST))
