"""Choosing samples: each method against its definition, in every form of a pool, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import tangentlab
from tangentlab import NTKOperator, TangentError, linalg, ntk, select, sketch, store
from tangentlab.select import _determinant

METHODS: dict[str, Callable[..., select.Selection]] = {
    "variance": lambda pool, count, **k: select.largest_variance(pool, count, ridge=0.3, **k),
    "determinant": lambda pool, count, **k: select.max_determinant(pool, count, ridge=0.3, **k),
    "lcmd": select.lcmd,
    "k-means++": select.kmeans_plus_plus,
    "bait": lambda pool, count, **k: select.bait(pool, count, ridge=0.3, **k),
}
PLAIN = {name: METHODS[name] for name in ("variance", "determinant", "lcmd")}


def features_of(n: int, k: int, seed: int, spread: float = 1.0) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    scales = torch.exp(spread * torch.randn(n, 1, generator=draws, dtype=torch.float64))
    return torch.randn(n, k, generator=draws, dtype=torch.float64) * scales


def posterior_variance(kernel: Tensor, observed: list[int], ridge: float) -> Tensor:
    rows = kernel[observed]
    inner = rows[:, observed] + ridge * torch.eye(len(observed), dtype=torch.float64)
    return kernel.diagonal() - (rows * torch.linalg.solve(inner, rows)).sum(0)


def greedy(kernel: Tensor, count: int, labeled: list[int], ridge: float) -> list[int]:
    """The definition: try every sample, take the one with the largest determinant."""
    chosen: list[int] = []
    for _ in range(count):
        taken = labeled + chosen
        best, value = -1, -float("inf")
        for i in set(range(len(kernel))) - set(taken):
            block = kernel[[*taken, i]][:, [*taken, i]] + ridge * torch.eye(len(taken) + 1, dtype=torch.float64)
            size = float(torch.linalg.slogdet(block)[1])
            if size > value:
                best, value = i, size
        chosen.append(best)
    return chosen


def lcmd_by_definition(kernel: Tensor, count: int, labeled: list[int]) -> list[int]:
    diagonal = kernel.diagonal()
    distances = (diagonal[:, None] + diagonal[None] - 2 * kernel).clamp(min=0)
    chosen: list[int] = []
    for _ in range(count):
        centers = labeled + chosen
        if not centers:
            chosen.append(int(diagonal.argmax()))
            continue
        nearest = distances[:, centers].argmin(1)
        least = distances[:, centers].min(1).values
        sizes = torch.stack([least[nearest == c].sum() for c in range(len(centers))])
        inside = [i for i in range(len(kernel)) if nearest[i] == sizes.argmax() and i not in centers]
        chosen.append(max(inside, key=lambda i: float(least[i])))
    return chosen


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 25), st.integers(1, 8), st.integers(0, 2**20), st.floats(0, 2), st.data())
def test_greedy_methods_are_their_definitions(n: int, k: int, seed: int, spread: float, data: st.DataObject) -> None:
    features = features_of(n, k, seed, spread)
    kernel = features @ features.T
    labeled = data.draw(st.lists(st.integers(0, n - 1), unique=True, max_size=n - 1), label="labeled")
    count = data.draw(st.integers(1, n - len(labeled)), label="count")
    found = select.max_determinant(linalg.LowRank(features), count, labeled=labeled, ridge=0.3)
    assert found.indices.tolist() == greedy(kernel, count, labeled, 0.3)
    rows = select.lcmd(linalg.LowRank(features), min(count, 3), labeled=labeled).indices.tolist()
    assert rows == lcmd_by_definition(kernel, min(count, 3), labeled)
    largest = select.largest_variance(kernel, count, labeled=labeled, ridge=0.3)
    variances = posterior_variance(kernel, labeled, 0.3)
    free = torch.tensor([i for i in range(n) if i not in labeled])
    torch.testing.assert_close(largest.scores, variances[free].sort(descending=True).values[:count])


def test_blocks_choose_what_single_steps_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    features = features_of(3000, 20, 0, 0.1)  # nearly equal variances: blocks end early
    whole = select.max_determinant(linalg.LowRank(features), 200, ridge=0.1)
    in_blocks = _determinant._take_block
    monkeypatch.setattr(_determinant, "_take_block", lambda g, c, block, tick: in_blocks(g, c, 1, tick))
    single = select.max_determinant(linalg.LowRank(features), 200, ridge=0.1)
    assert whole.indices.tolist() == single.indices.tolist()
    torch.testing.assert_close(whole.scores, single.scores)


def test_scores_multiply_to_the_determinant() -> None:
    features = features_of(60, 30, 1)
    found = select.max_determinant(linalg.LowRank(features), 12, ridge=0.2)
    own = features[found.indices]
    size = torch.linalg.slogdet(own @ own.T + 0.2 * torch.eye(12, dtype=torch.float64))[1]
    torch.testing.assert_close(found.scores.log().sum(), size)


def test_bait_lowers_the_trace_as_it_says_and_removal_helps() -> None:
    features = features_of(80, 6, 2)
    moments = features.T @ features

    def left(rows: list[int]) -> float:
        some = features[rows]
        inner = torch.eye(6, dtype=torch.float64) + some.T @ some / 0.5
        return float(torch.trace(torch.linalg.solve(inner, moments)))

    labeled = [4, 9]
    found = select.bait(linalg.LowRank(features), 5, labeled=labeled, ridge=0.5, oversampling=1)
    taken = list(labeled)
    for row, score in zip(found, found.scores.tolist(), strict=True):
        best = min((i for i in range(80) if i not in taken), key=lambda i: left([*taken, i]))
        assert row == best
        assert score == pytest.approx((left(taken) - left([*taken, row])) / float(torch.trace(moments)))
        taken.append(row)
    both_ways = select.bait(linalg.LowRank(features), 5, labeled=labeled, ridge=0.5)
    added = select.bait(linalg.LowRank(features), 10, labeled=labeled, ridge=0.5, oversampling=1).indices.tolist()
    for _ in range(5):
        added.remove(min(added, key=lambda i: left([*labeled, *(j for j in added if j != i)])))
    assert both_ways.indices.tolist() == added


def test_k_means_plus_plus_draws_in_proportion_to_squared_distances() -> None:
    line = linalg.LowRank(torch.tensor([[0.0], [1.0], [2.0], [0.0]], dtype=torch.float64))
    drawn = [select.kmeans_plus_plus(line, 1, labeled=[0], seed=s).indices[0].item() for s in range(2000)]
    counts = np.bincount(drawn, minlength=4) / 2000
    assert counts[[0, 3]].tolist() == [0, 0]  # labeled, and a copy of it
    assert counts[2] == pytest.approx(0.8, abs=0.04)
    first = [select.kmeans_plus_plus(line, 1, seed=s).indices[0].item() for s in range(2000)]
    assert np.bincount(first, minlength=4) / 2000 == pytest.approx([0.25] * 4, abs=0.04)


@pytest.fixture(scope="module")
def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 2)).double()


@pytest.mark.parametrize("name", METHODS)
def test_every_form_of_a_pool_gives_the_same_choice(name: str, network: nn.Module, tmp_path: Path) -> None:
    method = METHODS[name]
    x = torch.randn(70, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    kernel = ntk(network, x, readout="pntk")
    before = kernel.clone()
    expected = method(kernel, 12, labeled=[5, 3]).indices.tolist()
    assert torch.equal(kernel, before)
    values, vectors = torch.linalg.eigh(kernel)
    features = linalg.LowRank(vectors * values.clamp(min=0).sqrt())
    stored = store.compute(network, x, tmp_path / "kernel.zarr", readout="pntk", tile=16)
    forms: list[Any] = [kernel.numpy(), features, stored]
    if name != "bait":
        forms.append(NTKOperator(network, x, readout="pntk"))
    for form in forms:
        assert method(form, 12, labeled=[5, 3]).indices.tolist() == expected
    mask = torch.zeros(70, dtype=torch.bool)
    mask[[3, 5]] = True
    assert method(kernel, 12, labeled=mask).indices.tolist() == expected


@pytest.mark.parametrize("name", METHODS)
def test_several_outputs_are_summed(name: str, network: nn.Module) -> None:
    x = torch.randn(40, 6, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    trace = METHODS[name](ntk(network, x, readout="trace"), 6).indices.tolist()
    assert METHODS[name](ntk(network, x), 6).indices.tolist() == trace
    sketched = sketch(network, x, 16, readout="full")
    side_by_side = linalg.LowRank(sketched.features.reshape(40, -1))
    assert METHODS[name](sketched, 6).indices.tolist() == METHODS[name](side_by_side, 6).indices.tolist()


@pytest.mark.parametrize("name", METHODS)
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**20), st.data())
def test_classes_share_the_choice(name: str, seed: int, data: st.DataObject) -> None:
    classes = data.draw(st.lists(st.sampled_from("abc"), min_size=6, max_size=20), label="classes")
    n = len(classes)
    count = data.draw(st.integers(1, n), label="count")
    chosen = METHODS[name](linalg.LowRank(features_of(n, 4, seed)), count, classes=classes).indices.tolist()
    assert len(set(chosen)) == count
    sizes = {c: classes.count(c) for c in set(classes)}
    taken = {c: sum(classes[i] == c for i in chosen) for c in sizes}
    for one in sizes:
        for two in sizes:  # a class is behind another one by more than one only if it has no more samples
            assert taken[one] >= taken[two] - 1 or taken[one] == sizes[one]


@pytest.mark.parametrize("name", PLAIN)
def test_copies_of_a_sample(name: str) -> None:
    pool = linalg.LowRank(torch.ones(5, 2, dtype=torch.float64))
    assert sorted(METHODS[name](pool, 5)) == [0, 1, 2, 3, 4]


def test_without_noise_the_rank_is_the_limit() -> None:
    pool = linalg.LowRank(features_of(30, 4, 5))
    assert len(select.max_determinant(pool, 4)) == 4
    with pytest.raises(TangentError, match="After 4 samples no sample adds"):
        select.max_determinant(pool, 5)
    with pytest.raises(TangentError, match="After 1 samples no sample adds"):
        select.max_determinant(pool, 2, labeled=[0, 1, 2])


@pytest.mark.parametrize(
    ("pool", "arguments", "words"),
    [
        (torch.ones(3, 2), {"count": 1}, "LowRank"),
        (torch.ones(3, 2, 2, 3), {"count": 1}, "not square"),
        (torch.tensor([[1.0, 5.0], [0.0, 1.0]]), {"count": 1}, "differs from its transpose"),
        (torch.tensor([[float("nan")]]), {"count": 1}, "NaN"),
        (torch.eye(3), {"count": 4}, "from 1 to 3"),
        (torch.eye(3), {"count": 0}, "from 1 to 3"),
        (torch.eye(3), {"count": True}, "from 1 to 3"),
        (torch.eye(3), {"count": 2, "labeled": [0, 1]}, "of which 1 are not labeled"),
        (torch.eye(3), {"count": 1, "labeled": [0, 1, 2]}, "samples that are not labeled"),
        (torch.eye(3), {"count": 1, "labeled": [3]}, "from 0 to 2"),
        (torch.eye(3), {"count": 1, "labeled": [-1]}, "from 0 to 2"),
        (torch.eye(3), {"count": 1, "labeled": [0.5]}, "row numbers"),
        (torch.eye(3), {"count": 1, "labeled": [[0]]}, "row numbers"),
        (torch.eye(3), {"count": 1, "classes": [0, 1]}, "one class per sample"),
        (torch.eye(3), {"count": 1, "classes": [0, None, 1]}, "None or NaN"),
        (torch.eye(3), {"count": 1, "classes": [0, float("nan"), 1]}, "None or NaN"),
        (torch.eye(3), {"count": 1, "classes": [[0], [1, 2], 1]}, "classes is not an array"),
        (torch.eye(3), {"count": 1, "labeled": [[0], [1, 2]]}, "labeled is not an array"),
        ("kernel", {"count": 1}, "not a kernel"),
    ],
)
@pytest.mark.parametrize("name", METHODS)
def test_bad_input_is_refused(name: str, pool: Any, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(TangentError, match=words):
        METHODS[name](pool, **arguments)


@pytest.mark.parametrize("name", [name for name in METHODS if name != "bait"])
def test_a_negative_variance_is_refused(name: str) -> None:
    with pytest.raises(TangentError, match="sample 1 with itself is -2"):
        METHODS[name](torch.diag(torch.tensor([1.0, -2.0, 1.0])), count=1)


@pytest.mark.parametrize("seed", ["a", None, -1, 0.5])
def test_a_seed_is_a_whole_number(seed: Any) -> None:
    with pytest.raises(TangentError, match="seed"):
        select.kmeans_plus_plus(torch.eye(3), 1, seed=seed)


@pytest.mark.parametrize("ridge", [-1.0, float("nan"), "1", True, float("inf")])
@pytest.mark.parametrize("method", [select.largest_variance, select.max_determinant, select.bait])
def test_a_ridge_is_a_variance(method: Callable[..., Any], ridge: Any) -> None:
    with pytest.raises(TangentError, match="is not a nonnegative number"):
        method(torch.eye(3), 1, ridge=ridge)


def test_bait_needs_features_and_noise(network: nn.Module) -> None:
    with pytest.raises(TangentError, match="ridge above 0"):
        select.bait(torch.eye(3), 1, ridge=0)
    with pytest.raises(TangentError, match="ridge above 0"):
        select.bait(torch.zeros(3, 3), 1)
    with pytest.raises(TangentError, match=r"sketch\(model"):
        select.bait(NTKOperator(network, torch.randn(4, 6, dtype=torch.float64), readout="pntk"), 1)
    with pytest.raises(TangentError, match="oversampling"):
        select.bait(torch.eye(3), 1, oversampling=0.5)
    with pytest.raises(TangentError, match="2 rows per sample"):
        select.lcmd(NTKOperator(network, torch.randn(4, 6, dtype=torch.float64)), 1)


def test_a_selection_is_rows_in_order() -> None:
    found = select.largest_variance(torch.diag(torch.tensor([1.0, 3.0, 2.0])), 2)
    assert list(found) == [1, 2]
    assert len(found) == 2
    assert repr(found) == "Selection(2 by largest variance: [1, 2])"
    assert tangentlab.select is select
    assert select.lcmd(torch.eye(3), 1, labeled=found).indices.tolist() == [0]
