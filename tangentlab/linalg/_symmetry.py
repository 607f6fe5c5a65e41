"""Conditions for a matrix to be a kernel up to rounding: symmetry and no negative eigenvalues."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._scaling import number

_TILE = 2048


def asymmetry_allowed(precision: torch.dtype) -> float:
    """Return the fraction of its largest entry by which a kernel may differ from its transpose."""
    return 1e-6 if precision == torch.float64 else 1e-4


def spans(n: int, width: int) -> Iterator[slice]:
    """Split 0 to n into pieces of ``width``, the last one shorter."""
    for start in range(0, n, width):
        yield slice(start, min(start + width, n))


def require_symmetric(matrix: Tensor, precision: torch.dtype | None = None) -> tuple[float, float]:
    """Refuse a square matrix that is not finite or not symmetric.

    Cost: one pass over the matrix in tiles, without a copy of it.

    Args:
        matrix: (n, n).
        precision: The precision of its entries, if it is not that of the tensor.

    Returns:
        The largest entry and the largest difference of an entry from its transpose, in absolute value.

    Raises:
        TangentError: An entry is not finite, or differs from its transpose by more than 1e-6 of the largest entry in
            float64, 1e-4 in lower precisions.

    Examples:
        >>> import torch
        >>> from tangentlab import linalg
        >>> len(linalg.require_symmetric(torch.eye(3)))
        2

    See also:
        :func:`tangentlab.linalg.require_positive`.
    """
    largest = asymmetry = 0.0
    for rows in spans(len(matrix), _TILE):
        for columns in spans(rows.stop, _TILE):
            tile, mirror = matrix[rows, columns], matrix[columns, rows].T
            peak = torch.stack([tile.abs().max(), mirror.abs().max()]).double()
            if not bool(torch.isfinite(peak).all()):
                raise TangentError(
                    "The kernel holds NaN or infinite values.",
                    why=f"They are in rows {rows.start} to {rows.stop - 1} or those columns.",
                    remedy="Compute it again, in float64 if the values are too large.",
                )
            largest = max(largest, float(peak.max()))
            asymmetry = max(asymmetry, float((tile / 2 - mirror / 2).abs().max()) * 2)
    if asymmetry > asymmetry_allowed(precision or matrix.dtype) * largest:
        raise not_symmetric(asymmetry)
    return largest, asymmetry


def not_symmetric(difference: float) -> TangentError:
    """Build the refusal of an asymmetric matrix or operator."""
    return TangentError(
        f"The kernel differs from its transpose by up to {difference:.3g}.",
        why="A kernel of points with themselves is symmetric up to the rounding of its precision.",
        remedy="Give K(x, x) with the same points in the same order on both sides, or (K + K.T) / 2 if it is a kernel.",
    )


def rank_cutoff(values: Tensor, dtype: torch.dtype = torch.float64, n: int | None = None) -> float:
    """Return the size at or below which eigenvalues are zero up to rounding.

    It is the largest of: n eps lambda_max in float64 (LAPACK's own error); eps lambda_max in the precision of the
    kernel (the approximate norm of its entries' errors); twice the most negative eigenvalue, which is a measured error,
    because an exact kernel has no negative eigenvalue.

    Cost: one pass over the values.

    Args:
        values: All eigenvalues of the kernel, or some with the smallest and the largest among them, in any order.
        dtype: The precision in which the kernel was computed.
        n: The size of the kernel, if ``values`` are not all.

    Examples:
        >>> import torch
        >>> from tangentlab import linalg
        >>> linalg.rank_cutoff(torch.tensor([1.0, 1e-3])) < 1e-12
        True

    See also:
        :func:`tangentlab.linalg.effective_rank`, :func:`tangentlab.linalg.least_squares`.
    """
    if not len(values):
        return 0.0
    largest, smallest = float(values.max().clamp(min=0)), float(values.min().clamp(max=0))
    double = (n or len(values)) * torch.finfo(torch.float64).eps
    return max(largest * max(double, torch.finfo(dtype).eps), -2 * smallest)


def negative_allowed(n: int, precision: torch.dtype) -> float:
    """Return how far below zero rounding may push an eigenvalue, as a fraction of the largest.

    Errors of a few eps in every entry form a matrix of norm about sqrt(n) eps times the diagonal: 8 sqrt(n) eps in the
    precision of the entries, at most 1 %; or a thousand times LAPACK's own n eps in float64.
    """
    entries = min(8 * math.sqrt(n) * torch.finfo(precision).eps, 1e-2)
    return max(1e3 * n * torch.finfo(torch.float64).eps, entries)


def require_positive(
    values: Tensor,
    ridge: float = 0.0,
    precision: torch.dtype = torch.float64,
    exponent: int = 0,
    n: int | None = None,
) -> None:
    """Refuse eigenvalues of K + ridge that are negative by more than rounding, see :func:`negative_allowed`.

    Cost: one pass over the values.

    Args:
        values: All eigenvalues, or some with the smallest and the largest among them.
        ridge: The ridge added to them.
        precision: The precision of the kernel's entries.
        exponent: The numbers are 2^-exponent times the user's.
        n: The size of the kernel, if ``values`` are not all.

    Raises:
        TangentError: The message has the smallest eigenvalue and a ridge to try.

    Examples:
        >>> import torch
        >>> from tangentlab import linalg
        >>> linalg.require_positive(torch.tensor([1.0, 0.5]), ridge=0.1)

    See also:
        :func:`tangentlab.linalg.require_symmetric`, :func:`tangentlab.linalg.regress`.
    """
    if not len(values):
        return
    largest, smallest = float(values.max()), float(values.min())
    allowed = negative_allowed(n or len(values), precision) * max(largest, 0.0)
    if smallest < -allowed and smallest + ridge <= 0:
        low, high, step = (number(v, exponent) for v in (smallest, largest, ridge_to_try(smallest, largest)))
        raise TangentError(
            f"The kernel has eigenvalues from {low:.3g} to {high:.3g}.",
            why=f"A kernel has no negative eigenvalues, and these exceed the rounding of {precision}.",
            remedy=f"Compute the kernel in float64 (pass it in float32 if that is how it was computed), or use "
            f"ridge={step:.3g} or more.",
        )


def ridge_to_try(smallest: float, largest: float) -> float:
    """Suggest a ridge that makes a kernel of these extreme eigenvalues safely positive definite."""
    return max(-2 * smallest, 1e-8 * abs(largest)) or 1.0


def not_positive(
    smallest: float, largest: float, size: int, ridge: float, then: str = "", exponent: int = 0
) -> TangentError:
    """Build the refusal of a kernel without Cholesky factor; numbers are 2^-exponent times the user's."""
    low, high, given, step = (
        number(v, exponent) for v in (smallest + ridge, largest + ridge, ridge, ridge_to_try(smallest, largest))
    )
    return TangentError(
        f"The kernel of {size:,} points plus ridge {given:.3g} is not positive definite: its smallest eigenvalue is "
        f"about {low:.3g}, its largest {high:.3g}.",
        why="It is singular, or its rounding errors are as large as its small eigenvalues.",
        remedy=f"Use ridge={step:.3g} or more{then}.",
    )


def as_ridge(ridge: Any) -> float:
    """Convert a ridge to a number that is not negative, or refuse it."""
    try:
        value = float("nan") if isinstance(ridge, (bool, str)) else float(ridge)
    except (TypeError, ValueError, RuntimeError):
        value = float("nan")
    if not (value >= 0 and math.isfinite(value)):
        raise TangentError(
            f"The ridge {ridge!r} is not a nonnegative number.", remedy="Use 0, or a small positive number."
        )
    return value
