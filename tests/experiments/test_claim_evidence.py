"""Evidence: every number of it against its definition, and what is said of designs that cannot decide."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tangentlab.experiments import Verdict
from tangentlab.experiments._evidence import (
    Evidence,
    correlation_above,
    counted,
    grid,
    mean_between,
    mean_of,
    prediction,
    stands_out,
    trend_of,
)
from tangentlab.experiments._verdicts import greater, identity, near, settle, trend


def seeds(*values: float) -> "pd.Series[float]":
    return pd.Series(values, pd.Index(range(len(values)), name="seed"), dtype=float)


def rows(*by_seed: list[float]) -> "pd.Series[float]":
    """Measurements of several seeds (rows) at several widths (columns)."""
    frame = pd.DataFrame(list(by_seed), pd.Index(range(len(by_seed)), name="seed"))
    return frame.rename_axis(columns="width").stack(future_stack=True)  # type: ignore[return-value]


def test_measurements_that_are_not_finite_are_left_out() -> None:
    assert grid(seeds(1.0, math.nan, 3.0, math.inf, -math.inf)).tolist() == [[1.0], [3.0]]
    assert grid(rows([1, 2, 3], [4, math.inf, 6])).tolist() == [[1, 3], [4, 6]]  # a point that a seed lacks
    assert grid(rows([1, 2, 3], [math.nan] * 3, [7, 8, 9])).tolist() == [[1, 2, 3], [7, 8, 9]]  # a seed without any
    assert grid(rows([1, 2, 3]).iloc[::-1]).tolist() == [[1, 2, 3]]  # in the order of the points
    twice = pd.concat([rows([1.0, 2.0]), rows([3.0, 6.0])])
    assert grid(twice).tolist() == [[2.0, 4.0]]  # measured twice: the mean


def test_means_between_two_limits() -> None:
    sample = np.array([1.2, 1.4, 1.9, 1.3])
    found = mean_between(seeds(*sample), 1.0, 2.0)
    above, below = (
        stats.ttest_1samp(sample, edge, alternative=side).pvalue for edge, side in ((1.0, "greater"), (2.0, "less"))
    )
    assert found.holds == pytest.approx(max(above, below))
    assert found.fails == pytest.approx(min(1.0, 2 * min(1 - above, 1 - below)))
    assert found.effect == pytest.approx((sample.mean() - 1) / sample.std(ddof=1))
    assert (found.value, found.units, found.have, found.points) == (pytest.approx(1.45), "4 seeds", 4, 0)
    outside = mean_between(seeds(*(sample + 1)), 1.0, 2.0)
    expected = 2 * stats.ttest_1samp(sample + 1, 2.0, alternative="greater").pvalue
    assert outside.fails == pytest.approx(expected)
    assert outside.effect == pytest.approx(0.45 / sample.std(ddof=1))


def test_means_over_points_of_few_seeds() -> None:
    table = np.array([[1.0, 2.0, 4.0, 3.0], [2.0, 2.0, 5.0, 5.0]])
    found = mean_of(table, 0.5)
    assert found.holds == pytest.approx(stats.ttest_1samp(table.mean(0), 0.5, alternative="greater").pvalue)
    assert (found.units, found.have) == ("4 points of 2 seeds", 4)
    more = mean_of(np.vstack([table, table[:1] + 1]), 0.5)  # three seeds are the units
    assert (more.units, more.have) == ("3 seeds", 3)
    few = mean_of(table[:, :2], 0.5)
    assert (few.value, few.units, few.have, few.testable) == (1.75, "2 seeds", 2, False)


def test_no_spread_is_tested_by_the_signs() -> None:
    for value, holds, effect in ((2.0, 0.125, math.inf), (1.0, 1.0, math.nan), (0.5, 1.0, math.inf)):
        found = mean_of(np.full((3, 1), value), 1.0)
        assert found.holds == holds
        assert found.effect == pytest.approx(effect, nan_ok=True)
        assert math.isnan(found.low)
        assert math.isnan(found.high)
    assert mean_of(np.full((3, 1), 1.0), 1.0).fails == 1.0  # at the threshold: neither
    assert mean_of(np.full((3, 1), 0.5), 1.0).fails == 0.125


def test_trends_of_several_seeds() -> None:
    table = np.array([[1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 4.0], [2.0, 1.0, 3.0, 4.0], [5.0, 5.0, 5.0, 5.0]])
    found = trend_of(table, 1)
    correlations = np.array([*(stats.spearmanr(range(4), row).statistic for row in table[:3]), 0.0])
    bounds = stats.ttest_1samp(correlations, 0).confidence_interval(0.9)
    assert found.value == found.effect == pytest.approx(correlations.mean())
    assert (found.low, found.high) == pytest.approx((bounds.low, min(1.0, bounds.high)))
    assert found.holds == pytest.approx(stats.page_trend_test(table).pvalue)
    assert found.fails == pytest.approx(stats.page_trend_test(-table).pvalue)
    assert found.least == pytest.approx(24.0**-4)
    assert (found.units, found.have, found.points) == ("4 points, 4 seeds", 4, 4)
    falling = trend_of(-table[:3], -1)
    assert falling.value == pytest.approx(-correlations[:3].mean())
    assert falling.effect == -falling.value
    assert falling.low == -1.0  # no correlation is below
    assert math.isnan(trend_of(table[:2], 1).low)  # two seeds have no bounds
    assert math.isnan(trend_of(table[:2], 1).high)


def test_trends_of_eight_points_are_exact() -> None:
    assert trend_of(np.arange(8.0)[None], 1).holds == pytest.approx(1 / math.factorial(8))


def test_trends_of_many_points_draw_permutations() -> None:
    values = np.array([[2.0, 1.0, 4.0, 3.0, 6.0, 5.0, 9.0, 7.0, 8.0]])  # 362,880 permutations
    exact = stats.page_trend_test(np.vstack([values, values])).pvalue  # of two seeds, so smaller
    found = trend_of(values, 1)
    assert exact < found.holds < 0.002
    assert found.fails > 0.998
    assert found.holds == trend_of(values + 1, 1).holds  # the same draws


def test_trends_of_two_points_are_differences() -> None:
    table = np.array([[1.0, 2.0], [1.5, 3.5], [1.0, 1.5]])
    found = trend_of(table, 1)
    test = stats.ttest_1samp([1.0, 2.0, 0.5], 0, alternative="greater")
    assert (found.holds, found.fails) == pytest.approx((test.pvalue, 1 - test.pvalue))
    assert (found.value, found.units, found.points) == (pytest.approx(1.0), "2 points, 3 seeds", 0)
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    assert trend_of(table, -1).fails == pytest.approx(test.pvalue)
    assert not trend_of(table[:2], 1).testable


def test_trends_without_points_or_without_change_say_nothing() -> None:
    for table in (np.empty((0, 0)), np.empty((0, 3)), np.ones((2, 1)), np.ones((2, 3))):
        assert math.isnan(trend_of(table, 1).value)


def test_functions_that_stand_out_in_several_seeds() -> None:
    others = rows([1.0, 2.0, 3.0, 4.0], [2.0, 4.0, 6.0, 8.0])
    found = stands_out(seeds(3.0, 9.0), others)
    assert found.holds == pytest.approx(stats.combine_pvalues([3 / 5, 1 / 5], method="fisher").pvalue)
    assert found.fails == pytest.approx(stats.combine_pvalues([4 / 5, 5 / 5], method="fisher").pvalue)
    quantiles = np.quantile([1, 2, 3, 4], 0.99), np.quantile([2, 4, 6, 8], 0.99)
    assert found.value == pytest.approx((3 / quantiles[0] + 9 / quantiles[1]) / 2)
    assert (found.least, found.have, found.units) == (1 / 5, 2, "4 functions, 2 seeds")
    plain = others.droplevel("width")
    assert stands_out(seeds(3.0, 9.0), plain) == found


def pairs(count: int, functions: int = 12) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    one = rng.normal(size=count * functions)
    table = {"seed": np.repeat(range(count), functions), "one": one, "two": one + rng.normal(size=one.size)}
    return pd.DataFrame(table)


@pytest.mark.parametrize("count", [1, 2])
def test_correlations_of_few_seeds_by_fisher(count: int) -> None:
    table = pairs(count)
    found = correlation_above(table, "one", "two", 0.3)
    by_seed = [stats.spearmanr(part["one"], part["two"]).statistic for _, part in table.groupby("seed")]
    center, error = np.arctanh(by_seed).mean(), math.sqrt(1.06 / 9 / count)
    z = (center - math.atanh(0.3)) / error
    reach = stats.norm.ppf(0.95) * error
    assert found.value == pytest.approx(math.tanh(center))
    assert (found.low, found.high) == pytest.approx((math.tanh(center - reach), math.tanh(center + reach)))
    assert (found.holds, found.fails) == pytest.approx((stats.norm.sf(z), stats.norm.cdf(z)))
    assert found.effect == pytest.approx(abs(z) / math.sqrt(12))
    assert (found.units, found.have, found.least) == (f"12 functions of {counted(count, 'seed')}", 12, 0.0)
    assert found.more(0.05) == "More seeds would decide."


def test_correlations_of_three_seeds_are_the_units() -> None:
    table = pairs(3)
    by_seed = [stats.spearmanr(part["one"], part["two"]).statistic for _, part in table.groupby("seed")]
    assert correlation_above(table, "one", "two", 0.3) == mean_between(seeds(*by_seed), 0.3)


def test_predictions() -> None:
    sample = [4.0, 5.0, 6.5]
    found = prediction(seeds(*sample), 8.0, runs=2)
    spread = np.std(sample, ddof=1) * math.sqrt(1 / 3 + 1 / 2)
    distance = 8.0 - np.mean(sample)
    assert found.fails == pytest.approx(2 * stats.t.sf(distance / spread, 2))
    reach = stats.t.ppf(0.975, 2) * spread
    assert (found.low, found.high) == pytest.approx((np.mean(sample) - reach, np.mean(sample) + reach))
    assert (found.holds, found.least, found.units, found.have) == (1.0, 0.0, "3 seeds", 3)
    assert prediction(seeds(*sample), 8.0).high > found.high  # one run scatters more than a mean of two
    assert [prediction(seeds(5.0, 5.0), paper).fails for paper in (5.0, 5.1)] == [1.0, 0.0]  # no spread
    one = prediction(seeds(5.0), 8.0)
    assert (one.value, one.units, one.have, one.testable) == (5.0, "1 seed", 1, False)
    for none in (seeds(), seeds(math.nan)):
        assert math.isnan(prediction(none, 1.0).value)


def test_two_seeds_do_not_settle_a_number_outside_the_interval() -> None:
    (claim,) = settle([near("", "", seeds(5.0, 5.0 + 1e-9), 5.5, 1.0)])
    assert (claim.verdict, claim.explanation) == (Verdict.UNDECIDED, "3 seeds would decide it.")


def test_how_many_units_would_decide() -> None:
    def said(effect: float, have: int, units: str, points: int = 0) -> str:
        return Evidence(0.0, effect=effect, have=have, units=units, points=points).more(0.05)

    stays = "if value and spread stayed as they are."
    assert said(1.0, 2, "2 seeds") == "The spread over seeds is not known; it takes at least 3 seeds."
    smallest = next(n for n in range(4, 99) if 0.5 * math.sqrt(n) >= stats.t.ppf(0.95, n - 1))
    assert said(0.5, 3, "3 seeds") == f"About {smallest} seeds in all would decide, {stays}"
    assert said(0.5, 3, "3 points of 1 seed") == f"About {smallest} points in all would decide, {stays}"
    assert said(math.inf, 3, "3 seeds") == f"About 5 seeds in all would decide, {stays}"  # 1 in 2^5
    assert said(math.nan, 3, "3 seeds") == "No number of seeds would decide what is seen here."
    # A trend: sqrt(seeds (points - 1)) rho >= 1.645; one seed more than there is, at least.
    assert said(0.5, 1, "3 points, 1 seed", 3) == f"About 6 seeds in all would decide, {stays}"
    assert said(0.9, 4, "3 points, 4 seeds", 3) == f"About 5 seeds in all would decide, {stays}"
    # Two seeds of three points have p >= 1/36, which a level of 0.05 / 3 excludes even for perfect ranks.
    perfect = Evidence(1.0, effect=1.0, have=1, units="3 points, 1 seed", points=3)
    assert perfect.more(0.05) == f"About 2 seeds in all would decide, {stays}"
    assert perfect.more(0.05 / 3) == f"About 3 seeds in all would decide, {stays}"
    assert said(0.001, 1, "3 points, 1 seed", 3) == f"More than 10,000 seeds would be needed {stays}"


def test_identities_do_not_count_among_the_tests() -> None:
    claim = greater("", "", seeds(1.0, 1.6, 0.7), paper="")
    alone, beside = settle([claim]), settle([claim, *[identity("", "", 0.0, 1e-8)] * 9])
    assert alone[0].p == beside[0].p


def test_plain_values_have_both_bounds() -> None:
    (claim,) = settle([greater("", "", seeds(1.0), paper="")])
    assert claim.as_dict()["low"] is claim.as_dict()["high"] is None
    (claim,) = settle([greater("", "", seeds(1.0, 1.6, 0.7), paper="")])
    assert claim.as_dict()["high"] == claim.high


def test_what_is_said() -> None:
    table = rows([3.0, 2.0, 1.0]).rename("y").reset_index()
    (claim,) = settle([trend("", table, "width", "y", -1, paper="")])
    stays = "would decide, if value and spread stayed as they are."
    assert claim.explanation == f"No outcome of 3 points, 1 seed could decide it. About 2 seeds in all {stays}"
    # Beside two others it is corrected for three claims, once there are seeds for it.
    three = settle([trend("", table, "width", "y", -1, paper="")] * 3)
    assert three[0].explanation.endswith(f"About 3 seeds in all {stays}")
    (claim,) = settle([near("", "", seeds(4.99, 5.0, 5.01), 5.5, 1.0)])
    assert claim.explanation.endswith("outside the prediction interval, by less than matters (0.5 of 1).")
    (claim,) = settle([greater("", "", seeds(1.0, 1.0 + 1e-9, 1.0 - 1e-9), paper="")])
    assert claim.explanation == "Over 3 seeds, p < 0.0001 after correction."
