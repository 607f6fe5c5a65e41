"""Claims as code: a statistic, its threshold, the paper's number and a verdict by a rule that is written down here.

Nothing is tuned to pass. A rule decides from the statistic, the threshold and the spread of the seeds alone:

- A claim about trained networks or data sets needs scale. The ``tiny`` preset never decides one, nor does a run on
  other data than the paper's. A claim about a *direction* (falls with width, grows during training, is ahead) needs at
  least the ``small`` preset: as many images to train on, to test on and in the kernels, and as much training in all,
  counted in images seen, n_train * epochs. So all images for fewer epochs decide it if they make as many updates; a
  smaller set for more epochs does not. A claim about a *number* needs the paper's own settings, whatever preset they
  were reached from, since the number depends on all of them; only the number of seeds, and which of the paper's rows
  are run, is free. Else the verdict is "not decidable at this scale", whatever the number; :attr:`Claim.agrees` still
  says on which side of the threshold it lies. What is compared is written in ``_scale.py``.
- A difference of means counts only beyond twice its standard error over the seeds (for one seed: beyond twice the
  binomial error of the test accuracies, where those are known). Within it, the claim is not decidable.
- A claim about a range (a trend, a gain from the first to the last width) needs that range: four points for a rank
  correlation, two for a gain, and the paper's own last width where the paper names it.
- A word of the paper with neither a number nor anything to measure it by ("much lower than the number of rows") is
  shown with ours and not decided (:func:`word`).
- An identity of the mathematics is decided at any scale.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import spearmanr

from tangentlab.experiments._spec import Spec


class Verdict(StrEnum):
    """The decision about a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNDECIDED = "not decidable at this scale"


@dataclass(frozen=True)
class Claim:
    """One claim of a paper with its measured value.

    Attributes:
        statement: What the paper says.
        statistic: What is computed to check it.
        value: Ours; NaN where it could not be computed.
        threshold: The condition on the value as text: ``"<= -0.5"``.
        paper: The paper's number or words.
        verdict: By the rules above.
        agrees: Whether the value meets the threshold, regardless of the verdict; None if there is no value.
        explanation: Why the verdict is what it is.
        reference: The paper's number as a number, where the value is the same quantity.
    """

    statement: str
    statistic: str
    value: float
    threshold: str
    paper: str
    verdict: Verdict
    agrees: bool | None
    explanation: str
    reference: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, with None in place of NaN."""
        plain = asdict(self)
        plain["value"] = None if not math.isfinite(self.value) else self.value
        plain["verdict"] = str(self.verdict)
        return plain


def identity(statement: str, statistic: str, value: float, tolerance: float, paper: str = "exact") -> Claim:
    """Judge a numerical identity: the value, a relative error or a violation, must not exceed the tolerance."""
    agrees = bool(value <= tolerance)
    verdict = Verdict.HOLDS if agrees else Verdict.FAILS
    why = "An identity; its error is compared with rounding." if agrees else "The error is beyond rounding."
    return Claim(statement, statistic, float(value), f"<= {tolerance:g}", paper, verdict, agrees, why)


def trend(
    statement: str,
    x: ArrayLike,
    y: ArrayLike,
    sign: int,
    spec: Spec,
    *,
    paper: str,
    least: float = 0.5,
    shortage: str = "",
) -> Claim:
    """Judge whether Spearman's rank correlation of y with x has the given sign and at least the given size.

    Needs four different x, else it is not decidable; nor is it where the caller names a shortage.
    """
    left, right = np.asarray(x, float), np.asarray(y, float)
    good = np.isfinite(left) & np.isfinite(right)
    left, right = left[good], right[good]
    distinct = len(np.unique(left))
    value = float(spearmanr(left, right).statistic) if distinct > 1 and len(np.unique(right)) > 1 else math.nan
    statistic = "Spearman's rank correlation"
    threshold = f">= {least:g}" if sign > 0 else f"<= {-least:g}"
    agrees = None if math.isnan(value) else bool(sign * value >= least)
    shortage = f"{distinct} points are too few for a rank correlation." if distinct < 4 else shortage
    return _decide(statement, statistic, value, threshold, paper, agrees, spec, shortage)


def greater(
    statement: str,
    statistic: str,
    differences: Sequence[float],
    spec: Spec,
    *,
    paper: str,
    margin: float = 0.0,
    error: float | None = None,
    shortage: str = "",
    reference: float | None = None,
) -> Claim:
    """Judge whether the mean difference is above the margin by more than twice its standard error.

    Args:
        statement: What the paper says.
        statistic: What the differences are.
        differences: One per seed (or per seed and task).
        spec: Decides whether the scale suffices.
        paper: The paper's number.
        margin: What the difference must exceed.
        error: Standard error where there is one difference; by default unknown, so that any difference counts.
        shortage: Why it cannot be decided, known to the caller; empty for nothing.
        reference: The paper's mean difference.
    """
    values = np.asarray(differences, float)
    values = values[np.isfinite(values)]
    if len(values) == 0:
        why = shortage or "There are no values."
        return _decide(statement, statistic, math.nan, f"> {margin:g}", paper, None, spec, why, reference=reference)
    mean = float(values.mean())
    spread = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else error
    if not shortage and spread is not None and abs(mean - margin) <= 2 * spread:
        shortage = f"The difference is within twice its standard error ({spread:.3g})."
    agrees = mean > margin
    return _decide(statement, statistic, mean, f"> {margin:g}", paper, agrees, spec, shortage, reference=reference)


def near(
    statement: str,
    statistic: str,
    value: float,
    paper: float,
    tolerance: float,
    spec: Spec,
    *,
    unit: str = "",
) -> Claim:
    """Judge whether the value is within the tolerance of the paper's number; this needs the paper's settings."""
    agrees = None if math.isnan(value) else bool(abs(value - paper) <= tolerance)
    threshold = f"{paper:g} +- {tolerance:g}{unit}"
    return _decide(
        statement, statistic, value, threshold, f"{paper:g}{unit}", agrees, spec, scale="paper", reference=paper
    )


def condition(
    statement: str,
    statistic: str,
    value: float,
    threshold: str,
    agrees: bool | None,
    spec: Spec,
    *,
    paper: str,
    scale: str = "small",
    shortage: str = "",
    reference: float | None = None,
) -> Claim:
    """Judge any other condition, already evaluated; it is not decidable if the caller names a shortage."""
    return _decide(statement, statistic, value, threshold, paper, agrees, spec, shortage, scale, reference)


def word(statement: str, statistic: str, value: float, *, paper: str, lacking: str) -> Claim:
    """Report a value for a word of the paper that has no number; it is not decided at any scale.

    Args:
        statement: What the paper says.
        statistic: What is computed.
        value: Ours.
        paper: The paper's word.
        lacking: What it would take to decide it.
    """
    return Claim(statement, statistic, float(value), "none", paper, Verdict.UNDECIDED, None, lacking)


def _decide(
    statement: str,
    statistic: str,
    value: float,
    threshold: str,
    paper: str,
    agrees: bool | None,
    spec: Spec,
    shortage: str = "",
    scale: str = "small",
    reference: float | None = None,
) -> Claim:
    if agrees is None:
        verdict, why = Verdict.UNDECIDED, shortage or "There is nothing to compute it from."
    elif reason := spec.shortage(scale):
        side = "the paper's side" if agrees else "the other side"
        verdict, why = Verdict.UNDECIDED, f"{reason} Here the number is on {side} of the threshold."
    elif shortage:
        verdict, why = Verdict.UNDECIDED, shortage
    elif agrees:
        verdict, why = Verdict.HOLDS, "The statistic meets the threshold."
    else:
        verdict, why = Verdict.FAILS, "The statistic misses the threshold."
    return Claim(statement, statistic, float(value), threshold, paper, verdict, agrees, why, reference)
