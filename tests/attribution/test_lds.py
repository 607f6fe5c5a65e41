"""The linear datamodeling score."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from tangentlab import TangentError
from tangentlab.attribution import Retrained, lds
from tangentlab.attribution._lds import _correlation, _Ranks


def outcome(count: int = 20, tests: int = 5, samples: int = 30, noise: float = 0.0) -> tuple[torch.Tensor, Retrained]:
    random = torch.Generator().manual_seed(0)
    masks = torch.rand(count, samples, generator=random) < 0.5
    scores = torch.randn(tests, samples, generator=random, dtype=torch.float64)
    values = masks.double() @ scores.T
    values += noise * torch.randn(values.shape, generator=random, dtype=torch.float64)
    return scores, Retrained(masks, values)


def test_scores_that_predict_exactly_have_score_one() -> None:
    scores, retrained = outcome()
    found = lds(scores, retrained, resamples=20)
    assert found.mean == pytest.approx(1)
    assert found.interval == pytest.approx((1, 1))
    assert lds(-scores, retrained, resamples=2).mean == pytest.approx(-1)


def test_it_is_the_mean_of_spearmans_correlations() -> None:
    scores, retrained = outcome(noise=3.0)
    found = lds(scores, retrained, resamples=200)
    sums = retrained.subsets.double() @ scores.T
    expected = [spearmanr(sums[:, m], retrained.values[:, m]).statistic for m in range(5)]
    np.testing.assert_allclose(found.per_sample, expected, atol=1e-12)
    assert found.interval[0] < found.mean < found.interval[1]
    assert torch.equal(found.draws, lds(scores, retrained, resamples=200).draws)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 4), min_size=6, max_size=12), st.randoms(use_true_random=False))
def test_ranks_with_ties_and_repeated_rows_are_those_of_scipy(values: list[int], random: object) -> None:
    count = len(values)
    generator = np.random.default_rng(random.randint(0, 1000))  # type: ignore[attr-defined]
    other = generator.integers(0, 4, count)
    repeats = generator.integers(0, 3, count)
    one, two = (np.repeat(part, repeats) for part in (np.array(values), other))
    columns = [torch.tensor(np.asarray(part), dtype=torch.float64)[:, None] for part in (values, other)]
    found = float(_correlation(_Ranks(columns[0]), _Ranks(columns[1]), torch.tensor(repeats, dtype=torch.float64))[0])
    if len(set(one)) < 2 or len(set(two)) < 2:
        assert found == 0 or not repeats.any()  # without any row there is nothing to rank
    else:
        assert found == pytest.approx(spearmanr(one, two).statistic, abs=1e-10)


def test_refusals() -> None:
    scores, retrained = outcome()
    with pytest.raises(TangentError, match=r"test samples by training samples"):
        lds(scores.T, retrained)
    with pytest.raises(TangentError, match="NaN"):
        lds(scores * float("nan"), retrained)
    with pytest.raises(TangentError, match="missing"):
        lds(scores, Retrained(retrained.subsets, retrained.values, ((3, 0),)))
    with pytest.raises(TangentError, match="no rank correlation"):
        lds(scores, Retrained(retrained.subsets[:2], retrained.values[:2]))
