"""How far class probabilities can be trusted: calibration error, likelihood, and temperature scaling."""

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from scipy import optimize
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._seeds import check_seed
from tangentlab.posterior._likelihood import check_labels

_LOG = 30.0
"""The largest |log T| that is looked for, of logits of size one."""


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

    Cost: about M (classes + bins) operations.

    Args:
        probabilities: (M, classes), rows that add up to one.
        labels: (M,), class numbers.
        bins: Bins of the confidence from 0 to 1.

    Raises:
        TangentError: They are not probabilities, or do not fit the labels.

    Examples:
        >>> import torch
        >>> from tangentlab import posterior
        >>> found = posterior.calibration(torch.tensor([[0.8, 0.2], [0.4, 0.6]]), torch.tensor([0, 1]))
        >>> type(found).__name__
        'Calibration'

    See also:
        :func:`tangentlab.posterior.temperature`, :func:`tangentlab.plot.reliability`,
        :func:`tangentlab.posterior.fit`.
    """
    p, y = _fitting("probabilities", probabilities, labels)
    confidence, guess, place = _binned(p, bins)
    right = (guess == y).double()
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


@dataclass(frozen=True)
class CalibrationFloor:
    """The calibration error that perfectly calibrated probabilities would show on as many samples.

    Attributes:
        mean: Its mean.
        low: Its 2.5 % quantile.
        high: Its 97.5 % quantile. An error below it does not differ from perfect calibration.
    """

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"ECE of perfect calibration {self.mean:.2%} (95 % from {self.low:.2%} to {self.high:.2%})"


def calibration_floor(probabilities: Any, *, bins: int = 15, draws: int = 1000, seed: int = 0) -> CalibrationFloor:
    r"""Compute which calibration error the number of samples alone causes.

    Confidence and accuracy of a bin of n samples differ by about 0.8 sqrt(p (1 - p) / n) even if every probability p
    is right. Outcomes are drawn from the probabilities themselves, so that these are right, and the error of each draw
    is measured (consistency resampling; Bröcker and Smith 2007).

    Args:
        probabilities: (M, classes), rows that add up to one.
        bins: Bins of the confidence, as for :func:`calibration`.
        draws: Sets of outcomes.
        seed: Seed of the draws.

    Raises:
        TangentError: They are not probabilities.

    Cost: M numbers per draw.

    Examples:
        >>> import torch
        >>> from tangentlab import posterior
        >>> floor = posterior.calibration_floor(torch.tensor([[0.8, 0.2], [0.4, 0.6]]), draws=50)
        >>> 0 <= floor.low <= floor.mean <= floor.high <= 1
        True

    See also:
        :func:`tangentlab.posterior.calibration`.
    """
    p = _numbers("probabilities", probabilities)
    confidence, _, place = _binned(p, bins)
    if isinstance(draws, bool) or not isinstance(draws, int) or draws < 1:
        raise TangentError(f"draws={draws!r} is not a positive whole number.", remedy="Use 1000.")
    random = torch.Generator().manual_seed(check_seed(seed))
    errors = torch.empty(draws, dtype=torch.float64)
    for i in range(draws):
        right = torch.rand(len(p), generator=random, dtype=torch.float64) < confidence
        gaps = torch.zeros(bins, dtype=torch.float64).index_add_(0, place, confidence - right.double())
        errors[i] = gaps.abs().sum() / len(p)
    return CalibrationFloor(float(errors.mean()), float(errors.quantile(0.025)), float(errors.quantile(0.975)))


def _binned(p: Tensor, bins: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return confidence, most probable class and bin of each sample, (M,)."""
    if p.ndim != 2 or not p.numel():
        raise TangentError(f"Probabilities of shape {tuple(p.shape)}.", remedy="Give (M, classes).")
    if not bool((p >= 0).all()) or float((p.sum(1) - 1).abs().max()) > 1e-4:
        raise TangentError(
            "Rows of the probabilities do not add up to one.", remedy="Give softmax(logits), not logits."
        )
    if isinstance(bins, bool) or not isinstance(bins, int) or bins < 1:
        raise TangentError(f"bins={bins!r} is not a positive whole number.", remedy="Use 15.")
    confidence, guess = p.max(1)
    return confidence, guess, (confidence * bins).long().clamp(max=bins - 1)


def _numbers(name: str, values: Any) -> Tensor:
    try:
        found = torch.as_tensor(values).detach()
    except (TypeError, ValueError, RuntimeError, KeyError) as error:  # a DataFrame looks up columns by number
        raise TangentError(f"The {name} are a {type(values).__name__}.", remedy="Give a tensor of numbers.") from error
    if found.is_complex():
        raise TangentError(f"The {name} are complex.", remedy="Give real numbers.")
    return found.double().cpu()


def _fitting(name: str, values: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Return numbers (M, classes) and the classes (M,) that fit them."""
    numbers = _numbers(name, values)
    if numbers.ndim != 2 or not len(numbers) or numbers.shape[1] < 2:
        raise TangentError(
            f"The {name} have shape {tuple(numbers.shape)}.", remedy="Give (M, classes), with two classes or more."
        )
    y = check_labels(labels, numbers.shape[1]).detach().cpu()
    if len(y) != len(numbers):
        raise TangentError(
            f"{name.capitalize()} of shape {tuple(numbers.shape)} do not fit labels of shape {tuple(y.shape)}.",
            remedy="Give (M, classes) and (M,).",
        )
    return numbers, y


def temperature(logits: Any, labels: Any) -> float:
    """Return the T that maximizes the likelihood of classes under softmax(logits / T) (Guo et al. 2017).

    Cost: one softmax of all logits per step of a root search.

    Args:
        logits: (M, classes), of held-out samples.
        labels: (M,).

    Raises:
        TangentError: Logits and labels do not fit, or the likelihood has no maximum: every sample is right, or the
            logits do not tell the classes at all.

    Examples:
        >>> import torch
        >>> from tangentlab import posterior
        >>> posterior.temperature(torch.tensor([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0]]), torch.tensor([0, 1, 1])) > 1
        True

    See also:
        :func:`tangentlab.posterior.calibration`.
    """
    outputs, y = _fitting("logits", logits, labels)
    if not bool(torch.isfinite(outputs).all()):
        raise TangentError("The logits hold NaN or infinite values.", remedy="Check the network and its inputs.")
    scale = float(outputs.abs().max()) or 1.0  # T is proportional to the size of the logits, whatever it is
    z = outputs / scale
    z = z - z.max(1, keepdim=True).values
    right = z.gather(1, y[:, None])[:, 0]

    def slope(log: float) -> float:
        """Compute the derivative of the mean negative log-likelihood by 1 / T, which grows with 1 / T = e^log."""
        return float(((torch.softmax(math.exp(log) * z, 1) * z).sum(1) - right).mean())

    low, high = slope(-_LOG), slope(_LOG)
    if low >= 0 or high <= 0:
        raise TangentError(
            "The likelihood of the classes has no maximum over the temperature.",
            "The largest logit is that of the right class for every sample, so that it grows as T falls to 0."
            if high <= 0
            else "On average the right class has no larger logit than others, so that it grows with T without end.",
            "Use more held-out samples, or check that logits and labels belong together.",
        )
    return scale / math.exp(optimize.brentq(slope, -_LOG, _LOG, xtol=1e-10))
