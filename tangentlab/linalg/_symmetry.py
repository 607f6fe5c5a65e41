"""What makes a matrix a kernel up to rounding: symmetry, no negative eigenvalues; and where rounding begins."""

from collections.abc import Iterator

import torch
from torch import Tensor

from tangentlab._errors import TangentError

_TILE = 2048
ASYMMETRY = 1e-4
"""A kernel may differ from its transpose by this fraction of its largest entry."""


def spans(n: int, width: int) -> Iterator[slice]:
    """0 to n in pieces of ``width``, the last one shorter."""
    for start in range(0, n, width):
        yield slice(start, min(start + width, n))


def require_symmetric(matrix: Tensor) -> None:
    """Refuse a square matrix that is not finite or not symmetric. One pass in tiles, no copy of the matrix.

    Raises:
        TangentError: An entry is not finite, or differs from its mirror by more than 1e-4 of the largest entry.
    """
    largest = asymmetry = 0.0
    for rows in spans(len(matrix), _TILE):
        for columns in spans(rows.stop, _TILE):
            tile, mirror = matrix[rows, columns], matrix[columns, rows].T
            peak = torch.stack([tile.abs().max(), mirror.abs().max(), (tile - mirror).abs().max()]).double()
            if not bool(torch.isfinite(peak).all()):
                raise TangentError(
                    "The kernel holds NaN or infinite values.",
                    why=f"They are in rows {rows.start} to {rows.stop - 1} or those columns.",
                    remedy="Compute it anew, in float64 if numbers grew too large.",
                )
            largest = max(largest, float(peak[:2].max()))
            asymmetry = max(asymmetry, float(peak[2]))
    if asymmetry > ASYMMETRY * largest:
        raise TangentError(
            f"The kernel differs from its transpose by up to {asymmetry:.3g}.",
            why="A kernel of points with themselves is symmetric.",
            remedy="Give K(x, x), with the same points in the same order on both sides.",
        )


def rank_cutoff(values: Tensor, dtype: torch.dtype = torch.float64, n: int | None = None) -> float:
    """Eigenvalues at or below this are zero up to rounding.

    The largest of: n eps lambda_max in float64 (LAPACK's own error); eps lambda_max in the precision that the kernel
    was computed in (errors of its entries have about this norm); twice the most negative eigenvalue, because an exact
    kernel has none, so its size is a measured error.

    Args:
        values: All eigenvalues of the kernel, or some with the smallest and the largest among them, in any order.
        dtype: The precision the kernel was computed in.
        n: Size of the kernel, where ``values`` are not all.
    """
    if not len(values):
        return 0.0
    largest, smallest = float(values.max().clamp(min=0)), float(values.min().clamp(max=0))
    double = (n or len(values)) * torch.finfo(torch.float64).eps
    return max(largest * max(double, torch.finfo(dtype).eps), -2 * smallest)


def require_positive(values: Tensor, ridge: float = 0.0) -> None:
    """Refuse eigenvalues of K + ridge that are negative by more than rounding.

    Rounding is a thousand times n eps lambda_max of float64, or 1e-4 lambda_max, whichever is larger.

    Raises:
        TangentError: Names the smallest eigenvalue and the ridge to try.
    """
    if not len(values):
        return
    largest, smallest = float(values.max()), float(values.min())
    scale = max(largest, 0.0)
    allowed = max(1e3 * len(values) * torch.finfo(torch.float64).eps, 1e-4) * scale
    if smallest < -allowed and smallest + ridge <= 0:
        raise TangentError(
            f"The kernel has eigenvalues from {smallest:.3g} to {largest:.3g}.",
            why="A kernel has none below zero, and these are below it by more than rounding.",
            remedy=f"Compute the kernel in float64, or use ridge={ridge_to_try(smallest, largest):.3g} or more.",
        )


def lifted(values: Tensor, ridge: float) -> Tensor:
    """Eigenvalues that a ridge makes positive: as they are, or without those below zero by rounding."""
    return values if float(values.min()) + ridge > 0 else values.clamp(min=0)


def ridge_to_try(smallest: float, largest: float) -> float:
    """A ridge that makes a kernel of these extreme eigenvalues safely positive definite."""
    return max(-2 * smallest, 1e-8 * abs(largest)) or 1.0


def not_positive(smallest: float, largest: float, size: int, ridge: float, then: str = "") -> TangentError:
    """The refusal of a kernel that a Cholesky factorisation cannot take."""
    return TangentError(
        f"The kernel of {size:,} points plus ridge {ridge:.3g} is not positive definite: its smallest eigenvalue is "
        f"about {smallest + ridge:.3g}, its largest {largest + ridge:.3g}.",
        why="It is singular, or its rounding errors are as large as its small eigenvalues.",
        remedy=f"Use ridge={ridge_to_try(smallest, largest):.3g} or more{then}.",
    )
