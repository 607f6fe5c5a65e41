"""Linearized Laplace: every method and readout against the plain formulas."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tangentlab import TangentError, ntk, posterior
from tests.posterior.problems import blocks, labels, laplace, network, samples, softmax_weights

X, NEW, HELD = samples(30), samples(7, seed=2), samples(300, seed=3)
Y = labels(X)
PRECISION = 0.7


@pytest.mark.parametrize(("method", "tolerance"), [("exact", 1e-12), ("lanczos", 1e-10), ("cg", 1e-6)])
def test_full_kernel_is_laplace_in_weight_space(method: str, tolerance: float) -> None:
    expected = laplace(network(), X, Y, NEW, PRECISION)
    belief = posterior.fit(network(), X, Y, prior_precision=PRECISION, method=method, k=90)
    assert belief.method == method
    found = belief.predict(NEW)
    torch.testing.assert_close(found.mean, network()(NEW).detach())
    size = float(expected.covariance.abs().max())
    torch.testing.assert_close(found.covariance, blocks(expected.covariance), rtol=0, atol=tolerance * size)
    torch.testing.assert_close(belief.covariance(NEW), expected.covariance, rtol=0, atol=tolerance * size)
    if method != "cg":
        assert belief.log_marginal_likelihood == pytest.approx(expected.evidence, abs=1e-8)


@pytest.mark.parametrize("readout", ["pntk", "per_class"])
@pytest.mark.parametrize("weight", [1.0, 2.5])
def test_independent_outputs_by_the_dense_formula(readout: str, weight: float) -> None:
    model = network()
    belief = posterior.fit(model, X, Y, prior_precision=PRECISION, readout=readout, weight=weight)

    def dense(kernel: Tensor) -> Tensor:
        each = kernel.expand(3, *kernel.shape) if kernel.ndim == 2 else kernel
        rows, columns = each.shape[1:]
        full = torch.zeros(rows, 3, columns, 3).double()
        for output in range(3):
            full[:, output, :, output] = each[output]
        return full.reshape(rows * 3, columns * 3)

    own, cross, new = (dense(ntk(model, *pair, readout=readout)) for pair in ((X,), (NEW, X), (NEW,)))
    weights = weight * softmax_weights(model(X).detach())
    inner = torch.eye(90).double() + weights @ own / PRECISION
    expected = (new - cross @ torch.linalg.solve(inner, weights) @ cross.T / PRECISION) / PRECISION
    joint = expected.reshape(7, 3, 7, 3)
    torch.testing.assert_close(belief.covariance(NEW), joint, rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(belief.predict(NEW).covariance, blocks(joint), rtol=1e-8, atol=1e-10)
    fit = -weight * float(nn.functional.cross_entropy(model(X), Y, reduction="sum"))
    norm = sum(float(p.detach().square().sum()) for p in model.parameters())
    evidence = fit - PRECISION * norm / 2 - float(torch.logdet(inner)) / 2
    assert belief.log_marginal_likelihood == pytest.approx(evidence, abs=1e-8)


def test_sketch_approaches_the_exact_posterior() -> None:
    model = network(hidden=200)
    exact = posterior.fit(model, X, Y, prior_precision=PRECISION, method="exact").predict(NEW).variance
    errors = []
    for k in (64, 1024):
        belief = posterior.fit(model, X, Y, prior_precision=PRECISION, method="sketch", k=k)
        assert "sketched" in repr(belief)
        errors.append(float((belief.predict(NEW).variance / exact - 1).abs().mean()))
    assert errors[1] < 0.1
    assert errors[1] < errors[0]


def test_leading_directions_never_make_variances_too_small() -> None:
    exact = posterior.fit(network(), X, Y, prior_precision=0.05).predict(NEW).variance
    few = posterior.fit(network(), X, Y, prior_precision=0.05, method="lanczos", k=10).predict(NEW).variance
    assert bool((few >= exact - 1e-10).all())
    assert float(few.sum()) > float(exact.sum())


def test_a_part_of_the_parameters() -> None:
    whole, last = (
        posterior.fit(network(), X, Y, prior_precision=PRECISION, parameters=chosen).predict(NEW)
        for chosen in (None, "2")
    )
    same = posterior.fit(model := network(), X, Y, prior_precision=PRECISION, parameters=model[2].parameters())
    torch.testing.assert_close(same.predict(NEW).covariance, last.covariance)
    assert bool((last.variance < whole.variance).all())


def test_an_untrained_network_is_moved_to_the_mode() -> None:
    """The gradient of the log posterior vanishes there, for every form of the kernel."""
    model = network()
    for options in ({}, {"readout": "pntk"}, {"readout": "per_class"}, {"method": "cg"}):
        belief = posterior.fit(model, X, Y, prior_precision=0.2, mean="posterior", **options)
        kernel = ntk(model, X, readout=options.get("readout", "full"))
        outputs = belief.mean(X)
        slope = nn.functional.one_hot(Y, 3) - torch.softmax(outputs, 1)
        if kernel.ndim == 4:
            moved = torch.einsum("nomp,mp->no", kernel, slope)
        else:
            moved = torch.einsum("nm,mp->np" if kernel.ndim == 2 else "pnm,mp->np", kernel, slope)
        torch.testing.assert_close(outputs, model(X).detach() + moved / 0.2, rtol=1e-4, atol=1e-4)
        assert float((outputs.argmax(1) == Y).double().mean()) >= 0.7


def test_prior_precision_maximizes_the_evidence() -> None:
    best = posterior.fit(network(), X, Y, prior_precision="evidence")
    for factor in (0.8, 1.25):
        other = posterior.fit(network(), X, Y, prior_precision=factor * best.prior_precision)
        assert other.log_marginal_likelihood < best.log_marginal_likelihood


def test_prior_precision_by_held_out_samples() -> None:
    held, truth = samples(40, seed=5), labels(samples(40, seed=5))
    best = posterior.fit(network(), X, Y, validation=(held, truth))

    def loss(precision: float) -> float:
        return posterior.fit(network(), X, Y, prior_precision=precision).evaluate(held, truth).nll

    assert best.evaluate(held, truth).nll <= min(map(loss, (0.01, 0.1, 1.0, 10.0))) + 1e-6


@pytest.mark.parametrize("readout", ["full", "pntk", "per_class"])
def test_a_network_that_is_not_too_confident_keeps_its_probabilities(readout: str) -> None:
    model = network()
    drawn = torch.Generator().manual_seed(5)
    sure = torch.softmax(3 * model(HELD).detach(), 1)  # the truth is far more certain than the network
    truth = torch.multinomial(sure, 1, generator=drawn)[:, 0]
    belief = posterior.fit(model, X, Y, validation=(HELD, truth), readout=readout)
    gap = belief.predict_proba(HELD) - torch.softmax(model(HELD).detach(), 1)
    assert float(gap.abs().max()) < 1e-3


def test_one_output_for_two_classes() -> None:
    model, truth = network(1), labels(X, 2)
    belief = posterior.fit(model, X, truth, prior_precision=1.0)
    found, twin = belief.predict_proba(NEW), posterior.fit(model, X, truth.bool(), prior_precision=1.0)
    assert found.shape == (7, 2)
    torch.testing.assert_close(found.sum(1), torch.ones(7).double())
    torch.testing.assert_close(found, twin.predict_proba(NEW))
    two = posterior.fit(Doubled(model), X, truth, prior_precision=1.0).predict_proba(NEW)
    torch.testing.assert_close(found, two)


class Doubled(nn.Module):
    """One output as two: softmax of (0, f) is the sigmoid of f."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        f = self.model(x)
        return torch.cat([torch.zeros_like(f), f], 1)


@pytest.mark.parametrize("subset", [12, list(range(12))])
def test_subset(subset: object) -> None:
    belief = posterior.fit(network(), X, Y, prior_precision=1.0, subset=subset)
    assert "12 samples x 3 outputs, a subset of 30" in belief.about
    if isinstance(subset, list):
        plain = posterior.fit(network(), X[subset], Y[subset], prior_precision=1.0, weight=30 / 12)
        torch.testing.assert_close(belief.predict(NEW).covariance, plain.predict(NEW).covariance)


def test_subset_has_every_class_in_proportion() -> None:
    from tangentlab.posterior._fit import _choose

    classes = torch.tensor([0] * 60 + [1] * 30 + [2] * 10)
    rows = _choose(20, classes, 100, 3)
    assert rows is not None
    assert torch.bincount(classes[rows]).tolist() == [12, 6, 2]


def test_predictions_do_not_depend_on_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    belief = posterior.fit(network(), X, Y, prior_precision=1.0)
    whole = belief.predict(NEW)
    monkeypatch.setattr(type(belief._form), "chunk", lambda self: 2)
    parts = belief.predict(NEW)
    torch.testing.assert_close(parts.covariance, whole.covariance)
    torch.testing.assert_close(parts.mean, whole.mean)


def test_batches_fit_into_the_memory_budget() -> None:
    small, large = (
        posterior.fit(network(), X, Y, prior_precision=1.0, memory_budget=budget)._form.chunk()
        for budget in ("1MiB", "8MiB")
    )
    assert small == 2**20 // 32 // (3 * 30 * 9)
    assert large == 2**23 // 32 // (3 * 30 * 9)


@pytest.mark.parametrize("method", ["exact", "sketch"])
def test_held_out_samples_are_computed_once(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tangentlab.posterior import _tangent

    calls = []
    for name in ("ntk", "sketch"):
        plain = getattr(_tangent, name)
        monkeypatch.setattr(_tangent, name, lambda *a, _f=plain, **k: calls.append(1) or _f(*a, **k))
    belief = posterior.fit(network(), X, Y, validation=(NEW, labels(NEW)), method=method, k=20)
    assert len(calls) == (3 if method == "exact" else 2)  # training samples, then held-out ones
    assert belief.prior_precision > 0


def test_outputs_are_coupled_even_where_rounding_makes_the_inverses_indefinite(monkeypatch: pytest.MonkeyPatch) -> None:
    from tangentlab.posterior._inverse import Inverse

    options = {"prior_precision": PRECISION, "readout": "per_class"}
    expected = posterior.fit(network(), X, Y, **options).covariance(NEW)  # type: ignore[arg-type]
    plain = Inverse.whole
    monkeypatch.setattr(Inverse, "whole", lambda self: -plain(self))
    found = posterior.fit(network(), X, Y, **options).covariance(NEW)  # type: ignore[arg-type]
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


def test_samples_that_bring_their_targets() -> None:
    pairs = torch.utils.data.TensorDataset(X, Y)
    loader = torch.utils.data.DataLoader(pairs, batch_size=8)
    plain = posterior.fit(network(), X, Y, prior_precision=1.0).predict_proba(NEW)
    for data in (pairs, loader):
        belief = posterior.fit(network(), data, prior_precision=1.0)
        torch.testing.assert_close(belief.predict_proba(NEW), plain)
    assert belief.evaluate(pairs).accuracy == posterior.calibration(belief.predict_proba(X), Y).accuracy


def test_model_is_left_alone() -> None:
    model = network().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    posterior.fit(model, X, Y, mean="posterior", prior_precision=1.0)
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": None}, "no targets"),
        ({"y": Y[:5]}, "30 samples and 5 targets"),
        ({"y": Y + 1}, "labels go from 1 to 3"),
        ({"y": Y.clamp(max=1)}, "1 of 3 classes have no training sample: 2"),
        ({"y": nn.functional.one_hot(Y, 3)}, "one class number per sample"),
        ({"prior_precision": -1.0}, "prior_precision=-1.0 is not a positive number"),
        ({"prior_precision": 0}, "prior_precision=0 is not a positive number"),
        ({"noise": 0.1}, "noise= was given for a classification"),
        ({}, "nothing to choose the prior precision by"),
        ({"prior_precision": [1.0, 2.0]}, "is not a positive number"),
        ({"subset": 31}, "subset=31 of 30"),
        ({"seed": "a"}, "seed='a' is not a whole number"),
        ({"subset": "few"}, "neither a number nor indices"),
        ({"validation": (NEW, labels(NEW)[:3])}, "7 samples and 3 targets"),
        ({"subset": [0, 0, 1]}, "indices twice"),
        ({"readout": "trace"}, "readout is 'trace'"),
        ({"method": "svd"}, "method='svd' is not known"),
        ({"method": "sketch", "readout": "pntk"}, "with the readout 'pntk'"),
        ({"method": "exact", "memory_budget": "200KiB"}, "takes 253 KiB; 200 KiB are allowed"),
        ({"mean": "zero"}, "mean='zero' is not known"),
        ({"k": 0, "method": "sketch"}, "k=0 is not a positive whole number"),
        ({"y": torch.tensor(1)}, "30 samples and 1 targets"),
        ({"seed": 2**70, "subset": 9}, "is not a whole number from 0 to"),
        ({"dtype": "float64"}, "dtype is float64"),
        ({"dtype": torch.int32}, "dtype is torch.int32"),
        ({"device": "nowhere"}, "device is 'nowhere'"),
        ({"device": "meta"}, "device is 'meta'"),
        ({"batch_size": -1}, "batch_size is -1"),
        ({"batch_size": 1.5}, "batch_size is 1.5"),
        ({"output": lambda result: result.logits_of}, "output= fails on what the model returns, a Tensor"),
    ],
)
def test_refusals(change: dict[str, object], message: str) -> None:
    options = {"y": Y, "prior_precision": 1.0, **change} if change else {"y": Y}
    with pytest.raises(TangentError, match=message):
        posterior.fit(network(), X, options.pop("y"), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("x", [X.float(), X.long(), X[:, :2]])
def test_samples_that_do_not_fit_the_network_are_named(x: Tensor) -> None:
    with pytest.raises(TangentError, match="The model fails on a batch of 30 samples"):
        posterior.fit(network(), x, Y, prior_precision=1.0)


def test_unseen_classes_can_be_allowed() -> None:
    belief = posterior.fit(network(), X, Y.clamp(max=1), unseen="allow", prior_precision=1.0)
    assert belief.predict_proba(NEW).shape == (7, 3)


def test_a_singular_kernel_is_refused_or_regularized() -> None:
    twice = torch.cat([X, X])
    belief = posterior.fit(network(), twice, torch.cat([Y, Y]), prior_precision=1e-3)
    assert bool(torch.isfinite(belief.predict(NEW).covariance).all())
    model = network().float()
    with pytest.raises(TangentError, match="is singular"):
        posterior.fit(model, twice.float(), torch.cat([X, X])[:, :3], noise=1e-12, prior_precision=1e-3)


def test_evaluate_needs_targets_and_classes() -> None:
    belief = posterior.fit(network(), X, Y, prior_precision=1.0)
    with pytest.raises(TangentError, match="no targets"):
        belief.evaluate(NEW)
    with pytest.raises(TangentError, match="labels go from 0 to 7"):
        belief.evaluate(NEW, torch.tensor([0, 1, 2, 7, 1, 1, 1]))
    with pytest.raises(TangentError, match="labels are a list"):
        belief.evaluate(NEW, ["a"] * 7)
    for call in (lambda: belief.sample(NEW, 2, seed="a"), lambda: belief.predict_proba(NEW, "sampling", seed=-1)):  # type: ignore[arg-type]
        with pytest.raises(TangentError, match="is not a whole number from 0"):
            call()


def test_a_posterior_is_not_written_over_a_folder(tmp_path: Path) -> None:
    with pytest.raises(TangentError, match="could not be written: Is a directory"):
        posterior.fit(network(), X, Y, prior_precision=1.0).save(tmp_path)
    assert not list(tmp_path.iterdir())
