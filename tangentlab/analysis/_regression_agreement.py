"""Comparison of the pseudo-NTK with the full eNTK: kernel regression (mohamadi2022, figures 7 and 8)."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentlab import linalg
from tangentlab._errors import TangentError
from tangentlab._sums import norm
from tangentlab.linalg.internal import real


@dataclass(frozen=True)
class RegressionAgreement:
    """Predictions of kernel regression with the eNTK and with the pNTK on the same M test points.

    Attributes:
        entk: f_lin, (M, O), equation (5).
        pntk: f_lin with the pseudo-NTK, (M, O), equation (6).
        relative_difference: ||f_pntk - f_entk||_F / ||f_entk||_F (figure 7).
        entk_accuracy: The share of test points whose largest output is that of their label, or None without labels.
        pntk_accuracy: The same for the pseudo-NTK.
    """

    entk: Tensor
    pntk: Tensor
    relative_difference: float
    entk_accuracy: float | None
    pntk_accuracy: float | None

    @property
    def accuracy_difference(self) -> float | None:
        """The accuracy of the pNTK minus that of the eNTK (figure 8)."""
        if self.entk_accuracy is None or self.pntk_accuracy is None:
            return None
        return self.pntk_accuracy - self.entk_accuracy

    def __str__(self) -> str:
        text = f"outputs {self.relative_difference:.3g} apart"
        if self.accuracy_difference is None:
            return text
        return f"{text}; accuracy {self.entk_accuracy:.4f} (eNTK), {self.pntk_accuracy:.4f} (pNTK)"


def regression_agreement(
    entk: Any,
    entk_cross: Any,
    pntk: Any,
    pntk_cross: Any,
    targets: Any,
    *,
    f0: Any = None,
    f0_test: Any = None,
    labels: Any = None,
    ridge: float = 0.0,
) -> RegressionAgreement:
    r"""Compare kernel regression with prior mean f0 by both kernels (mohamadi2022, equations 5 and 6),

    .. math:: f_{lin}(x) = f_0(x) + \Theta(x, D)\,\Theta(D, D)^{-1}\,(Y - f_0(D))

    once with the eNTK on all N O numbers at once, and once with the pNTK for each of the O outputs on its own.

    Cost: that of :func:`tangentlab.linalg.regress` with both kernels. The eNTK takes (N O)^3 / 3 operations and
    4 (N O)^2 bytes besides the kernel, the pNTK N^3 / 3 and 4 N^2.

    Args:
        entk: (N, O, N, O) on the training points.
        entk_cross: (M, O, N, O), test against training points.
        pntk: (N, N).
        pntk_cross: (M, N).
        targets: Y, (N, O), one-hot in the paper.
        f0: The network's outputs on the training points, (N, O); None for zero.
        f0_test: On the test points, (M, O); None for zero.
        labels: (M,) classes of the test points.
        ridge: The number added to both diagonals; the paper uses none.

    Examples:
        >>> import torch
        >>> from tangentlab import analysis, ntk
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> new, targets = torch.randn(5, 4), torch.randn(20, 2)
        >>> kernels = [ntk(network, a, x, readout=readout) for readout in ("full", "pntk") for a in (x, new)]
        >>> found = analysis.regression_agreement(*kernels, targets, ridge=0.1)
        >>> type(found).__name__
        'RegressionAgreement'

    See also:
        :func:`tangentlab.analysis.agreement`, :func:`tangentlab.linalg.regress`.
    """
    full, cross = torch.as_tensor(entk).detach(), torch.as_tensor(entk_cross).detach()
    y = real(targets)
    points, outputs = full.shape[0], full.shape[1] if full.ndim == 4 else 0
    if y.ndim == 1 and len(y) == points * outputs:
        y = y.reshape(points, outputs)
    if full.shape != (points, outputs) * 2 or cross.shape[1:] != full.shape[1:] or y.shape != (points, outputs):
        raise TangentError(
            f"The eNTK {tuple(full.shape)}, cross kernel {tuple(cross.shape)} and targets {tuple(y.shape)} do not fit.",
            remedy="Give (N, O, N, O), (M, O, N, O) and (N, O).",
        )
    ours = linalg.regress(full, y, f0=f0, ridge=ridge).predict(cross, f0=f0_test)
    pseudo = linalg.regress(pntk, y, f0=f0, ridge=ridge).predict(pntk_cross, f0=f0_test)
    right: list[float | None] = [None, None]
    if labels is not None:
        truth = _labels(labels, len(ours), outputs)
        right = [float((p.argmax(1) == truth.to(p.device)).double().mean()) for p in (ours, pseudo)]
    size = float(norm(ours))
    return RegressionAgreement(ours, pseudo, float(norm(pseudo - ours)) / size if size else float("inf"), *right)


def _labels(labels: Any, points: int, outputs: int) -> Tensor:
    """Check classes of the test points, each one of the outputs."""
    truth = torch.as_tensor(labels)
    whole = truth.shape == (points,) and not truth.is_complex() and bool((truth == truth.long()).all())
    if not whole or outputs < 2 or not bool(((truth >= 0) & (truth < outputs)).all()):
        raise TangentError(
            f"Labels {tuple(truth.shape)} do not fit {points} test points and {outputs} outputs.",
            why="A label is the number of the output that should be the largest, counted from 0.",
            remedy="Give one class number per test point, or no labels, without which there are no accuracies.",
        )
    return truth.long()
