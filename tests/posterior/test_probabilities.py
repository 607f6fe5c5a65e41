"""Class probabilities from Gaussian outputs, calibration, temperature scaling, files, Hugging Face models."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tangentlab import TangentError, plot, posterior
from tests.posterior.problems import labels, network, samples


def gaussian(outputs: int, size: float, count: int = 30, seed: int = 0) -> posterior.Prediction:
    generator = torch.Generator().manual_seed(seed)
    mean = 2 * torch.randn(count, outputs, generator=generator, dtype=torch.float64)
    root = size * torch.randn(count, outputs, outputs, generator=generator, dtype=torch.float64) / outputs**0.5
    return posterior.Prediction(mean, root @ root.mT)


def expected(belief: posterior.Prediction) -> Tensor:
    """E[softmax(f)] of one output, two or three classes by the trapezoidal rule, which converges exponentially here."""
    outputs = belief.mean.shape[1]
    size = 1 if outputs == 1 else outputs - 1
    against = torch.eye(outputs)[:size].double()
    against[:, size:] = -1  # the last output is the reference
    mean, covariance = belief.mean @ against.T, against @ belief.covariance @ against.T
    grid = torch.arange(-8, 8.01, 0.2, dtype=torch.float64)
    points = torch.cartesian_prod(*[grid] * size).reshape(-1, size)
    weights = torch.softmax(-points.square().sum(1) / 2, 0)
    values, vectors = torch.linalg.eigh(covariance)
    drawn = mean + (points @ (vectors * values.clamp(min=0).sqrt()[:, None, :]).mT).transpose(0, 1)
    with_reference = torch.cat([drawn, torch.zeros_like(drawn[..., :1])], 2)
    found = torch.einsum("smc,s->mc", torch.softmax(with_reference, 2), weights)
    return found.flip(1) if outputs == 1 else found


@pytest.mark.parametrize("outputs", [1, 2, 3])
@pytest.mark.parametrize(("size", "sampling"), [(0.1, 2e-4), (0.3, 5e-4), (1.0, 1e-3), (5.0, 5e-3)])
def test_sampling_converges_to_the_integral(outputs: int, size: float, sampling: float) -> None:
    belief = gaussian(outputs, size)
    truth = expected(belief)
    torch.testing.assert_close(truth.sum(1), torch.ones(30).double())
    assert float((belief.probabilities("sampling") - truth).abs().max()) < sampling
    many = (belief.probabilities("sampling", 2**14) - truth).abs()
    assert float(many.max()) < sampling / 4


@pytest.mark.parametrize(("std", "largest"), [(0.1, 1e-4), (0.3, 1e-3), (1.0, 0.005), (5.0, 0.018), (10.0, 0.018)])
@pytest.mark.parametrize("outputs", [1, 2])
def test_probit_of_two_classes_is_within_its_stated_error(outputs: int, std: float, largest: float) -> None:
    mean = torch.linspace(-4, 4, 81, dtype=torch.float64)[:, None] * max(1.0, std)
    one = posterior.Prediction(mean, torch.full((81, 1, 1), std**2).double())
    pair = posterior.Prediction(
        torch.cat([-mean / 2, mean / 2], 1), std**2 / 2 * torch.eye(2).double().expand(81, 2, 2)
    )
    gap = ((one if outputs == 1 else pair).probabilities() - expected(one)).abs()
    assert float(gap.max()) <= largest


@pytest.mark.parametrize(("size", "largest", "average"), [(0.1, 1e-3, 3e-4), (0.3, 6e-3, 2e-3), (1.0, 0.03, 8e-3)])
def test_probit_of_three_classes_is_within_its_stated_error(size: float, largest: float, average: float) -> None:
    belief = gaussian(3, size)
    gap = (belief.probabilities() - expected(belief)).abs()
    assert float(gap.max()) <= largest
    assert float(gap.mean()) <= average


@pytest.mark.parametrize(("outputs", "size"), [(1, 0.3), (1, 2.0), (2, 0.3), (2, 2.0), (3, 0.3), (10, 0.3)])
def test_probit_agrees_with_sampling_within_its_error(outputs: int, size: float) -> None:
    """Independent draws: where their error is larger than that of the approximation, the two cannot be told apart."""
    belief = gaussian(outputs, size)
    count = 1000
    draws = belief.sample(count, seed=1)
    each = torch.sigmoid(draws[..., 0]) if outputs == 1 else torch.softmax(draws, 2)
    error = each.std(0) / count**0.5
    found = belief.probabilities("probit")
    gap = ((found[:, 1] if outputs == 1 else found) - each.mean(0)).abs()
    assert bool((gap <= 4 * error + 0.01).all())
    assert float(gap.mean()) <= float(error.mean()) + 0.002


@pytest.mark.parametrize("size", [0.3, 1.0, 5.0])
def test_quasi_random_draws_agree_with_independent_ones(size: float) -> None:
    belief = gaussian(10, size, count=5)
    draws = torch.softmax(belief.sample(20_000, seed=1), 2)
    error = draws.std(0) / 20_000**0.5
    gap = (belief.probabilities("sampling", 4096) - draws.mean(0)).abs()
    assert bool((gap <= 5 * error + 0.003).all())


@settings(max_examples=40, deadline=None)
@given(outputs=st.integers(1, 6), size=st.floats(0, 20), seed=st.integers(0, 1000))
def test_probabilities_are_probabilities(outputs: int, size: float, seed: int) -> None:
    belief = gaussian(outputs, size, count=5, seed=seed)
    for link in ("probit", "diagonal", "mean", "sampling"):
        found = belief.probabilities(link, samples=20)
        assert found.shape == (5, max(2, outputs))
        assert bool((found >= 0).all())
        torch.testing.assert_close(found.sum(1), torch.ones(5).double())


def test_without_variance_probit_is_softmax() -> None:
    mean = gaussian(4, 1.0).mean
    certain = posterior.Prediction(mean, torch.zeros(30, 4, 4).double())
    for link in ("probit", "diagonal", "sampling"):
        torch.testing.assert_close(certain.probabilities(link, samples=3), torch.softmax(mean, 1))


def test_probit_ignores_what_softmax_ignores() -> None:
    belief = gaussian(4, 0.5)
    common = posterior.Prediction(belief.mean + 3, belief.covariance + 100)
    torch.testing.assert_close(common.probabilities(), belief.probabilities(), rtol=1e-8, atol=1e-9)


def test_more_variance_is_less_confidence() -> None:
    mean = gaussian(5, 1.0).mean
    peaks = [
        posterior.Prediction(mean, size * torch.eye(5).double().expand(30, 5, 5)).probabilities().max(1).values
        for size in (0.0, 1.0, 10.0, 1000.0)
    ]
    assert all(bool((small >= large - 1e-12).all()) for small, large in pairwise(peaks))


def test_unknown_link_and_no_draws() -> None:
    with pytest.raises(TangentError, match="no link 'logit'"):
        gaussian(2, 1.0).probabilities("logit")
    for count in (0, -5, 2.5, True):
        with pytest.raises(TangentError, match="positive whole number"):
            gaussian(2, 1.0).probabilities("sampling", count)  # type: ignore[arg-type]
        with pytest.raises(TangentError, match="positive whole number"):
            gaussian(2, 1.0).sample(count)  # type: ignore[arg-type]


def test_floor_is_the_error_of_probabilities_that_are_right() -> None:
    """Against sets of labels drawn from all probabilities and measured by ``calibration`` itself."""
    generator = torch.Generator().manual_seed(0)
    p = torch.softmax(2 * torch.randn(500, 4, generator=generator, dtype=torch.float64), 1)
    errors = torch.tensor([
        posterior.calibration(p, torch.multinomial(p, 1, generator=generator)[:, 0]).ece for _ in range(200)
    ])  # fmt: skip
    floor = posterior.calibration_floor(p, draws=400)
    assert floor.mean == pytest.approx(float(errors.mean()), abs=4 * float(errors.std()) / 200**0.5)
    assert floor.low < floor.mean < floor.high
    assert 0.9 < float(((errors >= floor.low) & (errors <= floor.high)).double().mean()) <= 1
    assert posterior.calibration_floor(p.repeat(4, 1)).mean == pytest.approx(floor.mean / 2, rel=0.1)
    assert posterior.calibration_floor([[1.0, 0.0]] * 3).high == 0
    assert "ECE of perfect calibration" in str(floor)


@pytest.mark.parametrize(
    ("probabilities", "options", "message"),
    [
        ([[math.nan, 1.0]], {}, "add up to one"),
        ([[2.0, 1.0]], {}, "add up to one"),
        ([0.5, 0.5], {}, "shape"),
        ("a", {}, "probabilities are a str"),
        ([[0.5, 0.5]], {"bins": 0}, "bins=0"),
        ([[0.5, 0.5]], {"draws": 0}, "draws=0"),
        ([[0.5, 0.5]], {"seed": 0.5}, "seed=0.5"),
    ],
)
def test_floor_refuses(probabilities: object, options: dict[str, object], message: str) -> None:
    with pytest.raises(TangentError, match=message):
        posterior.calibration_floor(probabilities, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("measure", [posterior.calibration, posterior.temperature])
@pytest.mark.parametrize(
    ("values", "labels", "message"),
    [
        ("a", [0], "are a str"),
        ([[0.5, 0.5]], ["a"], "labels are a list"),
        ([[0.5, 0.5]], [0.7], "labels are float32"),
        ([[0.5, 0.5]], [], "labels are float32|no labels"),
        ([[0.5, 0.5]], [0, 1], "do not fit"),
        ([[0.5, 0.5]], [2], "labels go from 2 to 2"),
        ([[1.0]], [0], "two classes or more"),
    ],
)
def test_labels_that_do_not_fit(measure: object, values: object, labels: object, message: str) -> None:
    with pytest.raises(TangentError, match=message):
        measure(values, labels)  # type: ignore[operator]


def test_calibration_by_hand() -> None:
    p = np.array([[0.9, 0.1], [0.8, 0.2], [0.35, 0.65], [0.4, 0.6]])
    found = posterior.calibration(p, [0, 1, 1, 0], bins=2)
    assert found.accuracy == 0.5
    assert found.nll == pytest.approx(-np.log([0.9, 0.2, 0.65, 0.4]).mean())
    assert found.ece == pytest.approx(abs(np.mean([0.9, 0.8, 0.65, 0.6]) - 0.5))
    assert found.brier == pytest.approx(np.mean([2 * 0.1**2, 2 * 0.8**2, 2 * 0.35**2, 2 * 0.6**2]))
    assert found.bins["samples"].tolist() == [0, 4]
    assert "ECE 23.75%" in str(found)
    axes = plot.reliability({"network": found, "posterior": posterior.calibration(p, [0, 0, 1, 1])})
    assert len(axes.get_legend().get_texts()) == 3


@pytest.mark.parametrize(
    ("p", "y", "message"),
    [
        ([[1.0, 2.0]], [0], "do not add up to one"),
        ([[0.5, 0.5]], [2], "labels go from 2 to 2"),
        ([[0.5, 0.5]], [0, 1], "do not fit labels"),
    ],
)
def test_calibration_refuses(p: object, y: object, message: str) -> None:
    with pytest.raises(TangentError, match=message):
        posterior.calibration(p, y)


def test_temperature_is_found() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(20_000, 5, generator=generator).double() * 2
    y = torch.multinomial(torch.softmax(logits, 1), 1, generator=generator)[:, 0]
    assert posterior.temperature(3 * logits, y) == pytest.approx(3, rel=0.05)
    exact = posterior.temperature(logits[:500], y[:500])
    for scale in (1e-300, 1e-3, 100.0, 1e300):
        assert posterior.temperature(scale * logits[:500], y[:500]) == pytest.approx(scale * exact, rel=1e-6)


@pytest.mark.parametrize(
    ("logits", "y", "message"),
    [
        (torch.zeros(3, 2), torch.tensor([0, 1]), "do not fit labels"),
        (torch.zeros(2, 2), torch.tensor([0, 2]), "labels go from 0 to 2"),
        (torch.full((2, 2), math.nan), torch.tensor([0, 1]), "NaN or infinite"),
        (torch.eye(2), torch.tensor([0, 1]), "every sample, so that it grows as T falls"),
        (torch.eye(2), torch.tensor([1, 0]), "grows with T without end"),
        (torch.zeros(2, 2), torch.tensor([0, 1]), "has no maximum"),
        (torch.eye(2) + 1j, torch.tensor([0, 1]), "are complex"),
    ],
)
def test_temperature_refuses(logits: Tensor, y: Tensor, message: str) -> None:
    with pytest.raises(TangentError, match=message):
        posterior.temperature(logits, y)


X, NEW = samples(30), samples(7, seed=2)


@pytest.mark.parametrize(
    "options",
    [
        {"prior_precision": "evidence"},
        {"prior_precision": 1.0, "readout": "pntk"},
        {"readout": "per_class", "mean": "posterior", "prior_precision": 1.0},
        {"method": "sketch", "k": 20, "prior_precision": "evidence"},
        {"parameters": "2", "subset": 12, "prior_precision": 1.0},
    ],
)
def test_save_and_load(options: dict[str, object], tmp_path: Path) -> None:
    belief = posterior.fit(network(), X, labels(X), **options)  # type: ignore[arg-type]
    belief.save(tmp_path / "belief.pt")
    again = posterior.load(tmp_path / "belief.pt", network())
    assert repr(again) == repr(belief)
    torch.testing.assert_close(again.predict_proba(NEW), belief.predict_proba(NEW))
    torch.testing.assert_close(again.covariance(NEW), belief.covariance(NEW))


def test_load_refuses(tmp_path: Path) -> None:
    belief = posterior.fit(network(), X, labels(X), prior_precision=1.0)
    belief.save(tmp_path / "belief.pt")
    with pytest.raises(TangentError, match="other weights"):
        posterior.load(tmp_path / "belief.pt", network(seed=1))
    (tmp_path / "cut.pt").write_bytes((tmp_path / "belief.pt").read_bytes()[:-200])
    torch.save({"a": torch.zeros(2)}, tmp_path / "else.pt")
    with pytest.raises(TangentError, match="cannot be read"):
        posterior.load(tmp_path / "cut.pt", network())
    with pytest.raises(TangentError, match="not a posterior"):
        posterior.load(tmp_path / "else.pt", network())
    free = posterior.fit(network(), X, labels(X), prior_precision=1.0, method="lanczos", k=5)
    with pytest.raises(TangentError, match="cannot be saved"):
        free.save(tmp_path / "free.pt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["belief.pt", "cut.pt", "else.pt"]


def test_hugging_face_classifier(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.BertConfig(
        vocab_size=30, max_position_embeddings=12, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=24, num_labels=3,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(config).double()
    tokens = torch.randint(3, 30, (10, 7))
    mask = torch.ones_like(tokens)
    mask[::2, 4:] = 0
    data: dict[str, Tensor] = {"input_ids": tokens * mask, "attention_mask": mask, "labels": torch.arange(10) % 3}
    belief = posterior.fit(model, data, prior_precision=1.0)
    new = {name: data[name][:4] for name in ("input_ids", "attention_mask")}
    found = belief.predict_proba(new)
    assert found.shape == (4, 3)
    assert belief.evaluate(data).nll < math.inf
    last = posterior.fit(model, data, parameters="classifier", prior_precision="evidence")
    last.save(tmp_path / "bert.pt")
    torch.testing.assert_close(posterior.load(tmp_path / "bert.pt", model).predict_proba(new), last.predict_proba(new))
