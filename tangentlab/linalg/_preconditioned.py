"""LSQR on the system of a least-squares problem, preconditioned by a Cholesky factor of the kernel."""

import math
from copy import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._progress import Ticker
from tangentlab.linalg._cholesky import PackedCholesky
from tangentlab.linalg._eigen import decompose
from tangentlab.linalg._jacobian import ScaledJacobian
from tangentlab.linalg._lsqr import lsqr
from tangentlab.linalg._solvers import largest
from tangentlab.linalg._source import Source
from tangentlab.linalg._weak import weak_directions

_TOLERANCE = 1e-9
"""The residual of one solution by LSQR, which the next one takes as its right-hand side."""
_REFINEMENTS = 5
_SURE = 1e-4
"""The next refinement, as far as the last two foretell it, is left out below this share of the rounding of x."""
_ATTEMPTS = 8
"""Shifts that are tried, each ten times the last, until the shifted kernel has a factor."""
_ACCEPTED = 1e3
"""The residual, in units of rounding of the products, up to which a system counts as solved,"""
_MISSED = 1e-2
"""and as a share of the right-hand side: a huge u meets any right-hand side up to its own rounding."""
_FLOOR = 2 / 3
"""The power of the precision below which singular values, relative to the largest, are damped if there is no solution.

A smaller floor leaves more rounding in the part of b that is in the range of J: a share of (eps / floor)^2.
"""
_HALF = 0.5
"""The power of the precision up to which J^T (b - J u), relative to largest singular value and b, counts as zero, and a
ridge's rounding, relative to u."""
_SLOPE = 10
"""The rounding of J^T (b - J u) that a large u causes, in units of that of its product with J^T J."""


class System:
    """The system L^-1 P [J, sqrt(ridge)] (u, w) = L^-1 P b at unit size, P the projection off the weak directions.

    With a ridge, u is that part of the minimum-norm solution of J u + sqrt(ridge) w = b, which always exists. Where
    J u = b has no solution, a ridge far below the rounding of K gives the least squares; the factor stays the same.

    Attributes:
        factor: L.
        weak: Orthonormal left singular vectors of J that count as zero, (n, m).
        cutoff: Singular values of J below this were left out; 0 for none.
    """

    def __init__(self, matrix: ScaledJacobian, source: Source, ridge: float, cutoff: float) -> None:
        self.matrix, self.root = matrix, ridge**0.5
        self.rows, self.columns = matrix.shape
        # A cutoff needs the largest singular value; without one an estimate from below will do.
        top = float(decompose(source, 1).values[0]) if cutoff else largest(source)
        self.largest = max(0.0, top) ** 0.5
        self.cutoff = cutoff * self.largest
        # The rounding error of a sum of n products, in the coarser precision of both.
        level = max(float(torch.finfo(source.precision).eps), matrix.eps) * float(source.diagonal().sum())
        shift = max(level, self.cutoff**2) or 1.0  # a Jacobian of zeros
        self.factor, shift = _shifted_factor(source, ridge, shift, even=bool(cutoff))
        # Ten times the error of a product: what looks smaller than that is out of the range of J.
        self.rounding = 10 * matrix.eps * self.largest / (shift + ridge) ** 0.5
        self.weak = torch.empty(source.n, 0, dtype=torch.float64, device=source.device)
        if cutoff:
            self.weak = weak_directions(self.factor, matrix.pull, matrix.push, shift, self.cutoff)

    def _strong(self, vector: Tensor) -> Tensor:
        return vector - self.weak @ (self.weak.T @ vector)

    def _image(self, x: Tensor) -> Tensor:
        """Multiply P [J, sqrt(ridge)] with (u, w)."""
        image = self._push(x)
        return self._strong(image + self.root * x[self.columns :] if self.root else image)

    def _push(self, x: Tensor) -> Tensor:
        """Compute J u from (u, w)."""
        return self.matrix.push(x[: self.columns, None])[:, 0]

    def _product(self, x: Tensor) -> Tensor:
        return self.factor.solve_lower(self._image(x)[:, None])[:, 0]

    def _dual(self, y: Tensor) -> Tensor:
        return self._strong(self.factor.solve_upper(y[:, None])[:, 0])

    def _transposed(self, y: Tensor) -> Tensor:
        dual = self._dual(y)
        pulled = self.matrix.pull(dual[:, None])[:, 0]
        return torch.cat([pulled, self.root * dual]) if self.root else pulled

    def solve(self, right: Tensor, iterations: int, tick: Ticker) -> "Solved":
        """Solve for one right-hand side; where there is no solution, for its part in the range of J."""
        found, system, floor = self._refined(self._strong(right), iterations, tick), self, 0.0
        solved = found.converged and self._met(found, right)
        if found.converged and not self.cutoff and not (solved and self._clean(found, right)):
            floor = self.matrix.eps**_FLOOR * (self.largest or 1.0)
            damped, system = copy(self), copy(self)
            damped.root = floor
            system.root = self.root if self.root > floor else 0.0  # a smaller ridge changes nothing but the rounding
            # J^T a has lost u in rounding, because a is b's part out of the range over floor^2. J u has not.
            range_ = damped._refined(right, iterations, tick)
            products = found.iterations + range_.iterations
            found = system._refined(self._push(range_.x), iterations, tick)
            solved = found.converged and range_.converged
            found = replace(found, iterations=found.iterations + products, converged=solved)
        if floor or self.root:  # w alone can meet any b
            solved &= system._stationary(found, right)
        gap, size = float(self._gap(found, right).norm()), float(right.norm())
        if not solved:
            raise _unsolved(gap / size, iterations if not found.converged else None, self.matrix.eps)
        return Solved(found.x[: self.columns], found.dual, gap / size if size else 0.0, found.iterations, floor)

    def _refined(self, wanted: Tensor, iterations: int, tick: Ticker) -> "_Found":
        """Solve by LSQR, again and again for what is left of the right-hand side."""
        unknowns = self.columns + (self.rows if self.root else 0)
        x, dual, count, last = wanted.new_zeros(unknowns), torch.zeros_like(wanted), 0, float("inf")
        converged = True
        for _ in range(_REFINEMENTS):
            left = self.factor.solve_lower((wanted - self._image(x))[:, None])[:, 0]
            if not bool(left.any()):
                break
            step = lsqr(
                self._product,
                self._transposed,
                left,
                tolerance=max(_TOLERANCE, self.matrix.eps),
                rounding=self.rounding,
                iterations=iterations - count,
                tick=tick,
            )
            count, converged = count + step.iterations, step.converged
            change = float(step.x.norm())
            if change > last / 2:  # rounding is reached
                break
            # The next change would be as much smaller than this one as this is than the last.
            coming = change * min(1.0, change / last if math.isfinite(last) else 1.0)
            x, dual, last = x + step.x, dual + self._dual(step.y), change
            if coming <= _SURE * self.matrix.eps * float(x.norm()) or count >= iterations:
                break
        return _Found(x, dual, count, converged)

    def _met(self, found: "_Found", right: Tensor) -> bool:
        """Return whether [J, sqrt(ridge)] (u, w) is b, up to rounding."""
        missed, size = float((self._strong(right) - self._image(found.x)).norm()), float(right.norm())
        rounding = self.matrix.eps * (self.largest * float(found.x.norm()) + size)
        return missed <= min(_ACCEPTED * self.rows**0.5 * rounding, _MISSED * size)

    def _clean(self, found: "_Found", right: Tensor) -> bool:
        """Return whether the rounding of w = (b - J u) / sqrt(ridge), which is in u, too, is small beside u."""
        if not self.root:
            return True
        leak = self.matrix.eps * self.largest * float(self._gap(found, right).norm()) / self.root**2
        return leak <= self.matrix.eps**_HALF * float(found.x[: self.columns].norm())

    def _stationary(self, found: "_Found", right: Tensor) -> bool:
        """Return whether J^T (b - J u) is ridge times u, up to rounding: whether u has the least squares."""
        u = found.x[: self.columns]
        slope = self.matrix.pull(self._gap(found, right)[:, None])[:, 0] - self.root**2 * u
        rounding = _SLOPE * self.matrix.eps * self.largest * float(u.norm())
        return float(slope.norm()) <= self.largest * (self.matrix.eps**_HALF * float(right.norm()) + rounding)

    def _gap(self, found: "_Found", right: Tensor) -> Tensor:
        """Compute b - J u."""
        return right - self._push(found.x)


@dataclass(frozen=True, eq=False)
class _Found:
    """What LSQR found.

    Attributes:
        x: u and w.
        dual: a, with u = J^T a.
        iterations: Products with J.
        converged: Whether the iterations sufficed.
    """

    x: Tensor
    dual: Tensor
    iterations: int
    converged: bool


@dataclass(frozen=True, eq=False)
class Solved:
    """The solution for one right-hand side.

    Attributes:
        solution: u.
        dual: a, with u = J^T a.
        residual: ||J u - b|| / ||b||.
        iterations: Products with J.
        floor: As in :class:`tangentlab.linalg.LeastSquares`, at unit size.
    """

    solution: Tensor
    dual: Tensor
    residual: float
    iterations: int
    floor: float


def _shifted_factor(source: Source, ridge: float, shift: float, even: bool) -> tuple[PackedCholesky, float]:
    """Compute a factor of K + ridge + shift, with a larger shift where that is not positive definite.

    Args:
        source: K.
        ridge: The ridge.
        shift: The shift.
        even: Whether the shift must be the same for all rows. Otherwise it grows from the row on at which it is too
            small, so that no work is lost: a preconditioner may have any.
    """
    for _ in range(_ATTEMPTS):
        factor = PackedCholesky(source, ridge + shift, growth=1.0 if even else 10.0)
        if factor.failed is None:
            return factor, shift
        del factor
        shift *= 10
    raise TangentError(
        "The kernel is not positive definite.",
        why="It is not the product J J^T of the Jacobian with itself.",
        remedy="Give kernel= of the same samples, readout and parameters.",
    )


def _unsolved(residual: float, iterations: int | None, eps: float) -> TangentError:
    if iterations is None:
        why = "The right-hand side cannot be met, and rounding hides which part of it can."
        remedy = "Compute in float64." if eps > torch.finfo(torch.float64).eps else ""
    else:
        why = "The Jacobian has many singular values below the rounding of its kernel."
        remedy = f"Give more than {iterations=:,}."
    return TangentError(
        f"No solution was found: the residual is {residual:.2g} of the right-hand side.",
        why=why,
        remedy=f"{remedy} A cutoff or a larger ridge makes the system easier.".strip(),
    )
