"""Evidence and verdicts: each kind of claim, the correction, what is left out, and what is said of undecided ones."""

import math
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tangentlab.experiments import Examined, Scope, Verdict
from tangentlab.experiments import _evidence as evidence
from tangentlab.experiments._evidence import Evidence
from tangentlab.experiments._verdicts import between, greater, holm, identity, less, near, settle, trend


def seeds(*values: float) -> "pd.Series[float]":
    return pd.Series(values, pd.Index(range(len(values)), name="seed"), dtype=float)


def points(*values: float, seed: int = 0) -> "pd.Series[float]":
    index = pd.MultiIndex.from_product([range(len(values)), [seed]], names=["width", "seed"])
    return pd.Series(values, index, dtype=float)


def verdict(*tested: Examined) -> Verdict:
    return settle(tested)[0].verdict


def test_identities_need_no_statistics() -> None:
    assert verdict(identity("", "", 1e-12, 1e-8)) == Verdict.HOLDS
    assert verdict(identity("", "", 1e-3, 1e-8)) == Verdict.FAILS
    (claim,) = settle([identity("S", "s", 1e-8, 1e-8)])
    assert (claim.verdict, claim.units, claim.threshold) == (Verdict.HOLDS, "no statistics", "<= 1e-08")
    assert math.isnan(claim.p)


def test_means_of_seeds() -> None:
    assert verdict(greater("", "", seeds(1.0, 1.1, 0.9), paper="")) == Verdict.HOLDS
    assert verdict(greater("", "", seeds(-1.0, -1.1, -0.9), paper="")) == Verdict.FAILS
    assert verdict(greater("", "", seeds(1.0, -1.1, 0.9), paper="")) == Verdict.UNDECIDED
    assert verdict(less("", "", seeds(-1.0, -1.1, -0.9), paper="")) == Verdict.HOLDS
    assert verdict(greater("", "", seeds(1.0, 1.1, 0.9), paper="", margin=2.0)) == Verdict.FAILS
    found = evidence.mean_between(seeds(1.0, 2.0, 4.0), low=0.5)
    expected = stats.ttest_1samp([1.0, 2.0, 4.0], 0.5, alternative="greater")
    assert found.holds == pytest.approx(expected.pvalue)
    assert found.fails == pytest.approx(1 - expected.pvalue)
    bounds = stats.ttest_1samp([1.0, 2.0, 4.0], 0.5).confidence_interval(0.9)
    assert (found.low, found.high) == pytest.approx(tuple(bounds))


def test_the_units_follow_from_the_design() -> None:
    table = pd.concat([points(1.0, 2.0, 3.0, 4.0, seed=seed) for seed in range(3)])
    assert evidence.mean_between(table, low=0).units == "3 seeds"
    assert evidence.mean_between(table.xs(0, level="seed", drop_level=False), low=0).units == "4 points of 1 seed"
    few = greater("", "", points(5.0, 6.0), paper="")
    assert verdict(few) == Verdict.UNDECIDED
    assert "at least 3 seeds" in settle([few])[0].explanation
    assert verdict(greater("", "", seeds(5.0, 5.1), paper="")) == Verdict.UNDECIDED


def test_equal_units_are_tested_by_their_signs() -> None:
    for number, holds in ((3, Verdict.UNDECIDED), (4, Verdict.UNDECIDED), (5, Verdict.HOLDS)):  # 1 in 2^n
        assert verdict(greater("", "", seeds(*[100.0] * number), paper="", margin=99.99)) == holds
    assert verdict(greater("", "", seeds(*[90.0] * 5), paper="", margin=99.99)) == Verdict.FAILS
    (claim,) = settle([greater("", "", seeds(*[100.0] * 3), paper="", margin=99.99)])
    assert math.isnan(claim.low)
    assert "About 6 seeds in all" in claim.explanation  # as a second test: 2 / 2^6 <= 5 %


def test_between() -> None:
    def judged(*values: float) -> Verdict:
        return verdict(between("", "", seeds(*values), 1.0, 2.0, paper="", threshold="in 1..2"))

    assert judged(1.4, 1.5, 1.6) == Verdict.HOLDS
    assert judged(2.9, 3.0, 3.1) == Verdict.FAILS
    assert judged(-2.9, -3.0, -3.1) == Verdict.FAILS
    assert judged(1.0, 2.0, 2.1) == Verdict.UNDECIDED


@pytest.mark.parametrize("ties", [False, True])
def test_trends_of_one_seed_are_exact(ties: bool) -> None:
    values = [1.0, 2.0, 2.0, 5.0, 4.0] if ties else [1.0, 3.0, 2.0, 5.0, 4.0]
    rho = stats.spearmanr(range(5), values).statistic
    every = [stats.spearmanr(range(5), order).statistic for order in permutations(values)]
    found = evidence.trend(points(*values), +1)
    assert found.value == pytest.approx(rho)
    assert found.holds == pytest.approx(np.mean(np.array(every) >= rho - 1e-12))
    assert found.fails == pytest.approx(np.mean(np.array(every) <= rho + 1e-12))


def test_trends() -> None:
    def judged(*values: float, sign: int = -1, copies: int = 1) -> Verdict:
        table = pd.concat([points(*values, seed=seed) for seed in range(copies)]).rename("y").reset_index()
        return verdict(trend("", table, "width", "y", sign, paper=""))

    assert judged(5, 4, 3, 2, 1) == Verdict.HOLDS
    assert judged(5, 4, 3, 2, 1, sign=+1) == Verdict.FAILS
    assert judged(4, 3, 2, 1) == Verdict.HOLDS  # 1 in 24
    assert judged(3, 2, 1) == Verdict.UNDECIDED  # 1 in 6
    assert judged(3, 2, 1, copies=2) == Verdict.HOLDS  # 1 in 36
    assert judged(5, 4, 3, 1, 2, 0.5, copies=3) == Verdict.HOLDS
    many = pd.concat([points(5.0 + seed / 10, 4.0, seed=seed) for seed in range(3)]).rename("y").reset_index()
    assert verdict(trend("", many, "width", "y", -1, paper="")) == Verdict.HOLDS  # two points: their difference
    assert settle([trend("", many[many["width"] == 0], "width", "y", -1, paper="")]) == []  # one point is none
    assert settle([trend("", many.iloc[:0], "width", "y", -1, paper="")]) == []


def test_numbers_of_the_paper() -> None:
    assert verdict(near("", "", seeds(4.0), 5.0, 1.0)) == Verdict.UNDECIDED
    assert verdict(near("", "", seeds(4.0, 5.0, 6.0, 5.5, 4.5, 5.0), 6.0, 0.1)) == Verdict.HOLDS
    assert verdict(near("", "", seeds(4.0, 5.0, 6.0), 6.0, 0.1)) == Verdict.UNDECIDED  # the interval is wide
    assert verdict(near("", "", seeds(4.9, 5.0, 5.1), 5.1, 1.0)) == Verdict.HOLDS  # it is narrow
    assert verdict(near("", "", seeds(4.9, 5.0, 5.1), 9.0, 1.0)) == Verdict.FAILS
    assert verdict(near("", "", seeds(4.99, 5.0, 5.01), 5.5, 1.0)) == Verdict.HOLDS  # too small to matter
    found = evidence.prediction(seeds(4.0, 5.0, 6.0), 6.0, runs=5)
    reach = stats.t.ppf(0.975, 2) * math.sqrt(1 / 3 + 1 / 5)
    assert (found.low, found.high) == pytest.approx((5 - reach, 5 + reach))
    assert settle([near("", "", seeds(5.0, 5.0), 5.0, 1.0)], Scope.OTHER) == []  # no claim on other data


def test_other_claims_do_not_make_a_number_compatible() -> None:
    outside = near("", "", seeds(4.0, 5.0, 6.0, 5.5, 4.5, 5.0), 7.5, 0.1)
    assert 0.01 < outside.evidence.fails < 0.05
    assert verdict(outside) == Verdict.FAILS
    others = [near("", "", seeds(4.0, 5.0, 6.0, 5.5, 4.5, 5.0), 5.0, 0.1)] * 9
    assert settle([outside, *others])[0].verdict == Verdict.UNDECIDED  # outside of the interval, by too little


def test_functions_that_stand_out() -> None:
    others = points(*np.linspace(0.5, 1.5, 99))
    high = evidence.stands_out(seeds(9.0), others)
    assert (high.holds, high.value) == (pytest.approx(1 / 100), pytest.approx(9 / np.quantile(others, 0.99)))
    assert evidence.stands_out(seeds(0.1), others).fails == pytest.approx(1 / 100)
    assert min(evidence.stands_out(seeds(1.0), others).holds, evidence.stands_out(seeds(1.0), others).fails) > 0.4


def test_holm() -> None:
    assert holm({0: 0.01, 1: 0.04, 2: 0.03}) == pytest.approx({0: 0.03, 1: 0.06, 2: 0.06})
    alone, five = greater("", "", seeds(1.0, 1.6, 0.7), paper=""), greater("", "", seeds(1.0, -1.0, 0.1), paper="")
    assert verdict(alone) == Verdict.HOLDS
    assert verdict(alone, five, five, five, five) == Verdict.UNDECIDED  # corrected for five claims
    hopeless = trend("", points(3, 2, 1).rename("y").reset_index(), "width", "y", -1, paper="")
    assert verdict(alone, *[hopeless] * 9) == Verdict.HOLDS  # what no outcome could decide does not count


def test_what_is_not_listed_and_what_is_not_met() -> None:
    missing = greater("", "", pd.Series(dtype=float).rename_axis("seed"), paper="")
    assert settle([missing]) == []
    (claim,) = settle([greater("", "", seeds(1.0, 1.1, 0.9), paper="", unmet="They hardly learned.")])
    assert (claim.verdict, claim.explanation) == (Verdict.UNDECIDED, "They hardly learned.")


def test_undecided_says_what_would_decide() -> None:
    (claim,) = settle([greater("", "", seeds(1.0, -1.1, 0.9, 1.0, 0.2), paper="")])
    assert "seeds in all would decide" in claim.explanation
    number = int(claim.explanation.split("About ")[1].split()[0])
    effect = evidence.mean_between(seeds(1.0, -1.1, 0.9, 1.0, 0.2), low=0).effect
    # They are for a second test.
    assert effect * math.sqrt(number) >= stats.t.ppf(1 - 0.05 / 2, number - 1)
    assert effect * math.sqrt(number - 1) < stats.t.ppf(1 - 0.05 / 2, number - 2)
    assert "No number of seeds" in Evidence(0.0, effect=0.0, have=5, units="5 seeds").more(0.05)
    assert "More than 10,000" in Evidence(0.0, effect=1e-6, have=5, units="5 seeds").more(0.05)


def test_scope_and_plain_values() -> None:
    (claim,) = settle([greater("S", "s", seeds(1.0), paper="P")], Scope.REDUCED, "epochs = 5 (paper: 100)")
    found = claim.as_dict()
    assert (found["scope"], found["reduced"]) == ("the paper's data, reduced", "epochs = 5 (paper: 100)")
    assert (found["low"], found["p"], found["verdict"]) == (None, None, "undecided")
    assert type(found["verdict"]) is type(found["scope"]) is str
