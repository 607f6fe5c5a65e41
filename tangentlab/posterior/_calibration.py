"""How far class probabilities can be trusted: calibration error, likelihood, and temperature scaling."""

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from scipy import optimize
from torch import Tensor

from tangentlab._errors import TangentError


@dataclass(frozen=True)
class Calibration:
    """The quality of class probabilities.

    Attributes:
        accuracy: The share of samples whose most probable class is right.
        nll: The mean negative log-likelihood of the right class.
        ece: The expected calibration error: the mean distance of confidence and accuracy over bins of equal width,
            weighted by the samples in them (Naeini et al. 2015).
        brier: The mean squared distance of the probabilities from the one-hot class.
        bins: One row per bin: ``low``, ``high``, ``samples``, ``confidence``, ``accuracy``.
    """

    accuracy: float
    nll: float
    ece: float
    brier: float
    bins: pd.DataFrame

    def __str__(self) -> str:
        return f"accuracy {self.accuracy:.2%}, NLL {self.nll:.4f}, ECE {self.ece:.2%}, Brier {self.brier:.4f}"


def calibration(probabilities: Any, labels: Any, *, bins: int = 15) -> Calibration:
    """Measure class probabilities against the classes.

    Args:
        probabilities: (M, classes), rows that add up to one.
        labels: (M,), class numbers.
        bins: Bins of the confidence from 0 to 1.

    Raises:
        TangentError: They are not probabilities, or do not fit the labels.
    """
    p = torch.as_tensor(probabilities).detach().double().cpu()
    y = torch.as_tensor(labels).detach().cpu().long()
    if p.ndim != 2 or y.shape != p.shape[:1] or len(p) == 0:
        raise TangentError(
            f"Probabilities of shape {tuple(p.shape)} do not fit labels of shape {tuple(y.shape)}.",
            remedy="Give (M, classes) and (M,).",
        )
    if not bool((p >= 0).all()) or float((p.sum(1) - 1).abs().max()) > 1e-4:
        raise TangentError(
            "Rows of the probabilities do not add up to one.", remedy="Give softmax(logits), not logits."
        )
    _check_classes(y, p.shape[1])
    if isinstance(bins, bool) or not isinstance(bins, int) or bins < 1:
        raise TangentError(f"bins={bins!r} is not a positive whole number.", remedy="Use 15.")
    confidence, guess = p.max(1)
    right = (guess == y).double()
    place = (confidence * bins).long().clamp(max=bins - 1)
    rows = []
    for number in range(bins):
        inside = place == number
        count = int(inside.sum())
        means = (float(v[inside].mean()) if count else math.nan for v in (confidence, right))
        rows.append((number / bins, (number + 1) / bins, count, *means))
    table = pd.DataFrame(rows, columns=["low", "high", "samples", "confidence", "accuracy"])
    gaps = (table["confidence"] - table["accuracy"]).abs() * table["samples"]
    chosen = p.gather(1, y[:, None])[:, 0]
    brier = (p.square().sum(1) - 2 * chosen + 1).mean()
    tiny = torch.finfo(torch.float64).tiny
    return Calibration(
        accuracy=float(right.mean()),
        nll=float(-chosen.clamp(min=tiny).log().mean()),
        ece=float(gaps.sum() / len(p)),
        brier=float(brier),
        bins=table,
    )


def _check_classes(y: Tensor, classes: int) -> None:
    if int(y.min()) < 0 or int(y.max()) >= classes:
        raise TangentError(
            f"The labels go from {int(y.min())} to {int(y.max())}.",
            f"There are {classes} classes.",
            "Number the classes as the columns.",
        )


def temperature(logits: Any, labels: Any) -> float:
    """Return the T that maximizes the likelihood of classes under softmax(logits / T) (Guo et al. 2017).

    Args:
        logits: (M, classes), of held-out samples.
        labels: (M,).

    Raises:
        TangentError: Logits and labels do not fit.
    """
    outputs, y = torch.as_tensor(logits).detach().double(), torch.as_tensor(labels).detach().long()
    if outputs.ndim != 2 or y.shape != outputs.shape[:1] or len(y) == 0:
        raise TangentError(
            f"Logits of shape {tuple(outputs.shape)} do not fit labels of shape {tuple(y.shape)}.",
            remedy="Give (M, classes) and (M,).",
        )
    _check_classes(y, outputs.shape[1])
    if not bool(torch.isfinite(outputs).all()):
        raise TangentError("The logits hold NaN or infinite values.", remedy="Check the network and its inputs.")

    def loss(log: float) -> float:
        return float(torch.nn.functional.cross_entropy(outputs / math.exp(log), y))

    return math.exp(optimize.minimize_scalar(loss, bounds=(-4.0, 4.0), method="bounded").x)
