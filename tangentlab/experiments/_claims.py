"""Claims as code: a statistic, its threshold, the paper's number and a verdict by a rule that is written down here.

Nothing is tuned to pass. A rule decides from the statistic, the threshold and the spread of the seeds alone:

- A claim about trained networks or data sets needs scale: the ``tiny`` preset never decides one, nor does a run with
  other data than the paper's or with fewer samples or epochs than the ``small`` preset (:meth:`Spec.shortage`). A claim
  about a *number* of the paper needs the ``paper`` preset, since the number depends on samples and epochs. The verdict
  is then "not decidable at this scale", whatever the number; :attr:`Claim.agrees` still says on which side of the
  threshold it lies.
- A difference of means counts only beyond twice its standard error over the seeds (for one seed: beyond twice the
  binomial error of the test accuracies, where those are known). Within it, the claim is not decidable.
- An identity of the mathematics is decided at any scale.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from tangentlab.experiments._spec import Spec


class Verdict(StrEnum):
    """What can be said of a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNDECIDED = "not decidable at this scale"


@dataclass(frozen=True)
class Claim:
    """One claim of a paper, measured.

    Attributes:
        statement: What the paper says.
        statistic: What is computed to check it.
        value: Ours; NaN where it could not be computed.
        threshold: The condition on the value, for people: ``"<= -0.5"``.
        paper: The paper's number or words.
        verdict: By the rules above.
        agrees: Whether the value meets the threshold, whatever the verdict; None where there is no value.
        explanation: Why the verdict is what it is.
    """

    statement: str
    statistic: str
    value: float
    threshold: str
    paper: str
    verdict: Verdict
    agrees: bool | None
    explanation: str

    def as_dict(self) -> dict[str, Any]:
        """Plain values; NaN becomes None."""
        plain = asdict(self)
        plain["value"] = None if not math.isfinite(self.value) else self.value
        plain["verdict"] = str(self.verdict)
        return plain


def identity(statement: str, statistic: str, value: float, tolerance: float, paper: str = "exact") -> Claim:
    """A numerical identity: the value, a relative error or a violation, must not exceed the tolerance."""
    agrees = bool(value <= tolerance)
    verdict = Verdict.HOLDS if agrees else Verdict.FAILS
    why = "An identity; its error is compared with rounding." if agrees else "The error is beyond rounding."
    return Claim(statement, statistic, float(value), f"<= {tolerance:g}", paper, verdict, agrees, why)


def trend(
    statement: str, x: Sequence[float], y: Sequence[float], sign: int, spec: Spec, *, paper: str, least: float = 0.5
) -> Claim:
    """Spearman's rank correlation of y with x has the given sign and at least the given size.

    Needs four different x, else it is not decidable.
    """
    good = np.isfinite(x) & np.isfinite(y)
    left, right = np.asarray(x, float)[good], np.asarray(y, float)[good]
    distinct = len(np.unique(left))
    value = float(spearmanr(left, right).statistic) if distinct > 1 and len(np.unique(right)) > 1 else math.nan
    statistic = "Spearman's rank correlation"
    threshold = f">= {least:g}" if sign > 0 else f"<= {-least:g}"
    agrees = None if math.isnan(value) else bool(sign * value >= least)
    shortage = f"{distinct} points are too few for a rank correlation." if distinct < 4 else ""
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
) -> Claim:
    """The mean difference is above the margin, by more than twice its standard error.

    Args:
        statement: What the paper says.
        statistic: What the differences are.
        differences: One a seed (or a seed and a task).
        spec: Decides whether the scale suffices.
        paper: The paper's number.
        margin: What the difference must exceed.
        error: Standard error where there is one difference; by default unknown, so that any difference counts.
    """
    values = np.asarray(differences, float)
    values = values[np.isfinite(values)]
    if len(values) == 0:
        return _decide(statement, statistic, math.nan, f"> {margin:g}", paper, None, spec, "There are no values.")
    mean = float(values.mean())
    spread = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else error
    shortage = ""
    if spread is not None and abs(mean - margin) <= 2 * spread:
        shortage = f"The difference is within twice its standard error ({spread:.3g})."
    return _decide(statement, statistic, mean, f"> {margin:g}", paper, mean > margin, spec, shortage)


def near(
    statement: str,
    statistic: str,
    value: float,
    paper: float,
    tolerance: float,
    spec: Spec,
    *,
    unit: str = "",
    scale: str = "paper",
) -> Claim:
    """The value is within the tolerance of the paper's number; decided at the paper's scale, unless told otherwise."""
    agrees = None if math.isnan(value) else bool(abs(value - paper) <= tolerance)
    threshold = f"{paper:g} +- {tolerance:g}{unit}"
    return _decide(statement, statistic, value, threshold, f"{paper:g}{unit}", agrees, spec, scale=scale)


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
) -> Claim:
    """Any other condition, already evaluated."""
    return _decide(statement, statistic, value, threshold, paper, agrees, spec, scale=scale)


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
    return Claim(statement, statistic, float(value), threshold, paper, verdict, agrees, why)
