"""Memory: how much there is, and how the samples are cut so that a computation stays within it."""

import math
import os
import re
from dataclasses import dataclass

import torch

from tangentlab._errors import TangentError

_UNITS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}
_WORKSPACE = 64 * 1024**2
"""Bytes of a batch beyond which larger batches are no faster, unless they hold fewer samples than this:"""
_FEW = 8
_LARGEST_BATCH = 4096


def parse_bytes(value: int | float | str) -> int:
    """Bytes from a number or a text such as "4GiB", "500 MB" (both powers of 1024)."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf:
        return int(value)
    match = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([kmgt]?)(i?b)?\s*", str(value).lower())
    try:
        if match and float(match[1]) > 0:
            return int(float(match[1]) * _UNITS[match[2]])
    except ValueError:
        pass
    raise TangentError(
        f"memory_budget is {value!r}.",
        "it must be a positive number of bytes.",
        'pass 4 * 1024**3 or "4GiB".',
    )


def available(device: torch.device) -> int:
    """Memory that is free now."""
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


@dataclass(frozen=True)
class Budget:
    """Memory for a computation, everything beyond the model and the inputs included.

    Attributes:
        total: Bytes.
        result: Bytes that the result takes.
        sample: Bytes that the factors of one sample take.
        batch_sample: Bytes that one more sample in a batch takes while its factors are made.
        tile: Bytes that contracting a tile takes.
        check: Bytes that comparing with plain differentiation takes, at another time than batches and tiles.
        batch_size: Samples a batch, if the user chose it.
    """

    total: int
    result: int
    sample: int
    batch_sample: int
    tile: int
    check: int
    batch_size: int | None = None

    @property
    def batch(self) -> int:
        """Samples a batch."""
        if self.batch_size is not None:
            return self.batch_size
        wanted = max(_WORKSPACE, _FEW * self.batch_sample)
        room = min(wanted, max(0, self.total - self.result - self.tile) // 3)
        return int(max(1, min(_LARGEST_BATCH, room // max(1, self.batch_sample))))

    @property
    def resident(self) -> int:
        """How many samples' factors fit at a time.

        Raises:
            TangentError: Not even two samples fit.
        """
        working = max(self.tile + self.batch * self.batch_sample, self.check)
        fits = (self.total - self.result - working) // max(1, self.sample)
        if fits < 2:
            least = self.result + working + 2 * self.sample
            raise TangentError(
                f"the memory budget of {show_bytes(self.total)} is too small for one tile.",
                f"the result takes {show_bytes(self.result)}, the factors of a sample {show_bytes(self.sample)}, a "
                f"batch of {self.batch} {show_bytes(self.batch * self.batch_sample)}, a tile {show_bytes(self.tile)}, "
                f"the check {show_bytes(self.check)}.",
                f"pass memory_budget of at least {show_bytes(int(least * 1.05) + 1)}, fewer samples, a smaller "
                'batch_size, or a readout with fewer outputs such as "pntk".',
            )
        return int(fits)


def show_bytes(size: float) -> str:
    """Bytes for a person."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.3g} TiB"
