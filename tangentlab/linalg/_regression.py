"""A fitted kernel regression."""

import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._html import card
from tangentlab._scaling import columns_to_unit, number, restored, times_powers
from tangentlab._sums import exponent_of
from tangentlab.linalg._targets import Targets

_ACCEPTED = 1e-6
"""The largest residual of a regular system that is returned without a warning."""


@dataclass(frozen=True, eq=False)
class Regression:
    """Kernel regression with prior mean f0: f(x) = f0(x) + K(x, X) a with (K + ridge) a = y - f0.

    Without a ridge, u = J^T a is the minimum-norm solution of y - f0 = J u (the least-squares solution if none exists),
    and f is the linearized network with weights theta0 + u.

    Attributes:
        coefficients: a, (n, R), float64.
        ridge: The number that was added to the diagonal.
        method: The solver.
        rank: The number of directions of the kernel that were used: n, or fewer if the kernel is found to be singular
            ("cg" does not check).
        residual: The largest ||(K + ridge) a - (y - f0)|| / ||y - f0|| over the columns. For a singular kernel, the
            part of the targets that no weights can reach.
        norm: ||u|| = sqrt(a^T K a) of each column, (R,): the distance that the weights move.
        cutoff: Eigenvalues of the kernel up to this size count as zero; 0 if none was left out.
    """

    coefficients: Tensor
    ridge: float
    method: str
    rank: int
    residual: float
    norm: Tensor
    cutoff: float
    _data: Targets = field(repr=False)

    def predict(self, cross: Any, f0: Any = None) -> Tensor:
        """Predict at m new points.

        Cost: 2 m n R operations with a matrix, otherwise a product with R vectors.

        Args:
            cross: K(x_new, X): (m, n), or (m, L, N, L) for a full kernel; a tensor, an array or anything with ``@``.
            f0: The prior mean at the new points, in the shape of the predictions, or a number for all of them. Needed
                if the fit has one; 0 then gives the difference from it.

        Returns:
            (m,) or (m, R) as the targets were, float64.

        Raises:
            TangentError: Shapes do not fit, or the prior mean is missing.
        """
        if f0 is None and self._data.prior:
            raise TangentError(
                "The fit has a prior mean f0 and the new points have none.",
                why="Without it the predictions would only be the difference from the network's outputs.",
                remedy="Give f0=network(x_new); f0=0 for the difference.",
            )
        cross = self._rows(cross)
        a = self.coefficients
        values = cross.to(a) @ a if isinstance(cross, Tensor) else cross @ a.to(cross.dtype)
        values = torch.as_tensor(values).to(a).reshape(-1, *self._data.trailing)
        if not bool(torch.isfinite(values).all()):
            raise TangentError(
                "The predictions are not finite.",
                why="The kernel of the new points holds NaN or infinite values, or they are too large.",
                remedy="Check it, and compute it in float64.",
            )
        return values if f0 is None else add_prior(values, f0)

    def _rows(self, cross: Any) -> Any:
        """Return the kernel of new points as a tensor (m, n), or as an operator of that shape, after checks."""
        n = len(self.coefficients)
        if hasattr(cross, "__array__") or not hasattr(cross, "__matmul__"):
            cross = torch.as_tensor(cross).detach()
        if isinstance(cross, Tensor):
            cross = self._data.rows(cross)
        if len(cross.shape) != 2 or cross.shape[1] != n:
            raise TangentError(
                f"The kernel of new points has the shape {tuple(cross.shape)}.",
                why=f"It must have {n:,} columns, one per training point (and output).",
                remedy="Give K(x_new, x_train), new points first.",
            )
        if self._data.outputs and cross.shape[0] % self._data.outputs:
            raise TangentError(
                f"The kernel of new points has {cross.shape[0]} rows.",
                why=f"Every point has {self._data.outputs} outputs.",
                remedy="Give (m, L, N, L), or (m L, N L).",
            )
        return cross

    def __repr__(self) -> str:
        n, columns = self.coefficients.shape
        return (
            f"Regression({n:,} points, {columns} right-hand sides, ridge {self.ridge:.3g}, {self.method}, "
            f"rank {self.rank:,}, residual {self.residual:.2g})"
        )

    def _repr_html_(self) -> str:
        facts = {
            "points": len(self.coefficients),
            "right-hand sides": self.coefficients.shape[1],
            "ridge": self.ridge,
            "method": self.method,
            "rank": self.rank,
            "residual": self.residual,
        }
        return card("Regression", facts)


@dataclass(frozen=True)
class Solved:
    """The result of a solver for 2^-exponent K and targets at unit size.

    Attributes:
        coefficients: (n, R).
        rank: The number of directions that were used.
        method: The solver.
        cutoff: Eigenvalues up to this size were left out.
        note: A change of the kernel that affects the targets.
    """

    coefficients: Tensor
    rank: int
    method: str
    cutoff: float = 0.0
    note: str = ""


def add_prior(values: Tensor, f0: Any) -> Tensor:
    """Add the prior mean at new points, in the shape of the predictions or a number for all of them.

    Raises:
        TangentError: It has another shape, which would be broadcast, or is no number.
    """
    try:
        start = torch.as_tensor(f0).detach().to(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TangentError(
            f"f0 is a {type(f0).__name__}, not numbers.", remedy="Give f0 in the shape of the predictions."
        ) from error
    if start.ndim and start.shape != values.shape:
        raise TangentError(
            f"The shape of f0 is {tuple(start.shape)}, that of the predictions {tuple(values.shape)}.",
            remedy="Give f0 in the shape of the predictions.",
        )
    return start + values


def finish(
    found: Solved,
    data: Targets,
    image: Tensor,
    *,
    ridge: float,
    unit_ridge: float,
    exponent: int,
    accepted: float = _ACCEPTED,
) -> Regression:
    """Scale the answer back, with its residual; warn if that is larger than requested.

    Args:
        found: The solution at unit size.
        data: The right-hand sides.
        image: K times the coefficients, at unit size.
        ridge: The user's ridge.
        unit_ridge: 2^-exponent times the ridge.
        exponent: The exponent of the kernel.
        accepted: The largest residual of a regular system that is returned without a warning.
    """
    a, right = found.coefficients, data.columns
    size = right.norm(dim=0)
    gap = (image + unit_ridge * a - right).norm(dim=0)
    residual = float((gap / torch.where(size > 0, size, 1.0)).max())
    # a^T K a of columns of different scales, each at its own.
    level, powers = columns_to_unit(a)
    squares = (level * times_powers(image, [-p for p in powers])).sum(0).clamp(min=0)
    if found.note or (found.rank == len(a) and not residual <= accepted):
        reason = found.note or "The kernel's eigenvalues are too far apart for float64."
        warnings.warn(
            f"The residual of the regression is {residual:.2g}: (K + ridge) a misses that share of the targets. "
            f"{reason} Use a larger ridge, or a kernel in float64.",
            RuntimeWarning,
            stacklevel=3,
        )
    return Regression(
        coefficients=restored(a, [e - exponent for e in data.exponents], "coefficients"),
        ridge=ridge,
        method=found.method,
        rank=found.rank,
        residual=residual,
        norm=restored(
            squares.sqrt(), [e + p - exponent // 2 for e, p in zip(data.exponents, powers, strict=True)], "norms"
        ),
        cutoff=number(found.cutoff, exponent),
        _data=data,
    )


def ridge_alone(data: Targets, image: Tensor, *, ridge: float, exponent: int, method: str) -> Regression:
    """Return the answer for a ridge beside which the kernel is below rounding: a = (y - f0) / ridge.

    Args:
        data: The right-hand sides.
        image: K times them, at unit size.
        ridge: The ridge, which may be out of range at the kernel's unit size.
        exponent: The exponent of the kernel.
        method: The method that would have been used.
    """
    power = exponent_of(ridge)
    mantissa, right = number(ridge, -power), data.columns
    squares = (right * image).sum(0).clamp(min=0)
    sizes = right.norm(dim=0)
    share = (image.norm(dim=0) / torch.where(sizes > 0, sizes, 1.0)).max() / mantissa
    return Regression(
        coefficients=restored(right / mantissa, [e - power for e in data.exponents], "coefficients"),
        ridge=ridge,
        method=method,
        rank=len(right),
        residual=number(float(share), exponent - power),
        norm=restored(squares.sqrt() / mantissa, [e - power + exponent // 2 for e in data.exponents], "norms"),
        cutoff=0.0,
        _data=data,
    )
