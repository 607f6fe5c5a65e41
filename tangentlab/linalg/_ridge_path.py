"""Every ridge from one decomposition: leave-one-out errors and generalised cross-validation."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._html import card
from tangentlab.linalg._eigen import eigh
from tangentlab.linalg._low_rank import LowRank
from tangentlab.linalg._regression import Regression, Targets, as_columns
from tangentlab.linalg._source import as_source
from tangentlab.linalg._spectrum import Spectrum
from tangentlab.linalg._symmetry import lifted, rank_cutoff, require_positive, ridge_to_try, spans


@dataclass(frozen=True, eq=False)
class RidgePath:
    """Kernel regression for many ridges.

    Attributes:
        ridges: rho, (G,), ascending.
        leave_one_out: Mean squared error on samples that are left out, exactly, over all samples and columns, (G,).
        gcv: Generalised cross-validation, mean over columns, (G,).
        train: Mean squared error on the training points, (G,).
        degrees: Effective degrees of freedom tr K (K + rho)^-1, (G,).
        norms: ||u|| = sqrt(a^T K a), root of the sum of squares over columns, (G,).
    """

    ridges: Tensor
    leave_one_out: Tensor
    gcv: Tensor
    train: Tensor
    degrees: Tensor
    norms: Tensor
    _spectrum: Spectrum = field(repr=False)
    _values: Tensor = field(repr=False)
    _data: Targets = field(repr=False)

    @property
    def best(self) -> float:
        """The ridge with the smallest leave-one-out error."""
        return float(self.ridges[int(self.leave_one_out.argmin())])

    @property
    def best_by_gcv(self) -> float:
        """The ridge with the smallest generalised cross-validation."""
        return float(self.ridges[int(self.gcv.argmin())])

    def regression(self, ridge: float | None = None) -> Regression:
        """The fit for a ridge, by default the best one by leave-one-out; n^2 operations a column."""
        ridge = self.best if ridge is None else float(ridge)
        _require_ridge(ridge, self._spectrum)
        right, vectors = self._data.columns, self._spectrum.vectors
        coefficients = _Solve(self._spectrum, self._values, right).coefficients(ridge)
        image = vectors @ (self._values[:, None] * (vectors.T @ coefficients))
        norm = (coefficients * image).sum(0).clamp(min=0).sqrt()
        size = right.norm(dim=0)
        gap = (image + ridge * coefficients - right).norm(dim=0) / torch.where(size > 0, size, 1.0)
        return Regression(
            coefficients,
            ridge,
            "eigen",
            self._spectrum.n,
            float(gap.max()),
            norm,
            self._data.trailing,
            self._data.outputs,
            self._data.prior,
        )

    @property
    def table(self) -> Any:
        """A DataFrame, one row a ridge."""
        import pandas as pd

        columns = {
            "ridge": self.ridges,
            "leave_one_out": self.leave_one_out,
            "gcv": self.gcv,
            "train": self.train,
            "degrees": self.degrees,
            "norm": self.norms,
        }
        return pd.DataFrame({name: values.cpu().numpy() for name, values in columns.items()})

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
    r"""Kernel regression for every ridge from one eigendecomposition K = U Lambda U^T.

    With :math:`a = (K + \rho)^{-1} (y - f_0)` and :math:`B = (K + \rho)^{-1}`:

    .. math:: \text{leave-one-out residual}_i = a_i / B_{ii}, \qquad
        GCV = \frac{\|a\|^2 / n}{(\operatorname{tr} B / n)^2}

    both equal to their usual forms with the hat matrix H = K B (whose common factor rho cancels), so that ridge 0 is
    allowed where K is regular. A row left out is one output of one sample for a kernel (N, L, N, L). Cost: one
    decomposition and 2 n^2 (R + 1) operations a ridge.

    Args:
        kernel: A kernel source, or its complete :class:`Spectrum`.
        targets: As for :func:`regress`.
        ridges: Numbers from 0 on; by default 31 from 1e-9 lambda_max (or above rounding) to lambda_max.
        f0: The prior mean at the training points.

    Raises:
        TangentError: A ridge of 0 for a singular kernel; an indefinite kernel, with the ridge to try.
    """
    spectrum = kernel if isinstance(kernel, Spectrum) else eigh(kernel)
    if not spectrum.complete:
        raise TangentError(
            f"The spectrum holds {len(spectrum.values):,} of {spectrum.n:,} eigenpairs.",
            why="Leave-one-out needs them all.",
            remedy="Give the kernel, or eigh(kernel) without k.",
        )
    source = as_source(LowRank(spectrum.vectors) if isinstance(kernel, Spectrum) else kernel)
    data = as_columns(source, targets, f0)
    cutoff = rank_cutoff(spectrum.values, spectrum.dtype)
    grid = _grid(ridges, float(spectrum.values[0]), cutoff).to(spectrum.values)
    values = lifted(spectrum.values, float(grid[0]))
    _require_ridge(float(grid[0]), spectrum)
    solve = _Solve(spectrum, values, data.columns)
    rows = torch.stack([solve.measures(float(ridge)) for ridge in grid])
    left_out, gcv, train, degrees, norms = rows.T.unbind()
    return RidgePath(grid, left_out, gcv, train, degrees, norms, spectrum, values, data)


def _grid(ridges: Sequence[float] | Tensor | None, largest: float, cutoff: float) -> Tensor:
    if ridges is None:
        largest = largest if largest > 0 else 1.0
        return torch.logspace(
            float(torch.tensor(max(1e-9 * largest, cutoff), dtype=torch.float64).log10()),
            float(torch.tensor(largest, dtype=torch.float64).log10()),
            31,
            dtype=torch.float64,
        )
    grid = torch.as_tensor(ridges, dtype=torch.float64).flatten().sort().values
    if not len(grid) or not bool(torch.isfinite(grid).all()) or float(grid[0]) < 0:
        raise TangentError("The ridges are not numbers from 0 on.", remedy="Give positive numbers, or None.")
    return grid


def _require_ridge(ridge: float, spectrum: Spectrum) -> None:
    values = spectrum.values
    require_positive(values, ridge)
    rank = int((values > rank_cutoff(values, spectrum.dtype)).sum())
    if ridge == 0 and rank < spectrum.n:
        smallest, largest = float(values[-1]), float(values[0])
        raise TangentError(
            f"Ridge 0 for a kernel of size {spectrum.n:,} and rank {rank:,} (smallest eigenvalue {smallest:.3g}).",
            why="Where the kernel is singular, a sample that is left out is not determined by the others.",
            remedy=f"Start at ridge={ridge_to_try(smallest, largest):.3g}; regress has the minimum-norm solution.",
        )


class _Solve:
    """(K + rho)^-1 for any rho from the eigenpairs; eigenvalues that are not among them are zero."""

    def __init__(self, spectrum: Spectrum, values: Tensor, right: Tensor) -> None:
        self.vectors, self.values, self.n, self.right = spectrum.vectors, values, spectrum.n, right
        self.projected = self.vectors.T @ right
        self.thin = len(values) < self.n
        self.outside = right - self.vectors @ self.projected if self.thin else None

    def coefficients(self, ridge: float) -> Tensor:
        """a, (n, R)."""
        a = self.vectors @ (self.projected / (self.values + ridge)[:, None])
        return a if self.outside is None else a + self.outside / ridge

    def measures(self, ridge: float) -> Tensor:
        """Leave-one-out error, GCV, training error, degrees of freedom, norm."""
        inverse = 1 / (self.values + ridge)
        a = self.coefficients(ridge)
        diagonal = torch.cat([self._diagonal(rows, inverse, ridge) for rows in spans(self.n, 2048)])
        left_out = (a / diagonal[:, None]).square().mean()
        trace = diagonal.sum() / self.n
        gcv = (a.square().sum(0) / self.n / trace.square()).mean()
        train = (ridge * a).square().mean()
        degrees = (self.values * inverse).sum()
        norm = (self.values[:, None] * (self.projected * inverse[:, None]).square()).sum().clamp(min=0).sqrt()
        return torch.stack([left_out, gcv, train, degrees, norm])

    def _diagonal(self, rows: slice, inverse: Tensor, ridge: float) -> Tensor:
        """Of (K + rho)^-1, some rows, without a second matrix of the size of the eigenvectors."""
        squares = self.vectors[rows].square()
        diagonal = squares @ inverse
        return diagonal + (1 - squares.sum(1)).clamp(min=0) / ridge if self.thin else diagonal
