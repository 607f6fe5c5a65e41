"""What measurements say about one claim: a value with its bounds, and a p-value against each of the two decisions.

Every function takes measurements with an index level ``seed`` (and others for points: tasks, widths, networks) and
returns :class:`Evidence`. The tests are SciPy's; docs/verdicts.md states them and the reasons.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

LEVEL = 0.05
"""One-sided level of every test, before the correction for several claims."""
LEAST = 3
"""Seeds, or points, from which they are the units of a test of a mean."""
INFORMATIVE = 6
"""Seeds from which a prediction interval is informative, however wide it is."""
_PERMUTATIONS = 50_000
"""The permutation test is exact up to so many permutations, those of eight points."""
_MOST = 10_000
"""Units beyond which it is not said how many would decide."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Evidence:
    """What the measurements of one claim say.

    Attributes:
        value: The statistic; NaN if there is nothing to compute it from.
        low: Its lower 95 % bound; NaN if its spread is not known.
        high: Its upper 95 % bound.
        holds: p-value of the hypothesis that the claim is false; it must be small for "holds".
        fails: p-value of the hypothesis that the claim is true; it must be small for "does not hold".
        least: The smallest p-value that any outcome of this design can have; above the level nothing can be decided.
        units: What the test is over, in words: "5 seeds".
        effect: Distance from the threshold in standard deviations of a unit, infinite if all units are the same; or the
            mean rank correlation.
        have: Number of units.
        points: Number of points of a trend; 0 for a test of a mean.
        runs: Runs that the paper's number is a mean of; infinite for a threshold.
        tests: Which test of the claim this is; the p-values are multiplied by it (``_looks``).
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    holds: float = 1.0
    fails: float = 1.0
    least: float = 1.0
    units: str = ""
    effect: float = math.nan
    have: int = 0
    points: int = 0
    runs: float = math.inf
    tests: int = 1

    @property
    def testable(self) -> bool:
        """Whether some outcome could decide the claim."""
        return self.least <= LEVEL

    def more(self, level: float) -> str:
        """Return how many units would decide at this level if value and spread stayed as they are, in the next test."""
        level /= self.tests + self.testable  # what no outcome could decide was no test
        what = "points" if "points of" in self.units else "seeds"
        if "function" in self.units:
            return "More seeds would decide."
        if self.have < LEAST and not self.points:
            return f"The spread over seeds is not known; it takes at least {LEAST} seeds."
        if math.isnan(self.effect) or self.effect == 0:
            return "No number of seeds would decide what is seen here."
        needed = _seeds_for_trend(self, level) if self.points else _units_for_mean(self, level)
        what = "seeds" if self.points else what
        stays = "if value and spread stayed as they are"
        if needed > _MOST:
            return f"More than {_MOST:,} {what} would be needed {stays}."
        return f"About {needed:,} {what} in all would decide, {stays}."


def _units_for_mean(evidence: Evidence, level: float) -> int:
    """Return the smallest n whose t test rejects at this distance: d >= t(1 - level, n - 1) sqrt(1/n + 1/runs)."""
    if math.isinf(evidence.effect):
        return max(evidence.have + 1, math.ceil(-math.log2(level)))
    level /= 1 if math.isinf(evidence.runs) else 2  # a number of the paper may be off to either side
    low, high = evidence.have, 2 * _MOST
    while low + 1 < high:
        middle = (low + high) // 2
        enough = evidence.effect >= stats.t.ppf(1 - level, middle - 1) * math.sqrt(1 / middle + 1 / evidence.runs)
        low, high = (low, middle) if enough else (middle, high)
    return high


def _seeds_for_trend(evidence: Evidence, level: float) -> int:
    """Return the seeds for which the mean rank correlation rejects: sqrt(seeds (points - 1)) rho >= z, at least as many
    as bring the smallest p-value, (1 / points!)^seeds, to the level."""
    z = float(stats.norm.ppf(1 - level))
    attainable = math.ceil(math.log(level) / -math.lgamma(evidence.points + 1))
    return max(evidence.have + 1, attainable, math.ceil((z / evidence.effect) ** 2 / max(1, evidence.points - 1)))


def counted(number: int, what: str) -> str:
    """Return a number with its noun: "1 seed", "5 seeds"."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def grid(values: "pd.Series[float]") -> Array:
    """Return measurements as (seeds, points): the points that every seed has, in ascending order."""
    series = values.astype(float).replace([np.inf, -np.inf], np.nan)
    points = [str(name) for name in series.index.names if name != "seed"]
    if not points:
        return series.dropna().to_numpy()[:, None]
    wide = series.groupby(["seed", *points]).mean().unstack(points)
    assert isinstance(wide, pd.DataFrame)
    return wide.dropna(axis=0, how="all").dropna(axis=1).sort_index(axis=1).to_numpy()


def mean_between(values: "pd.Series[float]", low: float = -math.inf, high: float = math.inf) -> Evidence:
    """Test whether the mean lies above ``low`` and below ``high`` by Student's t, over seeds or over points."""
    return mean_of(grid(values), low, high)


def mean_of(table: Array, low: float = -math.inf, high: float = math.inf) -> Evidence:
    """Do what :func:`mean_between` does for an array (seeds, points)."""
    if table.size == 0:
        return Evidence(math.nan)
    seeds, points = table.shape
    by_point = seeds < LEAST <= points
    sample = table.mean(0) if by_point else table.mean(1)
    units = f"{counted(points, 'point')} of {counted(seeds, 'seed')}" if by_point else counted(seeds, "seed")
    value = float(table.mean())
    if len(sample) < LEAST:
        return Evidence(value, units=units, have=len(sample))
    spread = float(sample.std(ddof=1)) if np.ptp(sample) else 0.0
    reach = float(stats.t.ppf(1 - LEVEL, len(sample) - 1)) * spread / math.sqrt(len(sample)) if spread else math.nan
    above, below = _p_above(sample, low), _p_above(-sample, -high)
    under, over = _p_above(-sample, -low), _p_above(sample, high)
    edges = [edge for edge in (low, high) if math.isfinite(edge)]
    distance = min(abs(value - edge) for edge in edges)
    return Evidence(
        value,
        value - reach,
        value + reach,
        max(above, below),
        min(1.0, len(edges) * min(under, over)),
        0.0,
        units,
        distance / spread if spread else math.inf if distance else math.nan,
        len(sample),
    )


def _p_above(sample: Array, threshold: float) -> float:
    """Return the p-value of "the mean is at most the threshold"."""
    if math.isinf(threshold):
        return 0.0 if threshold < 0 else 1.0
    if np.ptp(sample) == 0:  # no spread, as of a saturated accuracy, is no estimate of one: a sign test
        return 0.5 ** len(sample) if sample[0] > threshold else 1.0
    return float(stats.ttest_1samp(sample, threshold, alternative="greater").pvalue)


def trend(values: "pd.Series[float]", sign: int) -> Evidence:
    """Test whether the values rise (``sign`` 1) or fall (-1) with the index level that is not the seed.

    The value is the mean over seeds of Spearman's rank correlation. Two points are a difference: see
    :func:`mean_between`.
    """
    return trend_of(grid(values), sign)


def trend_of(table: Array, sign: int) -> Evidence:
    """Do what :func:`trend` does for an array (seeds, points)."""
    seeds, points = table.shape
    if (table == table[:, :1]).all():  # one point, or none
        return Evidence(math.nan)
    correlations = np.array([_spearman(row) for row in table])
    value = float(correlations.mean())
    if points == 2:
        difference = mean_of(sign * np.diff(table), 0.0)
        return replace(
            difference, value=value, low=math.nan, high=math.nan, units=f"2 points, {counted(seeds, 'seed')}"
        )
    reach = math.nan
    if seeds >= LEAST and np.ptp(correlations):
        reach = float(stats.t.ppf(1 - LEVEL, seeds - 1) * correlations.std(ddof=1) / math.sqrt(seeds))
    return Evidence(
        value,
        math.nan if math.isnan(reach) else max(-1.0, value - reach),
        math.nan if math.isnan(reach) else min(1.0, value + reach),
        _p_rises(sign * table),
        _p_rises(-sign * table),
        1 / math.factorial(points) ** seeds,
        f"{counted(points, 'point')}, {counted(seeds, 'seed')}",
        abs(value),
        seeds,
        points,
    )


def _spearman(row: Array) -> float:
    """Return the rank correlation with the positions; 0 for a constant."""
    return 0.0 if np.ptp(row) == 0 else float(np.corrcoef(np.arange(len(row)), stats.rankdata(row))[0, 1])


def _p_rises(table: Array) -> float:
    """Return the p-value of "no seed's values depend on the point" against a rise."""
    if len(table) > 1:
        return float(stats.page_trend_test(table).pvalue)
    ranks = stats.rankdata(table[0])
    null = _permuted(tuple(np.sort(ranks).tolist()))
    # Rounding must not separate equal sums.
    return float((null >= ranks @ np.arange(len(ranks)) - 1e-9).mean())


@lru_cache(maxsize=64)
def _permuted(ranks: tuple[float, ...]) -> Array:
    """Return the sum of position times rank for all permutations of the ranks, or for many drawn at random."""
    positions = np.arange(len(ranks))
    return stats.permutation_test(
        (np.array(ranks),),
        lambda sample, axis: (sample * positions).sum(axis),
        permutation_type="pairings",
        n_resamples=_PERMUTATIONS,
        vectorized=True,
        rng=np.random.default_rng(0),
    ).null_distribution


def stands_out(own: "pd.Series[float]", others: "pd.Series[float]") -> Evidence:
    """Test whether one function's value is extreme among those of the others, by its exact rank in each seed.

    Args:
        own: The function's value, by seed.
        others: Those of the others, with an index level ``seed``.

    The value is the ratio of its own to the 99th percentile of the others', mean over seeds.
    """
    upper, lower, ratios = [], [], []
    for seed, value in own.items():
        rest = others.xs(seed, level="seed") if others.index.nlevels > 1 else others.loc[[seed]]
        upper.append((1 + (rest >= value).sum()) / (1 + len(rest)))
        lower.append((1 + (rest <= value).sum()) / (1 + len(rest)))
        ratios.append(value / np.quantile(rest, 0.99))
    return Evidence(
        float(np.mean(ratios)),
        holds=float(stats.combine_pvalues(upper, method="fisher").pvalue),
        fails=float(stats.combine_pvalues(lower, method="fisher").pvalue),
        least=1 / (1 + len(rest)),
        units=f"{counted(len(rest), 'function')}, {counted(len(own), 'seed')}",
        have=len(own),
    )


def correlation_above(pairs: pd.DataFrame, one: str, two: str, threshold: float) -> Evidence:
    """Test whether the rank correlation of two columns is above a threshold: over seeds, or by Fisher's transformation.

    Args:
        pairs: The columns ``seed``, ``one`` and ``two``; many rows per seed.
        one: A column.
        two: The other.
        threshold: In (-1, 1).
    """
    by_seed = {seed: float(stats.spearmanr(part[one], part[two]).statistic) for seed, part in pairs.groupby("seed")}
    series = pd.Series(by_seed, dtype=float).rename_axis("seed")
    if len(series) >= LEAST:
        return mean_between(series, threshold)
    functions = len(pairs) // len(series)
    # The standard error of Fieller, Hartley and Pearson for ranks.
    error = math.sqrt(1.06 / (functions - 3) / len(series))
    center, reach = float(np.arctanh(series).mean()), float(stats.norm.ppf(1 - LEVEL)) * error
    z = (center - math.atanh(threshold)) / error
    return Evidence(
        math.tanh(center),
        math.tanh(center - reach),
        math.tanh(center + reach),
        float(stats.norm.sf(z)),
        float(stats.norm.cdf(z)),
        0.0,
        f"{functions} functions of {counted(len(series), 'seed')}",
        abs(z) / math.sqrt(functions),
        functions,
    )


def prediction(values: "pd.Series[float]", paper: float, runs: int = 1) -> Evidence:
    """Compare a paper's number with the 95 % prediction interval for a mean of ``runs`` runs.

    ``fails`` is the p-value of "the number is of runs like these"; ``low`` and ``high`` are the interval's ends.
    """
    sample = grid(values)[:, 0] if len(values.dropna()) else np.array([])
    if len(sample) == 0:
        return Evidence(math.nan)
    value, units = float(sample.mean()), counted(len(sample), "seed")
    if len(sample) < 2:
        return Evidence(value, units=units, have=1)
    deviation = float(sample.std(ddof=1))
    spread = deviation * math.sqrt(1 / len(sample) + 1 / runs)
    reach = float(stats.t.ppf(1 - LEVEL / 2, len(sample) - 1)) * spread
    distance = abs(value - paper)
    effect = distance / deviation if deviation else math.nan
    p = float(2 * stats.t.sf(distance / spread, len(sample) - 1)) if spread else float(distance == 0)
    return Evidence(value, value - reach, value + reach, 1.0, p, 0.0, units, effect, len(sample), runs=runs)
