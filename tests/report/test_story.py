"""The sentences that the page opens with: put together from the claims, and nothing else."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tangentlab.experiments import Result, Scope, Verdict, get
from tangentlab.report._numbers import dot_plot
from tangentlab.report._story import coverage, failed, in_numbers, tell
from tangentlab.report._topics import TOPICS


def claim(statement: str, verdict: Verdict, **more: Any) -> dict[str, Any]:
    base: dict[str, Any] = {"statement": statement, "verdict": str(verdict), "value": 0.125, "low": 0.1, "high": 0.15}
    rest = {"p": 0.01, "units": "3 seeds", "scope": str(Scope.REDUCED), "reduced": "", "reference": None}
    return base | rest | more


def result(name: str, *claims: dict[str, Any]) -> Result:
    return Result(name, Path(), pd.DataFrame(), {"claims": list(claims), "variant": ""}, False)


AHEAD = "The linearized MLP is ahead of the network on eigenfunctions"


def test_topics_are_of_experiments_and_their_claims() -> None:
    assert len(TOPICS) == 13
    assert sum(topic.short for topic in TOPICS) == 5
    for topic in TOPICS:
        assert all(get(name) for name in topic.ids)
        assert "{}" in topic.number


def test_a_sentence_has_the_numbers_of_its_claims() -> None:
    found = tell([result("ortiz2021/fig2", claim(AHEAD, Verdict.HOLDS), claim(AHEAD, Verdict.UNDECIDED, value=0.5))])
    (finding,) = found
    assert finding.verdict == Verdict.HOLDS
    assert finding.sentence == (
        "Found: holds in 1 of 2 claims, 1 of 2 undecided. The linearization is ahead by 12.5 points of test accuracy "
        "(MLP, 95 % bounds 10.0 and 15.0, 3 seeds, reduced)."
    )
    other = tell([result("ortiz2021/fig2", claim(AHEAD, Verdict.FAILS, value=-0.25, low=None, high=None, p=1e-9))])
    assert other[0].verdict == Verdict.FAILS
    assert "does not hold in 1 of 1" in other[0].sentence
    assert "by −25.0 points" in other[0].sentence
    assert "p < 0.0001" in other[0].sentence


def test_a_topic_with_as_many_claims_that_hold_as_do_not_has_neither_mark() -> None:
    claims = [claim(AHEAD, Verdict.HOLDS), claim(AHEAD, Verdict.FAILS), claim(AHEAD, Verdict.UNDECIDED)]
    (tie,) = tell([result("ortiz2021/fig2", *claims)])
    assert tie.verdict == Verdict.UNDECIDED
    (more,) = tell([result("ortiz2021/fig2", *claims, claim(AHEAD, Verdict.FAILS))])
    assert more.verdict == Verdict.FAILS


def test_the_number_shown_is_decided_and_close_to_the_paper() -> None:
    near, far = claim(AHEAD, Verdict.HOLDS, value=0.2), claim(AHEAD, Verdict.HOLDS, scope=str(Scope.OTHER))
    (finding,) = tell([result("ortiz2021/fig2", far, near, claim(AHEAD, Verdict.UNDECIDED, value=0.9))])
    assert finding.leading[1] is near
    assert tell([result("ortiz2021/lemma1", claim("Else", Verdict.HOLDS))]) == []


def test_what_does_not_hold_is_listed() -> None:
    wrong = claim("A claim", Verdict.FAILS, value=1.5, threshold="> 2")
    found = [result("ortiz2021/fig2", claim(AHEAD, Verdict.HOLDS), wrong)]
    assert [text for _, text in failed(found)] == ["ortiz2021/fig2, A claim: 1.5, required > 2 (3 seeds, reduced)."]
    assert coverage(found) == "These topics are about 1 of the 2 claims."


def test_seeds_come_before_points_of_one_seed() -> None:
    points = claim(AHEAD, Verdict.HOLDS, units="4 points of 1 seed", scope=str(Scope.PUBLISHED))
    seeds = claim(AHEAD, Verdict.HOLDS, value=0.2)
    assert tell([result("ortiz2021/fig2", points, seeds)])[0].leading[1] is seeds


def test_counts_by_scope() -> None:
    several = [claim("a", verdict) for verdict in Verdict] + [claim("b", Verdict.HOLDS, scope=str(Scope.OTHER))]
    assert in_numbers([result("ortiz2021/fig2", *several)]) == (
        "Claims by verdict. The papers' settings, reduced: holds 1, does not hold 1, undecided 1. "
        "On other data: holds 1, does not hold 0, undecided 0."
    )


def test_the_dot_plot_has_a_row_for_each_number() -> None:
    with_number = claim("Energy", Verdict.HOLDS, value=24.0, low=20.0, high=28.0, reference=26.0)
    panel = dot_plot([result("ortiz2021/table1", with_number, claim("Else", Verdict.HOLDS))])
    assert panel is not None
    (row,) = panel["data"]["values"]
    assert (row["ours"], row["published"], row["low"]) == pytest.approx((24.0, 26.0, 20.0))
    assert dot_plot([result("ortiz2021/table1", claim("Else", Verdict.HOLDS))]) is None
