"""Scaling of kernels, targets and ridges of any size to unit size, and of results back.

A kernel with entries around 1e-200 or 1e200 is valid, but squares of its entries are zero or infinite in float64. Every
computation therefore uses the kernel 2^-e K with entries around one, scales targets in the same way, and scales its
answer back. Powers of two change no digit of a number. The exponent e is even, so that square roots scale exactly too.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._sums import exponent_of, times_power

_PLAIN = 64
"""Sizes from 2^-64 to 2^64 are not scaled: fourth powers of such numbers are well inside float64."""
_LOWEST = -1021
"""A result whose largest number is below 2^-1022 has lost digits: the smallest step of float64 is 2^-1074."""


def even_exponent(peak: float) -> int:
    """Return the even e for which peak / 2^e is about one; 0 if it already is, or is zero or not finite."""
    exponent = exponent_of(peak)
    return 0 if abs(exponent) <= _PLAIN else 2 * (exponent // 2)


def columns_to_unit(values: Tensor) -> tuple[Tensor, list[int]]:
    """Scale columns (n, m) to about unit size; return them and the exponents (m) that undo it."""
    peaks = values.abs().amax(0).tolist() if len(values) else [0.0] * values.shape[1]
    exponents = [even_exponent(peak) for peak in peaks]
    return times_powers(values, [-e for e in exponents]), exponents


def times_powers(values: Tensor, exponents: Sequence[int]) -> Tensor:
    """Multiply each column (or number of a vector) with its own power of two."""
    if not any(exponents):
        return values
    if len(set(exponents)) == 1:
        return times_power(values, exponents[0])
    return torch.stack([times_power(part, e) for part, e in zip(values.unbind(-1), exponents, strict=True)], -1)


def restored(values: Tensor, exponents: Sequence[int] | int, what: str) -> Tensor:
    """Scale numbers at unit size back to their own.

    Args:
        values: (m,) or (n, m), or a number.
        exponents: One for all, or one per column.
        what: Their name in a refusal.

    Raises:
        TangentError: They are not finite, or the largest one of a column is out of the range of float64.
    """
    each = [exponents] if isinstance(exponents, int) else list(exponents)
    columns = values.reshape(-1, len(each)).abs()
    for peak, exponent in zip(columns.amax(0).tolist(), each, strict=True):
        size = exponent_of(peak) + exponent
        if not math.isfinite(peak) or (peak and exponent and not _LOWEST <= size <= 1024):
            raise out_of_range(what, size if math.isfinite(peak) else None)
    return times_power(values, each[0]) if len(each) == 1 else times_powers(values, each)


def number(value: float, exponent: int) -> float:
    """Multiply a number with 2^exponent, for a message: out of range, it is zero or infinite."""
    return float(times_power(torch.tensor(value, dtype=torch.float64), exponent))


def out_of_range(what: str, exponent: int | None = None) -> TangentError:
    """Build the refusal of a number that float64 cannot hold."""
    size = "" if exponent is None else f" They are about 1e{round(exponent * math.log10(2)):+d}."
    return TangentError(
        f"The {what} are out of the range of float64, 2.2e-308 to 1.8e308.{size}",
        why="They would be rounded to zero or infinity.",
        remedy="Multiply the kernel, the targets or the ridge by a power of ten.",
    )
