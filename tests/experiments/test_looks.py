"""Seeds added later: when claims were tested before, and what their p-values and explanations are then."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tangentlab.experiments import Examined, Verdict, _judge, get
from tangentlab.experiments._looks import count_tests, earlier_seeds, retested
from tangentlab.experiments._verdicts import greater, identity, near, settle, trend

THREE = (1.0, 1.6, 0.7)


def seeds(*values: float) -> "pd.Series[float]":
    return pd.Series(values, pd.Index(range(len(values)), name="seed"), dtype=float)


def part(seeds: list[int], finished: str, seconds: float = 600.0, **more: float) -> dict[str, Any]:
    return {
        "seeds": seeds,
        "finished": f"2026-01-02T{finished}+00:00",
        "seconds": seconds,
        "hardware": {"cores": 2},
        **more,
    }


def mean(*values: float, statement: str = "S", **more: Any) -> Examined:
    return greater(statement, "", seeds(*values), paper="", **more)


def counted(now: Examined, *before: Examined) -> int:
    return count_tests([now], [[each] for each in before])[0].evidence.tests


@pytest.mark.parametrize(
    ("parts", "earlier"),
    [
        ([], []),
        ([part([0, 1, 2], "10:00:00")], []),
        ([part([0], "10:00:00"), part([1, 2], "11:00:00"), part([3], "12:00:00")], [[0], [0, 1, 2]]),
        ([part([0], "12:00:00"), part([1, 2], "10:00:00")], [[1, 2]]),  # the lower seed came later
        # Two runs at the same time, of which the second finished first.
        ([part([0], "10:00:00"), part([1], "12:00:00"), part([2], "11:59:00")], [[0]]),
        # The last was begun when the first had finished and the second had not.
        ([part([0], "10:00:00"), part([1], "10:05:00"), part([2], "10:12:00")], [[0]]),
        ([part([0], "10:00:00"), part([1], "10:11:00"), part([2], "10:30:00")], [[0], [0, 1]]),
        # Work that was shared with another figure, by two cores at most.
        ([part([0], "10:00:00", 0.1, work_seconds=900), part([1], "10:07:00", 0.1, work_seconds=900)], []),
        ([part([0], "10:00:00", 0.1, work_seconds=900), part([1], "10:08:00", 0.1, work_seconds=900)], [[0]]),
        # One directly after the other; their times are rounded down.
        ([part([0], "10:00:00", 0.9), part([1], "10:00:00", 0.9)], [[0]]),
    ],
)
def test_seeds_that_were_there_when_others_were_begun(parts: list[dict[str, Any]], earlier: list[list[int]]) -> None:
    assert earlier_seeds({"parts": parts} if parts else {}) == earlier


def test_only_tests_that_could_decide_count() -> None:
    now = mean(*THREE, 1.2)
    assert counted(now) == 1
    assert counted(now, mean(1.0), mean(*THREE[:2])) == 1  # no outcome of one seed or two could decide
    assert counted(now, mean(1.0), mean(*THREE)) == 2
    assert counted(now, mean(*THREE), mean(*THREE, 1.0)) == 3
    assert counted(now, mean(*THREE, unmet="They hardly learned.")) == 1
    assert counted(now, mean(*THREE, statement="Another")) == 1
    assert counted(identity("S", "", 0.0, 1e-8), identity("S", "", 0.0, 1e-8)) == 1
    one, two, number = (near("S", "", seeds(*(*THREE, 1.2)[:n]), 5.0, 0.1) for n in (1, 2, 4))
    assert (counted(number, one), counted(number, two)) == (1, 2)
    three, four = (
        trend("S", pd.DataFrame({"x": range(n), "y": range(n), "seed": 0}), "x", "y", 1, paper="") for n in (3, 4)
    )
    assert (counted(four, three), counted(four, four)) == (1, 2)  # 1 in 6 and 1 in 24


def test_p_values_are_multiplied_before_the_correction() -> None:
    one, two = mean(*THREE), mean(*THREE, statement="T")
    again = count_tests([one, two], [[one]])
    assert again[0].evidence.holds == pytest.approx(2 * one.evidence.holds)
    assert again[0].evidence.fails == 1.0  # at most
    assert again[1] == two
    raw = one.evidence.holds
    assert [claim.p for claim in settle([one, two])] == pytest.approx([2 * raw, 2 * raw])
    assert [claim.p for claim in settle(again)] == pytest.approx([2 * raw, 2 * raw])  # 2 raw alone, raw of two
    (claim,) = settle(count_tests([one], [[one], [one]]))
    assert claim.p == pytest.approx(3 * raw)
    assert (settle([one])[0].verdict, claim.verdict) == (Verdict.HOLDS, Verdict.UNDECIDED)
    assert settle(count_tests([one], [])) == settle([one])


def test_identities_do_not_change() -> None:
    claims = [identity("S", "", 0.0, 1e-8), identity("T", "", 1.0, 1e-8)]
    assert settle(count_tests(claims, [claims, claims])) == settle(claims)


def test_the_explanation_counts_the_next_test() -> None:
    now = mean(1.0, -1.1, 0.9, 1.0, 0.2)
    for earlier in (0, 1, 2):
        (claim,) = settle(count_tests([now], [[now]] * earlier))
        number = int(claim.explanation.split("About ")[1].split()[0])
        level = 0.05 / (earlier + 2)
        enough = [now.evidence.effect * np.sqrt(n) >= stats.t.ppf(1 - level, n - 1) for n in (number - 1, number)]
        assert enough == [False, True]
        assert ("test" in claim.explanation) == (earlier > 0)
        assert (f"after correction (test {earlier + 1} of this claim)" in claim.explanation) == (earlier > 0)
    # What could not be decided has spent nothing: perfect ranks of three points need two seeds, as a first test.
    ranks = trend("S", pd.DataFrame({"x": range(3), "y": range(3), "seed": 0}), "x", "y", 1, paper="")
    (claim,) = settle(count_tests([ranks], [[ranks]]))
    assert "About 2 seeds in all" in claim.explanation


def test_earlier_tests_do_not_make_a_number_compatible() -> None:
    ours = seeds(4.0, 5.0, 6.0, 5.5, 4.5, 5.0)
    deviation = ours.std(ddof=1)

    def judged(t: float, tolerance: float = 0.1) -> list[Verdict]:
        """Verdicts in a first and a second test of a number that is so many standard errors off."""
        number = near("S", "", ours, 5.0 + t * deviation * np.sqrt(1 + 1 / 6), tolerance)
        return [settle(count_tests([number], [[number]] * earlier))[0].verdict for earlier in (0, 1)]

    first, second = stats.t.ppf(1 - 0.05 / 2, 5), stats.t.ppf(1 - 0.05 / 4, 5)
    assert judged(first - 0.01) == [Verdict.HOLDS, Verdict.HOLDS]
    assert judged(first + 0.01) == [Verdict.FAILS, Verdict.UNDECIDED]
    assert judged(first + 0.01, tolerance=9.0) == [Verdict.HOLDS, Verdict.HOLDS]  # too small to matter
    assert judged(second + 0.01) == [Verdict.FAILS, Verdict.FAILS]
    number = near("S", "", ours, 5.0 + 3.0 * deviation, 0.1, runs=5)
    (claim,) = settle(count_tests([number], [[number]] * 99))
    needed = int(claim.explanation.split("About ")[1].split()[0])
    enough = [stats.t.ppf(1 - 0.05 / 101 / 2, n - 1) * np.sqrt(1 / n + 1 / 5) <= 3.0 for n in (needed - 1, needed)]
    assert enough == [False, True]


def test_claims_are_examined_with_the_earlier_seeds() -> None:
    table = pd.DataFrame({"seed": range(6), "y": [*THREE, 1.2, 0.8, 1.1]})
    given: list[list[int]] = []

    def claims(part: pd.DataFrame, spec: Any) -> list[Examined]:
        assert spec == "spec"
        assert list(part.index) == list(range(len(part)))
        given.append(part["seed"].tolist())
        return [greater("S", "", part.set_index("seed")["y"], paper="")]

    (claim,) = retested(claims, [[0], [0, 1, 2]])(table, "spec")
    assert given == [[0, 1, 2, 3, 4, 5], [0], [0, 1, 2]]
    assert (claim.evidence.tests, claim.evidence.have) == (2, 6)


def test_records_with_parts_are_judged_with_their_earlier_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = get("ortiz2021/lemma1")
    planted = replace(experiment, claims=lambda table, spec: [greater("S", "", table.set_index("seed")["y"], paper="")])
    monkeypatch.setattr(_judge, "get", {experiment.id: planted}.__getitem__)
    table = pd.DataFrame({"seed": range(4), "y": [*THREE, 1.2]})
    record = {"id": experiment.id, "preset": "small", "spec": {"seeds": 4}}
    parts = [part([0, 1, 2], "10:00:00"), part([3], "12:00:00")]
    (whole,), (joined,) = _judge.judge(record, table), _judge.judge({**record, "parts": parts}, table)
    assert joined.p == pytest.approx(2 * whole.p)
