"""Free memory, and sizes in bytes as text."""

import math
import os
import re

import torch

from tangentlab._errors import TangentError

_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}


def parse_bytes(value: int | float | str) -> int:
    """Parse bytes from a number or a text such as "4GiB", "500 MB" (both powers of 1024)."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf:
        return int(value)
    match = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([kmgt]?)(i?b)?\s*", str(value).lower())
    try:
        if match and float(match[1]) > 0:
            return int(float(match[1]) * _UNITS[match[2]])
    except ValueError:
        pass
    raise TangentError(
        f"The memory_budget is {value!r}.",
        "It must be a positive number of bytes.",
        'Pass 4 * 1024**3 or "4GiB".',
    )


def available(device: torch.device) -> int:
    """Return the free memory."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (ValueError, OSError, AttributeError):
        return 4 * 1024**3


def show_bytes(size: float) -> str:
    """Format bytes for a reader."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} TiB"
