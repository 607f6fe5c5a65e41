"""Test errors that the training samples alone predict: leave-one-out, and the eigenlearning equations."""

import math
from dataclasses import dataclass

import torch
from scipy import optimize
from torch import Tensor

from tangentlab import linalg
from tangentlab._errors import TangentError


@dataclass(frozen=True)
class LeftOut:
    """Predictions of every sample by the fit to all others.

    Attributes:
        ridge: The ridge.
        predictions: (N, L).
        squares: Squared errors, summed over outputs, (N,).
        gcv: The generalized cross-validation estimate of their mean.
    """

    ridge: float
    predictions: Tensor
    squares: Tensor
    gcv: float

    @property
    def error(self) -> float:
        """The mean squared error."""
        return float(self.squares.mean())

    @property
    def standard_error(self) -> float:
        """The standard error of the mean squared error."""
        return float(self.squares.std() / math.sqrt(len(self.squares)))


def leave_one_out(spectrum: linalg.Spectrum, targets: Tensor, ridge: float | None = None) -> LeftOut:
    r"""Predict every sample from all others, exactly, from the eigenpairs of the kernel (N, N):
    :math:`y_i - a_i / B_{ii}` with :math:`B = (K + \rho)^{-1}`, a = B y.

    Cost: N^2 operations per target and ridge, given the eigenpairs.

    Args:
        spectrum: All eigenpairs.
        targets: (N, L), float64.
        ridge: rho; None for the best of a path by generalized cross-validation.

    Examples:
        >>> import torch
        >>> from tangentlab import forecast, linalg, ntk
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(8, 3)
        >>> kernel = ntk(model, x, readout="pntk")
        >>> found = forecast.leave_one_out(linalg.eigh(kernel), torch.randn(8, 1).double(), 0.1)
        >>> type(found).__name__
        'LeftOut'

    See also:
        :func:`tangentlab.forecast.eigenlearning`, :func:`tangentlab.analysis.predicted_error`.
    """
    path = linalg.ridge_path(spectrum, targets, None if ridge is None else [ridge])
    chosen = path.best_by_gcv if ridge is None else ridge
    values, vectors = spectrum.values, spectrum.vectors
    inverse = 1 / (values + chosen)
    a = vectors @ (inverse[:, None] * (vectors.T @ targets))
    diagonal = vectors.square() @ inverse
    gaps = a / diagonal[:, None]
    gcv = float(path.gcv[int((path.ridges - chosen).abs().argmin())]) * targets.shape[1]
    return LeftOut(chosen, targets - gaps, gaps.square().sum(1), gcv)


def eigenlearning(spectrum: linalg.Spectrum, targets: Tensor, sizes: list[int], ridge: float) -> list[float]:
    r"""Predict the test error of kernel ridge regression with n samples from the spectrum of N > n (Simon et al. 2021).

    With the eigenvalues lambda_i of K / N and the parts v_i^2 = (u_i . y)^2 / N of the targets, kappa solves
    :math:`\sum_i \lambda_i / (\lambda_i + \kappa) + \rho / \kappa = n`, and with the learnabilities
    :math:`L_i = \lambda_i / (\lambda_i + \kappa)`

    .. math:: E(n) = \frac{n}{n - \sum_i L_i^2} \sum_i (1 - L_i)^2 v_i^2

    summed over outputs. The eigenfunctions are those on the N samples, so that the estimate is for n well below N.

    Cost: 2 N^2 L operations for all sizes, and about 3 N per step of a root search for each size, given the eigenpairs.

    Args:
        spectrum: All eigenpairs of the kernel of N samples.
        targets: (N, L).
        sizes: Numbers of samples n below N.
        ridge: rho, as it is added to the diagonal.

    Examples:
        >>> import torch
        >>> from tangentlab import forecast, linalg, ntk
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(8, 3)
        >>> kernel = ntk(model, x, readout="pntk")
        >>> errors = forecast.eigenlearning(linalg.eigh(kernel), torch.randn(8, 1).double(), [2, 4], 0.1)
        >>> len(errors)
        2

    See also:
        :func:`tangentlab.forecast.leave_one_out`, :func:`tangentlab.forecast.predict_training`.
    """
    count = spectrum.n
    values = (spectrum.values / count).clamp(min=0)
    parts = (spectrum.vectors.T @ targets).square().sum(1) / count
    found = []
    for n in sizes:
        if not 0 < n < count:
            raise TangentError(
                f"The size {n} is not between 0 and {count:,}.",
                "Eigenfunctions are known on the samples of the kernel.",
                f"Give sizes below {count:,}.",
            )

        def excess(log: float, n: int = n) -> float:
            kappa = math.exp(log)
            return float((values / (values + kappa)).sum()) + ridge / kappa - n

        top = float(values.sum()) + ridge
        kappa = math.exp(optimize.brentq(excess, math.log(top / n) - 60, math.log(10 * top / n) + 5))
        learned = values / (values + kappa)
        error = ((1 - learned).square() * parts).sum() * n / (n - learned.square().sum())
        found.append(float(error))
    return found


def subset_errors(kernel: Tensor, targets: Tensor, size: int, repeats: int, seed: int) -> Tensor:
    """Compute the generalized cross-validation error of random subsets of a size, (repeats,)."""
    found = []
    generator = torch.Generator().manual_seed(seed)
    for _ in range(repeats):
        rows = torch.randperm(len(kernel), generator=generator)[:size]
        part = linalg.eigh(kernel[rows][:, rows])
        found.append(leave_one_out(part, targets[rows]).gcv)
    return torch.tensor(found, dtype=torch.float64)
