"""Leave-one-out errors and generalized cross-validation for every ridge from one decomposition."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._html import card
from tangentlab._scaling import even_exponent, number, restored, times_powers
from tangentlab._sums import exponent_of, times_power
from tangentlab.linalg._eigen import decompose
from tangentlab.linalg._forms import as_source
from tangentlab.linalg._regression import Regression, Solved, finish
from tangentlab.linalg._ridge_errors import RidgeErrors
from tangentlab.linalg._spectrum import Spectrum
from tangentlab.linalg._symmetry import as_ridge, rank_cutoff, require_positive, ridge_to_try, spans
from tangentlab.linalg._targets import Targets, as_columns


@dataclass(frozen=True, eq=False)
class RidgePath(RidgeErrors):
    """Kernel regression for many ridges.

    Attributes:
        ridges: rho, (G,), ascending.
        leave_one_out: The exact mean squared error on samples that are left out, over all samples and columns, (G,).
        gcv: The generalized cross-validation score, averaged over columns, (G,).
        train: The mean squared error on the training points, (G,).
        degrees: The effective degrees of freedom tr K (K + rho)^-1, (G,).
        norms: ||u|| = sqrt(a^T K a), root of the sum of squares over columns, (G,).
    """

    _solve: "_Solve" = field(repr=False)

    def regression(self, ridge: float | None = None) -> Regression:
        """Return the fit for a ridge, by default the best one by leave-one-out; n^2 operations per column."""
        return self._solve.regression(self.best if ridge is None else as_ridge(ridge))

    def __repr__(self) -> str:
        return (
            f"RidgePath({len(self.ridges)} ridges from {float(self.ridges[0]):.3g} to {float(self.ridges[-1]):.3g}; "
            f"best by leave-one-out {self.best:.3g}, by GCV {self.best_by_gcv:.3g})"
        )

    def _repr_html_(self) -> str:
        facts = {"best by leave-one-out": self.best, "best by GCV": self.best_by_gcv}
        return card("RidgePath", facts, self.table.to_html(index=False, float_format="%.4g"))


def ridge_path(
    kernel: Any, targets: Any, ridges: Sequence[float] | Tensor | None = None, *, f0: Any = None
) -> RidgePath:
    r"""Fit kernel regression for every ridge from one eigendecomposition K = U Lambda U^T.

    With :math:`a = (K + \rho)^{-1} (y - f_0)` and :math:`B = (K + \rho)^{-1}`:

    .. math:: \text{leave-one-out residual}_i = a_i / B_{ii}, \qquad
        GCV = \frac{\|a\|^2 / n}{(\operatorname{tr} B / n)^2}

    Both equal their usual forms with the hat matrix H = K B, whose common factor rho cancels, so that ridge 0 is
    allowed if K is regular. For a kernel (N, L, N, L), a left-out row is one output of one sample. Cost: one
    decomposition and 2 n^2 (R + 1) operations per ridge.

    Args:
        kernel: A kernel source, or its complete :class:`Spectrum`.
        targets: As for :func:`regress`.
        ridges: Nonnegative numbers; by default 31 from 1e-9 lambda_max (or above rounding) to lambda_max.
        f0: The prior mean at the training points.

    Raises:
        TangentError: A ridge is 0 and the kernel singular; or the kernel is indefinite (with a ridge to try).

    Examples:
        >>> import torch
        >>> from tangentlab import linalg, ntk
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(8, 3)
        >>> kernel = ntk(model, x, readout="pntk")
        >>> path = linalg.ridge_path(kernel, torch.randn(8), [0.1, 1.0])
        >>> type(path).__name__
        'RidgePath'

    See also:
        :func:`tangentlab.linalg.regress`, :func:`tangentlab.analysis.predicted_error`.
    """
    if isinstance(kernel, Spectrum):
        exponent, outputs = even_exponent(float(kernel.values.abs().max())), None
        spectrum = kernel.scaled(-exponent)
    else:
        source = as_source(kernel).unit()
        exponent, outputs, spectrum = source.exponent, source.outputs, decompose(source)
    if not spectrum.complete:
        raise TangentError(
            f"The spectrum holds {len(spectrum.values):,} of {spectrum.n:,} eigenpairs.",
            why="Leave-one-out needs them all.",
            remedy="Give the kernel, or eigh(kernel) without k.",
        )
    data = as_columns(spectrum.n, outputs, spectrum.vectors.device, targets, f0)
    solve = _Solve(spectrum, exponent, data)
    grid = solve.grid() if ridges is None else _sorted(ridges)
    columns = list(zip(*(solve.measures(float(ridge)) for ridge in grid), strict=True))
    left_out, gcv, train, degrees, norms = (torch.stack(column) for column in columns)
    return RidgePath(grid.to(left_out), left_out, gcv, train, degrees, norms, solve)


def _sorted(ridges: Sequence[float] | Tensor) -> Tensor:
    try:
        grid = torch.as_tensor(ridges, dtype=torch.float64).flatten().sort().values
    except (TypeError, ValueError, RuntimeError):
        grid = torch.empty(0)
    if not len(grid) or not bool(torch.isfinite(grid).all()) or float(grid[0]) < 0:
        raise TangentError("The ridges are not nonnegative numbers.", remedy="Give positive numbers, or None.")
    return grid


class _Solve:
    """The inverses (K + rho)^-1 for any rho from the eigenpairs; eigenvalues that are not among them are zero.

    Each ridge is solved at the unit size of K + rho, which is that of the kernel or of the ridge.

    Args:
        spectrum: The complete spectrum of 2^-exponent K.
        exponent: The exponent.
        data: The right-hand sides.
    """

    def __init__(self, spectrum: Spectrum, exponent: int, data: Targets) -> None:
        self.spectrum, self.exponent, self.data = spectrum, exponent, data
        self.vectors, self.n = spectrum.vectors, spectrum.n
        self.cutoff = rank_cutoff(spectrum.values, spectrum.dtype, spectrum.n)
        self.projected = self.vectors.T @ data.columns
        self.thin = len(spectrum.values) < self.n
        self.outside = data.columns - self.vectors @ self.projected if self.thin else None

    def grid(self) -> Tensor:
        """Choose 31 ridges from 1e-9 lambda_max, or above rounding, to lambda_max."""
        largest = float(self.spectrum.values[0])
        largest = largest if largest > 0 else 1.0
        first, last = math.log10(max(1e-9 * largest, self.cutoff)), math.log10(largest)
        return restored(torch.logspace(first, last, 31, dtype=torch.float64), self.exponent, "ridges")

    def regression(self, ridge: float) -> Regression:
        """Return the fit for a ridge."""
        level, values, rho = self._at(ridge)
        a = self._coefficients(values, rho)
        image = self.vectors @ (values[:, None] * (self.vectors.T @ a))
        found = Solved(a, self.n, "eigen")
        return finish(found, self.data, image, ridge=ridge, unit_ridge=rho, exponent=level)

    def measures(self, ridge: float) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Compute leave-one-out error, GCV, training error, degrees of freedom and norm."""
        level, values, rho = self._at(ridge)
        inverse = 1 / (values + rho)
        a = self._coefficients(values, rho)
        diagonal = torch.cat([self._diagonal(rows, inverse, rho) for rows in spans(self.n, 2048)])
        left_out = (a / diagonal[:, None]).square().mean(0)
        gcv = a.square().mean(0) / (diagonal.sum() / self.n).square()
        train = (rho * a).square().mean(0)
        squares = (values[:, None] * (self.projected * inverse[:, None]).square()).sum(0).clamp(min=0)
        return (
            self._mean(left_out, "errors"),
            self._mean(gcv, "errors"),
            self._mean(train, "errors"),
            (values * inverse).sum(),
            self._norm(squares, level),
        )

    def _at(self, ridge: float) -> tuple[int, Tensor, float]:
        """Return the exponent of K + rho, and eigenvalues and ridge at that unit size; refuse if it is not positive."""
        values, rho = self.spectrum.values, number(ridge, -self.exponent)
        above = exponent_of(ridge) - self.exponent if ridge else 0  # how far the ridge is above the kernel
        above = 2 * (above // 2) if above > 64 else 0
        require_positive(values, rho, self.spectrum.dtype, self.exponent, self.n)
        rank = int((values > self.cutoff).sum())
        smallest, largest = float(values[-1]) if not self.thin else 0.0, float(values[0])
        if (ridge == 0 and rank < self.n) or smallest + rho <= 0:
            low, step = number(smallest, self.exponent), number(ridge_to_try(smallest, largest), self.exponent)
            raise TangentError(
                f"The ridge {ridge:.3g} is too small: the kernel of size {self.n:,} has rank {rank:,} and smallest "
                f"eigenvalue {low:.3g}.",
                why="If K + ridge is singular, the others do not determine a left-out sample.",
                remedy=f"Start at ridge={step:.3g}; linalg.regress computes the minimum-norm solution.",
            )
        return self.exponent + above, times_power(values, -above), number(ridge, -self.exponent - above)

    def _coefficients(self, values: Tensor, ridge: float) -> Tensor:
        """Compute a, (n, R)."""
        a = self.vectors @ (self.projected / (values + ridge)[:, None])
        return a if self.outside is None else a + self.outside / ridge

    def _diagonal(self, rows: slice, inverse: Tensor, ridge: float) -> Tensor:
        """Compute some entries of the diagonal of (K + rho)^-1 without a second matrix as large as the eigenvectors."""
        squares = self.vectors[rows].square()
        diagonal = squares @ inverse
        return diagonal + (1 - squares.sum(1)).clamp(min=0) / ridge if self.thin else diagonal

    def _mean(self, squares: Tensor, what: str) -> Tensor:
        """Average squares over columns that each have their own scale."""
        top = max(self.data.exponents)
        return restored(times_powers(squares, [2 * (e - top) for e in self.data.exponents]).mean(), 2 * top, what)

    def _norm(self, squares: Tensor, level: int) -> Tensor:
        """Compute ||u|| over all columns: the root of the sum of a^T K a."""
        top = max(self.data.exponents)
        total = times_powers(squares, [2 * (e - top) for e in self.data.exponents]).sum()
        return restored(total.sqrt(), top - level // 2, "norms")
