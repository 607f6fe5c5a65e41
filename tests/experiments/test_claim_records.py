"""What a claim says, field by field, and which side of a threshold a number on it falls."""

import math
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from tangentlab.experiments import Spec, Verdict, _judge
from tangentlab.experiments._judge import draw, judge, spec_of_record
from tangentlab.experiments._registry import get
from tangentlab.experiments._verdicts import Claim, condition, greater, identity, near, trend, word

# A correlation with a constant is left out, not computed with a warning.
pytestmark = pytest.mark.filterwarnings("error")

TINY, SMALL, PAPER = (Spec(preset=name) for name in ("tiny", "small", "paper"))
HOLDS, FAILS, UNDECIDED = Verdict.HOLDS, Verdict.FAILS, Verdict.UNDECIDED
MEETS, MISSES = "The statistic meets the threshold.", "The statistic misses the threshold."


def test_identity() -> None:
    assert identity("S", "s", 1e-9, 1e-8) == Claim(
        "S", "s", 1e-9, "<= 1e-08", "exact", HOLDS, True, "An identity; its error is compared with rounding."
    )
    assert identity("S", "s", 1e-8, 1e-8).agrees is True
    assert identity("S", "s", 2e-8, 1e-8, "P") == Claim(
        "S", "s", 2e-8, "<= 1e-08", "P", FAILS, False, "The error is beyond rounding."
    )


def test_trend() -> None:
    x = [1, 2, 3, 4]
    assert trend("S", x, [1, 2, 3, 4], 1, SMALL, paper="P") == Claim(
        "S", "Spearman's rank correlation", pytest.approx(1), ">= 0.5", "P", HOLDS, True, MEETS
    )
    assert trend("S", x, [4, 3, 1, 2], -1, SMALL, paper="P", least=0.7) == Claim(
        "S", "Spearman's rank correlation", pytest.approx(-0.8), "<= -0.7", "P", HOLDS, True, MEETS
    )
    assert trend("S", x, [4, 3, 1, 2], -1, SMALL, paper="P", least=0.9).verdict == FAILS
    assert trend("S", x, [4, 3, 1, 2], 1, SMALL, paper="P").explanation == MISSES
    assert trend("S", [1, 2, 3, 4, 5], [2, 1, 4, 5, 3], 1, SMALL, paper="P", least=0.6).value == pytest.approx(0.6)
    assert trend("S", [1, 2, 3, 4, 5], [2, 1, 4, 5, 3], 1, SMALL, paper="P", least=0.59).agrees


@pytest.mark.parametrize("sign", [1, -1])
def test_trend_on_the_threshold(sign: int) -> None:
    x, y = [1, 2, 3, 4, 5], [sign * v for v in (2, 1, 4, 5, 3)]
    value = trend("S", x, y, sign, SMALL, paper="P").value
    assert value == pytest.approx(sign * 0.6)
    assert trend("S", x, y, sign, SMALL, paper="P", least=abs(value)).verdict == HOLDS


@pytest.mark.parametrize(("x", "why"), [([1, 2, 3], "3 points"), ([1, 1, 2, 2], "2 points"), ([1], "1 points")])
def test_trend_of_too_few_points(x: list[float], why: str) -> None:
    claim = trend("S", x, list(range(len(x))), 1, SMALL, paper="P", shortage="Another reason.")
    assert claim.verdict == UNDECIDED
    assert claim.explanation.startswith(why)
    assert (claim.agrees is None) == (len(x) == 1)


def test_trend_leaves_out_what_is_missing_on_either_side() -> None:
    claim = trend("S", [1, 2, math.nan, 4, 5, 6], [1, 2, 9, 4, math.inf, 6], 1, SMALL, paper="P")
    assert (claim.value, claim.verdict) == (pytest.approx(1), HOLDS)
    assert math.isnan(trend("S", [1, 1, 1, 1], [1, 2, 3, 4], 1, SMALL, paper="P").value)
    assert math.isnan(trend("S", [1, 2, 3, 4], [7, 7, 7, 7], 1, SMALL, paper="P").value)
    assert trend("S", [1, 1, 2, 2], [3, 3, 4, 4], 1, SMALL, paper="P").value == pytest.approx(1)


def test_greater() -> None:
    assert greater("S", "s", [1.0, 1.2], SMALL, paper="P", margin=0.5, reference=3.0) == Claim(
        "S", "s", pytest.approx(1.1), "> 0.5", "P", HOLDS, True, MEETS, 3.0
    )
    assert greater("S", "s", [1.0, 1.2], SMALL, paper="P", margin=2) == Claim(
        "S", "s", pytest.approx(1.1), "> 2", "P", FAILS, False, MISSES
    )
    assert greater("S", "s", [1.0, math.nan, math.inf], SMALL, paper="P").value == 1.0
    assert greater("S", "s", [], SMALL, paper="P", reference=2.0) == Claim(
        "S", "s", pytest.approx(math.nan, nan_ok=True), "> 0", "P", UNDECIDED, None, "There are no values.", 2.0
    )
    assert greater("S", "s", [math.nan], SMALL, paper="P", shortage="Why.").explanation == "Why."


def test_twice_the_standard_error_decides() -> None:
    """Two values a and b have the standard error |a - b| / 2: the mean 1 is decided for a spread below 0.5."""
    assert greater("S", "s", [0.52, 1.48], SMALL, paper="P").verdict == HOLDS
    assert greater("S", "s", [0.48, 1.52], SMALL, paper="P") == Claim(
        "S", "s", 1.0, "> 0", "P", UNDECIDED, True, "The difference is within twice its standard error (0.52)."
    )
    assert greater("S", "s", [0.5, 1.5], SMALL, paper="P").verdict == UNDECIDED  # on the border
    assert greater("S", "s", [1.0], SMALL, paper="P", error=0.5).verdict == UNDECIDED
    assert greater("S", "s", [1.0], SMALL, paper="P", error=0.49).verdict == HOLDS
    assert greater("S", "s", [1.0], SMALL, paper="P", margin=1.9, error=0.49).verdict == UNDECIDED
    assert greater("S", "s", [1.0], SMALL, paper="P", margin=2.1, error=0.49).verdict == FAILS
    assert greater("S", "s", [0.52, 1.48], SMALL, paper="P", error=9.0).verdict == HOLDS  # the seeds' own is known
    assert greater("S", "s", [1.0], SMALL, paper="P").verdict == HOLDS  # nothing is known of the error
    assert greater("S", "s", [0.5], SMALL, paper="P", margin=0.5).agrees is False
    assert greater("S", "s", [0.5], SMALL, paper="P", error=9.0, shortage="Why.").explanation == "Why."


def test_near() -> None:
    assert near("S", "s", 4.0, 5.0, 1.0, PAPER, unit=" %") == Claim(
        "S", "s", 4.0, "5 +- 1 %", "5 %", HOLDS, True, MEETS, 5.0
    )
    assert near("S", "s", 6.0, 5.0, 1.0, PAPER).agrees is True
    assert near("S", "s", 6.1, 5.0, 1.0, PAPER) == Claim("S", "s", 6.1, "5 +- 1", "5", FAILS, False, MISSES, 5.0)
    assert near("S", "s", 3.9, 5.0, 1.0, PAPER).verdict == FAILS
    missing = near("S", "s", math.nan, 5.0, 1.0, PAPER)
    assert (missing.verdict, missing.explanation) == (UNDECIDED, "There is nothing to compute it from.")


@pytest.mark.parametrize("agrees", [True, False])
def test_scale_comes_before_any_other_reason(agrees: bool) -> None:
    words = "the paper's side" if agrees else "the other side"
    claim = condition("S", "s", 1.0, "t", agrees, TINY, paper="P", shortage="Why.", reference=2.0)
    reason = TINY.shortage("small")
    why = f"{reason} Here the number is on {words} of the threshold."
    assert claim == Claim("S", "s", 1.0, "t", "P", UNDECIDED, agrees, why, 2.0)
    assert condition("S", "s", 1.0, "t", agrees, SMALL, paper="P", scale="paper").verdict == UNDECIDED
    assert condition("S", "s", 1.0, "t", agrees, PAPER, paper="P", scale="paper").verdict == (
        HOLDS if agrees else FAILS
    )
    decided = condition("S", "s", 1.0, "t", agrees, SMALL, paper="P")
    assert decided.explanation == (MEETS if agrees else MISSES)
    named = condition("S", "s", 1.0, "t", agrees, SMALL, paper="P", shortage="Why.")
    assert (named.verdict, named.explanation, named.agrees) == (UNDECIDED, "Why.", agrees)


def test_word() -> None:
    assert word("S", "s", 2, paper="P", lacking="L") == Claim("S", "s", 2.0, "none", "P", UNDECIDED, None, "L")


@pytest.mark.parametrize(("value", "plain"), [(1.5, 1.5), (math.nan, None), (math.inf, None)])
def test_plain_values(value: float, plain: Any) -> None:
    found = word("S", "s", value, paper="P", lacking="L").as_dict()
    expected = {"statement": "S", "statistic": "s", "value": plain, "threshold": "none", "paper": "P"}
    assert found == expected | {
        "verdict": "not decidable at this scale",
        "agrees": None,
        "explanation": "L",
        "reference": None,
    }
    assert type(found["verdict"]) is str


def test_records_are_judged_by_their_spec() -> None:
    """The spec of a record: its preset with the record's values, where they are fields that can be set."""
    experiment = get("ortiz2021/lemma1")
    preset = experiment.presets["small"]
    record = {"id": experiment.id, "preset": "small", "spec": {"seeds": 7, "less": "Old words.", "gone": 1}}
    spec = spec_of_record(record)
    assert (type(spec), spec.preset, spec.seeds) == (type(preset), "small", 7)
    assert spec.less != "Old words."
    calls: list[Any] = []
    table = pd.DataFrame({"a": [1]})
    planted = SimpleNamespace(
        presets=experiment.presets,
        claims=lambda *given: calls.append(("claims", *given)) or ["claim"],
        plot=lambda *given: calls.append(("plot", *given)) or "figure",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_judge, "get", {experiment.id: planted}.__getitem__)
        patch.setattr(_judge, "spec_of", lambda found, preset, values: (found is planted, preset, values))
        assert judge(record, table) == ["claim"]
        assert draw(record, table) == "figure"
    expected = (True, "small", {"seeds": 7})
    assert [(kind, given is table, spec) for kind, given, spec in calls] == [
        ("claims", True, expected),
        ("plot", True, expected),
    ]
