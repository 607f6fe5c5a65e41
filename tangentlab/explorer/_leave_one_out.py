r"""Leave-one-out predictions of kernel regression, and the samples that speak for and against them.

With :math:`B = (K + \rho)^{-1}` and :math:`a = B y`, the regression without sample i has the coefficients
:math:`a_j - B_{ji} a_i / B_{ii}`, so that its prediction at sample i is a sum over the other samples,

.. math:: f_{-i}(x_i) = y_i - a_i / B_{ii} = \sum_{j \ne i} K_{ij} \left( a_j - B_{ji} a_i / B_{ii} \right)

Sample j speaks for the prediction by its term. Nothing is fitted again.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentlab import linalg
from tangentlab._errors import TangentError
from tangentlab.explorer._labels import Labels

SPEAKERS = 6
"""Samples that speak for a prediction, and against it, that are kept."""


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """Regression with the kernel, every sample predicted without itself.

    Attributes:
        ridge: rho.
        predictions: (N, C), with the constant prior.
        output: The output that is explained, (N,): the predicted class, or 0 for real targets.
        uncertainty: sqrt((1 / B_ii - rho) / K_ii), (N,): the share of the prior standard deviation that is left after
            the other samples were seen, 0 to 1.
        error: Half the squared distance to the targets, (N,).
        exact: Whether all eigenpairs were used; else only the leading ones, and the others count as zero.
        coefficients: a, (N, C).
        diagonal: The diagonal of B, (N,).
        spectrum: The eigenpairs.
    """

    ridge: float
    predictions: Tensor
    output: Tensor
    uncertainty: Tensor
    error: Tensor
    exact: bool
    coefficients: Tensor
    diagonal: Tensor
    spectrum: linalg.Spectrum

    def accuracy(self, labels: Labels) -> float | None:
        """Compute the share of samples whose class is predicted; None for real targets."""
        if labels.classes is None:
            return None
        return float((self.output == labels.classes).double().mean())

    def terms(self, rows: slice, kernel: Tensor | None) -> Tensor:
        """Compute the terms of the predictions of some samples, (r, N).

        Args:
            rows: The samples.
            kernel: Their rows of the kernel, (r, N); None for the one that the leading eigenpairs make.
        """
        own, values = self.spectrum.vectors[rows], self.spectrum.values.clamp(min=0)
        inverse = 1 / (values + self.ridge)
        if kernel is None:
            kernel = (own * values) @ self.spectrum.vectors.T
        spread = (
            own * (inverse - self._rest)
        ) @ self.spectrum.vectors.T  # B without its part outside of the eigenpairs
        indices = torch.arange(rows.start, rows.stop)
        spread[torch.arange(len(own)), indices] += self._rest
        output = self.output[rows]
        gap = self.coefficients[indices, output] / self.diagonal[rows]
        terms = kernel * (self.coefficients[:, output].T - spread * gap[:, None])
        terms[torch.arange(len(own)), indices] = 0.0
        return terms

    @property
    def _rest(self) -> float:
        return 0.0 if len(self.spectrum.values) == self.spectrum.n else 1 / self.ridge


def leave_one_out(spectrum: linalg.Spectrum, labels: Labels, diagonal: Tensor, ridge: Any) -> LeaveOneOut:
    """Compute all leave-one-out predictions from the eigenpairs of a kernel.

    Args:
        spectrum: All eigenpairs, or the leading ones, then the kernel that they make is used.
        labels: The targets.
        diagonal: That of the kernel, (N,).
        ridge: rho, or ``"loo"`` for the one with the smallest leave-one-out error.

    Raises:
        TangentError: The ridge is not positive.
    """
    exact, y = spectrum.complete, labels.targets
    if not exact:
        features = spectrum.vectors * spectrum.values.clamp(min=0).sqrt()
        spectrum = linalg.eigh(linalg.LowRank(features), progress=False)
    if ridge == "loo":
        rho = linalg.ridge_path(spectrum, y).best
    elif isinstance(ridge, int | float) and not isinstance(ridge, bool) and 0 < ridge < float("inf"):
        rho = float(ridge)
    else:
        raise TangentError(f"ridge={ridge!r}.", remedy='Pass a positive number, or "loo".')
    vectors, inverse = spectrum.vectors, 1 / (spectrum.values.clamp(min=0) + rho)
    rest = 0.0 if len(spectrum.values) == spectrum.n else 1 / rho
    a = vectors @ ((inverse - rest)[:, None] * (vectors.T @ y)) + rest * y
    b = vectors.square() @ (inverse - rest) + rest
    predictions = y - a / b[:, None] + labels.prior
    output = predictions.argmax(1) if labels.names else torch.zeros(len(y), dtype=torch.int64)
    variance = (1 / b - rho).clamp(min=0)
    share = torch.where(diagonal > 0, variance / diagonal, 0.0).clamp(0, 1).sqrt()
    error = (predictions - labels.prior - y).square().sum(1) / 2
    return LeaveOneOut(rho, predictions, output, share, error, exact, a, b, spectrum)


def speakers(terms: Tensor) -> tuple[Tensor, Tensor]:
    """Return the samples with the largest and the smallest terms: indices and terms, (r, 2 m), those for first."""
    count = min(SPEAKERS, terms.shape[1] - 1)
    best, worst = terms.topk(count, dim=1), terms.topk(count, dim=1, largest=False)
    return torch.cat([best.indices, worst.indices], 1), torch.cat([best.values, worst.values], 1)
