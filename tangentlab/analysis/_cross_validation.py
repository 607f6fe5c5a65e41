"""Generalized cross-validation as a predictor of test error."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
from torch import Tensor

from tangentlab import linalg
from tangentlab._errors import TangentError
from tangentlab._scaling import columns_to_unit, restored
from tangentlab.linalg.internal import real


@dataclass(frozen=True)
class ErrorPrediction:
    """The test error of kernel regression as predicted from training points alone, for each ridge.

    Attributes:
        table: One row per ridge: ``ridge``, ``gcv`` and ``leave_one_out`` (the mean squared error over samples and
            columns that they predict), and with a test set the measured ``test_error``.
        best: The ridge with the smallest GCV score.
    """

    table: pd.DataFrame
    best: float

    @property
    def correlation(self) -> float:
        """Spearman's rank correlation of ``gcv`` and ``test_error`` over the ridges."""
        return float(self.table["gcv"].corr(self.table["test_error"], method="spearman"))

    def __str__(self) -> str:
        return self.table.to_string(index=False)


def predicted_error(
    kernel: Any,
    targets: Any,
    ridges: Sequence[float] | None = None,
    *,
    f0: Any = None,
    test: tuple[Any, Any] | tuple[Any, Any, Any] | None = None,
) -> ErrorPrediction:
    r"""Predict the test error of kernel regression by generalized cross-validation,

    .. math:: GCV(r) = \frac{\frac1N \|(1 - H)\,(y - f_0)\|^2}{(1 - \mathrm{tr} H / N)^2}, \qquad H = K (K + r)^{-1}

    (Craven and Wahba 1978; for the eNTK Wei et al. 2022, cited in mohamadi2022). One decomposition serves all ridges.

    Cost: that of :func:`tangentlab.linalg.ridge_path`. A test set adds 6 N^2 R + 2 M N R operations per ridge.

    Args:
        kernel: (N, N), a kernel source.
        targets: y, (N,) or (N, R).
        ridges: The ridges r; None for a path from the spectrum.
        f0: The network's outputs on the training points, in the shape of ``targets``; None for zero.
        test: A test set to compare with: the cross kernel (M, N), the test targets in the form of ``targets``, and with
            an f0 also that on the test points.

    Examples:
        >>> import torch
        >>> from tangentlab import analysis, ntk
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(8, 3)
        >>> kernel = ntk(model, x, readout="pntk")
        >>> found = analysis.predicted_error(kernel, torch.randn(8), [0.1, 1.0])
        >>> type(found).__name__
        'ErrorPrediction'

    See also:
        :func:`tangentlab.linalg.ridge_path`, :func:`tangentlab.analysis.rank_models`,
        :func:`tangentlab.forecast.leave_one_out`.
    """
    path = linalg.ridge_path(kernel, targets, ridges, f0=f0)
    table = path.table[["ridge", "gcv", "leave_one_out"]].copy()
    if test is not None:
        cross, truth, *start = test
        y = real(truth, "test targets")
        errors = []
        for ridge in table["ridge"]:
            guess = path.regression(float(ridge)).predict(cross, f0=start[0] if start else None)
            errors.append(_error(guess, y.to(guess)))
        table["test_error"] = errors
    return ErrorPrediction(table, path.best_by_gcv)


def _error(guess: Tensor, truth: Tensor) -> float:
    """Compute the mean squared difference."""
    if guess.shape != truth.shape:
        raise TangentError(
            f"The test targets are {tuple(truth.shape)} and the predictions {tuple(guess.shape)}.",
            why="Their difference would be taken between all pairs.",
            remedy="Give the test targets in the form of the training targets.",
        )
    gap, (exponent,) = columns_to_unit((guess - truth).reshape(-1, 1))
    return float(restored(gap.square().mean(), 2 * exponent, "test errors"))
