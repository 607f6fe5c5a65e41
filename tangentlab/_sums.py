"""Sums over very many entries, chunk by chunk, in float64 between the chunks and within them.

A sequential sum of m numbers in float32 is off by up to m eps times the sum of their sizes, 6e-8 m: at 1e8 entries, no
digit is left. Here every chunk is converted to float64 when it is added, so that

    |computed - exact| <= 2 (chunk + m / chunk) eps64 * sum |a_i b_i|

which is 4e-11 for a billion entries and below 1e-15 in practice, because rounding errors cancel. A chunk stays in the
processor's cache: the cost is that of reading the entries once, and no second tensor of their size is made.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

CHUNK = 2**16
"""The number of entries that are converted together: half a megabyte in float64."""
_SMALL = 1e-20
"""A sum of squares below this may have lost entries to underflow in single precision."""
_TINY = 1e-270
"""A sum of squares below this may have lost entries to underflow."""


def inner(a: Tensor, b: Tensor) -> Tensor:
    """Compute the inner product of all entries, sum_i a_i b_i.

    Args:
        a: Any shape, layout and real type; views are read as they are and never copied as a whole.
        b: Likewise, in the same shape, on the same device.

    Returns:
        () float64 on the device of the entries.
    """
    if a.shape != b.shape:
        raise ValueError(f"an inner product of {tuple(a.shape)} and {tuple(b.shape)}")
    sum_ = torch.zeros((), dtype=torch.float64, device=a.device)
    for one, two in _chunks(a.detach(), b.detach()):
        sum_ += torch.dot(one.double(), two.double())
    return sum_


def quick_inner(a: Tensor, b: Tensor) -> float:
    """Return the inner product of all entries for a comparison: chunks in their own precision, float64 between them.

    The error is below 1e-6 of |a| |b| in single precision, at the cost of reading the entries once. Products that leave
    the range of that precision are computed as by :func:`inner`.
    """
    if a.dtype == b.dtype and a.dtype.itemsize >= 4:
        found = _added([torch.dot(one, two) for one, two in _chunks(a.detach(), b.detach())])
        if _SMALL < abs(found) < math.inf:
            return found
    return float(inner(a, b))


def quick_norm(a: Tensor) -> float:
    """Return the norm of all entries for a comparison, see :func:`quick_inner`."""
    squares = quick_inner(a, a)
    return squares**0.5 if _SMALL < squares < math.inf else float(norm(a))


def quick_distance(a: Tensor, b: Tensor) -> float:
    """Return the norm of a difference for a comparison, see :func:`quick_inner`; no tensor of its size is made."""
    pairs = list(_chunks(a.detach(), b.detach()))
    if a.dtype == b.dtype and a.dtype.itemsize >= 4:
        found = _added([torch.dot(d, d) for d in (one - two for one, two in pairs)])
        if _SMALL < found < math.inf:
            return found**0.5
    exact = (one.double() - two.double() for one, two in pairs)
    return sum(float(torch.dot(d, d)) for d in exact) ** 0.5


def _added(parts: list[Tensor]) -> float:
    """Return the sum of the parts of chunks, in float64; a single one as it is, without further operations."""
    return float(torch.stack(parts).double().sum()) if len(parts) > 1 else float(parts[0]) if parts else 0.0


def norm(a: Tensor) -> Tensor:
    """Compute the Euclidean (Frobenius) norm of all entries without overflow or underflow of squares; () float64."""
    squares = inner(a, a)
    if _TINY < float(squares) < math.inf:
        return squares.sqrt()
    peak = torch.zeros((), dtype=torch.float64, device=a.device)
    for (part,) in _chunks(a.detach()):
        peak = torch.maximum(peak, part.double().abs().max())
    if not 0 < float(peak) < math.inf:  # all zero, or not finite
        return peak
    exponent = exponent_of(float(peak))
    sum_ = torch.zeros_like(peak)
    for (part,) in _chunks(a.detach()):
        scaled = times_power(part.double(), -exponent)
        sum_ += torch.dot(scaled, scaled)
    return times_power(sum_.sqrt(), exponent)


def total(a: Tensor) -> Tensor:
    """Compute the sum of all entries; () float64."""
    sum_ = torch.zeros((), dtype=torch.float64, device=a.device)
    for (part,) in _chunks(a.detach()):
        sum_ += part.sum(dtype=torch.float64)
    return sum_


def inner_columns(a: Tensor, b: Tensor) -> Tensor:
    """Compute the inner products of corresponding columns, sum_i a_ij b_ij: two (n, m) to (m,) float64."""
    sums = torch.zeros(a.shape[1], dtype=torch.float64, device=a.device)
    rows = max(1, CHUNK // max(1, a.shape[1]))
    for one, two in zip(a.detach().split(rows), b.detach().split(rows), strict=True):
        sums += (one.double() * two.double()).sum(0)
    return sums


def exponent_of(peak: float) -> int:
    """Return e with 2^(e - 1) <= peak < 2^e; 0 for zero and for what is not finite."""
    return math.frexp(peak)[1] if 0 < peak < math.inf else 0


def times_power(values: Tensor, exponent: int) -> Tensor:
    """Multiply values with 2^exponent: exact within the range of their type, even if 2^exponent is outside.

    ``torch.ldexp`` forms 2^exponent first, which is zero or infinite for what a subnormal or huge number needs.
    """
    most = 1000 if values.dtype == torch.float64 else 100
    while exponent:
        step = max(-most, min(most, exponent))
        values, exponent = values * 2.0**step, exponent - step
    return values


def _chunks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Split all entries of tensors of one shape into corresponding vectors of at most ``CHUNK``."""
    first = tensors[0]
    if first.numel() == 0:
        return
    if first.numel() <= CHUNK:
        yield tuple(t.reshape(-1) for t in tensors)
    elif all(t.is_contiguous() for t in tensors):
        yield from zip(*(t.view(-1).split(CHUNK) for t in tensors), strict=True)
    else:  # a view: flattening it would copy it, so along its first dimension
        rows = max(1, CHUNK // (first.numel() // len(first)))
        for parts in zip(*(t.split(rows) for t in tensors), strict=True):
            yield from _chunks(*parts) if rows > 1 else _chunks(*(part[0] for part in parts))
