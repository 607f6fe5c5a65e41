"""Claims as code: a statistic, its threshold, the paper's number, and a verdict in two parts.

*What the data say* (:class:`Verdict`) follows from the spread over replicates by the tests of ``_evidence``, corrected
for the number of claims of a result. *Where it was tested* (:class:`Scope`) follows from the spec alone. The rules are
written in docs/verdicts.md. An experiment's ``claims`` returns :class:`Examined` ones; :func:`settle` decides them
together.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

import pandas as pd

from tangentlab.experiments import _evidence as evidence
from tangentlab.experiments._evidence import INFORMATIVE, LEAST, LEVEL, Evidence


class Verdict(StrEnum):
    """What the data say about a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNDECIDED = "undecided"


class Scope(StrEnum):
    """Where a claim was tested."""

    PUBLISHED = "as published"
    REDUCED = "the paper's data, reduced"
    OTHER = "other data"


@dataclass(frozen=True)
class Claim:
    """One claim of a paper with its measured value.

    Attributes:
        statement: What the paper says.
        statistic: What is computed to check it.
        value: Ours; NaN where it could not be computed.
        low: The lower end of its interval; NaN if its spread is not known.
        high: The upper end. For a number of the paper, the interval is the prediction interval.
        threshold: The condition on the value as text: ``"> 0"``.
        paper: The paper's number or words.
        verdict: What the data say.
        p: The corrected p-value of the decision, or of the nearer one if there is none; NaN without a test.
        units: What the test is over: "5 seeds".
        explanation: Why the verdict is what it is, and what would decide an undecided one.
        reference: The paper's number as a number, where the value is the same quantity.
        scope: Where it was tested.
        reduced: What differs from the paper's settings; empty for nothing.
    """

    statement: str
    statistic: str
    value: float
    low: float
    high: float
    threshold: str
    paper: str
    verdict: Verdict
    p: float
    units: str
    explanation: str
    reference: float | None = None
    scope: Scope = Scope.PUBLISHED
    reduced: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, with None in place of NaN."""
        plain = asdict(self) | {"verdict": str(self.verdict), "scope": str(self.scope)}
        for name in ("value", "low", "high", "p"):
            plain[name] = plain[name] if math.isfinite(plain[name]) else None
        return plain


@dataclass(frozen=True)
class Examined:
    """A claim with the evidence on it, before the claims of a result are decided together.

    Attributes:
        statement: What the paper says.
        statistic: What is computed.
        threshold: The condition as text.
        paper: The paper's number or words.
        evidence: What the measurements say.
        kind: ``"test"``; ``"identity"``, decided by ``exact``; or ``"number"``, the paper's.
        exact: Whether an identity holds.
        tolerance: Of a number of the paper, the difference that does not matter.
        unmet: A condition of the claim that is not met; empty for none. It is undecided then.
        reference: The paper's number.
    """

    statement: str
    statistic: str
    threshold: str
    paper: str
    evidence: Evidence
    kind: str = "test"
    exact: bool = False
    tolerance: float = math.nan
    unmet: str = ""
    reference: float | None = None


def identity(statement: str, statistic: str, value: float, tolerance: float, paper: str = "exact") -> Examined:
    """Judge a numerical identity: the value, a relative error or a violation, must not exceed the tolerance."""
    measured = Evidence(float(value), units="no statistics")
    exact = bool(value <= tolerance)
    return Examined(statement, statistic, f"<= {tolerance:g}", paper, measured, "identity", exact)


def greater(
    statement: str,
    statistic: str,
    values: "pd.Series[float]",
    *,
    paper: str,
    margin: float = 0.0,
    unmet: str = "",
) -> Examined:
    """Judge whether a mean is above a margin.

    Args:
        statement: What the paper says.
        statistic: What the values are.
        values: With an index level ``seed``, and others for points.
        paper: The paper's number.
        margin: What the mean must exceed.
        unmet: A condition that is not met.
    """
    found = evidence.mean_between(values, low=margin)
    return Examined(statement, statistic, f"> {margin:g}", paper, found, unmet=unmet)


def less(
    statement: str,
    statistic: str,
    values: "pd.Series[float]",
    *,
    paper: str,
    margin: float = 0.0,
    unmet: str = "",
) -> Examined:
    """Judge whether a mean is below a margin; the arguments are those of :func:`greater`."""
    found = evidence.mean_between(values, high=margin)
    return Examined(statement, statistic, f"< {margin:g}", paper, found, unmet=unmet)


def between(
    statement: str, statistic: str, values: "pd.Series[float]", low: float, high: float, *, paper: str, threshold: str
) -> Examined:
    """Judge whether a mean is between two limits."""
    return Examined(statement, statistic, threshold, paper, evidence.mean_between(values, low, high))


def trend(statement: str, table: pd.DataFrame, x: str, y: str, sign: int, *, paper: str, unmet: str = "") -> Examined:
    """Judge whether the column ``y`` rises (``sign`` 1) or falls (-1) with ``x``, over the column ``seed``."""
    values = table.groupby([x, "seed"])[y].mean() if len(table) else pd.Series(dtype=float)
    found = evidence.trend(values, sign) if len(table) else Evidence(math.nan)
    threshold = "> 0" if sign > 0 else "< 0"
    return Examined(statement, f"rank correlation with {x}", threshold, paper, found, unmet=unmet)


def near(
    statement: str,
    statistic: str,
    values: "pd.Series[float]",
    paper: float,
    tolerance: float,
    *,
    runs: int = 1,
    unit: str = "",
) -> Examined:
    """Judge whether the paper's number, a mean of so many runs, is one that runs like these give.

    Args:
        statement: What the number is.
        statistic: What the values are.
        values: By seed.
        paper: The number.
        tolerance: A difference that does not matter.
        runs: The runs that the number is a mean of.
        unit: As in ``" %"``.
    """
    found = evidence.prediction(values, paper, runs)
    of = "one run" if runs == 1 else f"a mean of {runs} runs"
    threshold = f"{paper:g}{unit} in the interval for {of}, or +- {tolerance:g}"
    return Examined(
        statement, statistic, threshold, f"{paper:g}{unit}", found, "number", tolerance=tolerance, reference=paper
    )


def settle(tested: Sequence[Examined], scope: Scope = Scope.PUBLISHED, reduced: str = "") -> list[Claim]:
    """Judge all claims of a result together: the p-values are corrected by Holm's method.

    Claims without a value, because that part was not run, are left out, and so are numbers of the paper on other data.
    """
    kept = [
        each
        for each in tested
        if (each.unmet or math.isfinite(each.evidence.value)) and not (each.kind == "number" and scope == Scope.OTHER)
    ]
    raw = {i: min(each.evidence.holds, each.evidence.fails) for i, each in enumerate(kept) if is_tested(each)}
    corrected = holm(raw)
    levels = _levels(raw)
    # A claim that nothing here could decide joins the others once there are more seeds.
    later = LEVEL / max(1, sum(each.kind != "identity" and not each.unmet for each in kept))
    claims = [_claim(each, corrected.get(i, math.nan), levels.get(i, later)) for i, each in enumerate(kept)]
    return [replace(claim, scope=scope, reduced=reduced) for claim in claims]


def is_tested(claim: Examined) -> bool:
    """Return whether statistics can decide a claim, and some outcome could."""
    return claim.kind != "identity" and not claim.unmet and claim.evidence.testable


def holm(raw: dict[int, float]) -> dict[int, float]:
    """Return p-values corrected by Holm's method: the k-th smallest of m times m - k + 1, never falling."""
    result: dict[int, float] = {}
    largest = 0.0
    for place, i in enumerate(sorted(raw, key=raw.__getitem__)):
        largest = max(largest, min(1.0, raw[i] * (len(raw) - place)))
        result[i] = largest
    return result


def _levels(raw: dict[int, float]) -> dict[int, float]:
    """Return the level that each raw p-value must reach."""
    return {i: LEVEL / (len(raw) - place) for place, i in enumerate(sorted(raw, key=raw.__getitem__))}


def _claim(tested: Examined, p: float, level: float) -> Claim:
    found = tested.evidence
    verdict, why = _decide(tested, p, level)
    return Claim(
        tested.statement,
        tested.statistic,
        found.value,
        found.low,
        found.high,
        tested.threshold,
        tested.paper,
        verdict,
        p,
        found.units,
        why,
        tested.reference,
    )


def _decide(tested: Examined, p: float, level: float) -> tuple[Verdict, str]:
    found = tested.evidence
    if tested.unmet:
        return Verdict.UNDECIDED, tested.unmet
    if tested.kind == "identity":
        if tested.exact:
            return Verdict.HOLDS, "An identity; its error is within rounding."
        return Verdict.FAILS, "An identity; its error is beyond rounding."
    if tested.kind == "number":
        return _decide_number(tested, p, level)
    if not found.testable:
        return Verdict.UNDECIDED, f"No outcome of {found.units} could decide it. {found.more(level)}"
    if p <= LEVEL:
        verdict = Verdict.HOLDS if found.holds <= found.fails else Verdict.FAILS
        return verdict, f"Over {found.units}, {_corrected(found, p)}."
    return Verdict.UNDECIDED, f"Over {found.units}, {_corrected(found, p)}. {found.more(level)}"


def _decide_number(tested: Examined, p: float, level: float) -> tuple[Verdict, str]:
    found = tested.evidence
    assert tested.reference is not None
    if found.have < 2:
        return Verdict.UNDECIDED, f"The spread over seeds is not known; it takes {LEAST} to {INFORMATIVE} seeds."
    distance, reach = abs(found.value - tested.reference), (found.high - found.low) / 2
    interval = f"{found.low:.4g} to {found.high:.4g} over {found.units}"
    if found.fails > LEVEL * found.tests:  # neither other claims nor earlier tests make a number compatible
        if found.have >= INFORMATIVE or reach <= tested.tolerance:
            return Verdict.HOLDS, f"The paper's number is in the prediction interval, {interval}."
        wide = f"The prediction interval, {interval}, is too wide to say much."
        return Verdict.UNDECIDED, f"{wide} With {INFORMATIVE} seeds it is decided."
    if distance <= tested.tolerance:
        if found.have >= LEAST:
            why = "The paper's number is outside the prediction interval, by less than matters"
            return Verdict.HOLDS, f"{why} ({distance:.2g} of {tested.tolerance:g})."
        return Verdict.UNDECIDED, f"{LEAST} seeds would decide it."
    why = f"The paper's number is outside the prediction interval, {interval}; {_corrected(found, p)}."
    return (Verdict.FAILS, why) if p <= LEVEL else (Verdict.UNDECIDED, f"{why} {found.more(level)}")


def _corrected(found: Evidence, p: float) -> str:
    short = f"= {p:.2g}" if p >= 1e-4 else "< 0.0001"
    return f"p {short} after correction" + (f" (test {found.tests} of this claim)" if found.tests > 1 else "")
