"""The rules by which claims are decided."""

import math

from hypothesis import given
from hypothesis import strategies as st

from tangentlab.experiments import Spec, Verdict
from tangentlab.experiments._verdicts import condition, greater, identity, near, trend, word

TINY, SMALL, PAPER = (Spec(preset=name) for name in ("tiny", "small", "paper"))


def test_identities_are_decided_at_any_scale() -> None:
    assert identity("", "", 1e-12, 1e-8).verdict == Verdict.HOLDS
    assert identity("", "", 1e-3, 1e-8).verdict == Verdict.FAILS
    assert identity("", "", math.nan, 1e-8).verdict == Verdict.FAILS


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=6))
def test_tiny_decides_nothing_empirical(values: list[float]) -> None:
    for claim in (
        greater("", "", values, TINY, paper=""),
        trend("", list(range(len(values))), values, +1, TINY, paper=""),
        near("", "", values[0], 0.5, 1, TINY),
        condition("", "", 1.0, "", True, TINY, paper=""),
    ):
        assert claim.verdict == Verdict.UNDECIDED


def test_trend() -> None:
    x = [1, 2, 3, 4, 5]
    assert trend("", x, [5, 4, 3, 2, 1], -1, SMALL, paper="").verdict == Verdict.HOLDS
    assert trend("", x, [5, 4, 3, 2, 1], +1, SMALL, paper="").verdict == Verdict.FAILS
    few = trend("", [1, 2, 3], [3, 2, 1], -1, SMALL, paper="")
    assert (few.verdict, few.agrees) == (Verdict.UNDECIDED, True)
    assert trend("", x, [1, 1, 1, 1, 1], -1, SMALL, paper="").agrees is None
    gaps = trend("", x, [5, 4, math.nan, math.inf, 1], -1, SMALL, paper="")
    assert gaps.value == -1
    assert gaps.verdict == Verdict.UNDECIDED  # three points are left


def test_a_difference_within_the_seeds_spread_is_not_decided() -> None:
    assert greater("", "", [1.0, 1.1, 0.9], SMALL, paper="").verdict == Verdict.HOLDS
    assert greater("", "", [-1.0, -1.1, -0.9], SMALL, paper="").verdict == Verdict.FAILS
    assert greater("", "", [1.0, -1.1, 0.9], SMALL, paper="").verdict == Verdict.UNDECIDED
    assert greater("", "", [0.01], SMALL, paper="", error=0.02).verdict == Verdict.UNDECIDED
    assert greater("", "", [0.05], SMALL, paper="", error=0.02).verdict == Verdict.HOLDS
    assert greater("", "", [], SMALL, paper="").agrees is None


def test_numbers_need_the_papers_settings() -> None:
    assert near("", "", 4.7, 4.67, 0.5, SMALL).verdict == Verdict.UNDECIDED
    assert near("", "", 4.7, 4.67, 0.5, PAPER).verdict == Verdict.HOLDS
    assert near("", "", 9.7, 4.67, 0.5, PAPER).verdict == Verdict.FAILS
    assert near("", "", math.nan, 4.67, 0.5, PAPER).agrees is None
    assert near("", "", 4.7, 4.67, 0.5, Spec(preset="small", unlike="")).verdict == Verdict.HOLDS
    changed = near("", "", 4.7, 4.67, 0.5, Spec(preset="paper", unlike="epochs = 5 (paper: 100)"))
    assert (changed.verdict, changed.agrees, changed.reference) == (Verdict.UNDECIDED, True, 4.67)
    assert "epochs = 5 (paper: 100)" in changed.explanation


def test_less_than_small_decides_nothing_empirical() -> None:
    spec = Spec(preset="paper", less="Too little.", unlike="")
    for claim in (
        greater("", "", [1.0], spec, paper=""),
        trend("", [1, 2, 3, 4], [1, 2, 3, 4], +1, spec, paper=""),
        near("", "", 1, 1, 1, spec),
        condition("", "", 1.0, "", False, spec, paper=""),
    ):
        assert claim.verdict == Verdict.UNDECIDED
        assert "Too little." in claim.explanation


def test_a_shortage_that_the_caller_names() -> None:
    for claim in (
        greater("", "", [1.0], PAPER, paper="", shortage="One width."),
        greater("", "", [], PAPER, paper="", shortage="One width."),
        trend("", [1, 2, 3, 4], [4, 3, 2, 1], +1, PAPER, paper="", shortage="One width."),
        condition("", "", 1.0, "", False, PAPER, paper="", shortage="One width."),
    ):
        assert (claim.verdict, claim.explanation) == (Verdict.UNDECIDED, "One width.")


def test_a_word_without_a_number_is_never_decided() -> None:
    claim = word("", "", 0.6, paper="much lower", lacking="No number.")
    assert (claim.verdict, claim.agrees, claim.value) == (Verdict.UNDECIDED, None, 0.6)


def test_nan_is_no_number_in_json() -> None:
    assert near("", "", math.nan, 1.0, 0.5, PAPER).as_dict()["value"] is None
    assert condition("", "", math.inf, "", False, PAPER, paper="").as_dict()["value"] is None
