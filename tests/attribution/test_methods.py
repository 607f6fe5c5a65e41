"""Every method against its formula, written out with plain differentiation or by fitting again."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import tangentlab
from tangentlab import attribution, linalg, reference
from tangentlab.attribution import Exact, Gradient, Representer, Trak, attribute
from tests.attribution.problem import CLASSES, network, samples

X, Y = samples(30, 0)
X_TEST, Y_TEST = samples(4, 1)


def scores(method: object, models: object = None, **options: object) -> Tensor:
    models = network() if models is None else models
    found = attribute(models, X, X_TEST, method, targets=Y, test_targets=Y_TEST, **options)  # type: ignore[arg-type]
    assert found.scores.shape == (4, 30)
    return found.scores


def gradients(model: nn.Module, x: Tensor, y: Tensor, readout: str) -> Tensor:
    parts = reference.jacobian(model, x, readout=readout, targets=y)
    return torch.cat([part.flatten(1) for part in parts.values()], 1)


def close(one: Tensor, two: Tensor, tolerance: float = 1e-10) -> bool:
    return bool((one - two).abs().max() <= tolerance * two.abs().max())


def test_gradient_is_the_inner_product_of_loss_gradients() -> None:
    one, two = gradients(network(), X_TEST, Y_TEST, "loss"), gradients(network(), X, Y, "loss")
    assert close(scores("gradient"), one @ two.T)
    normalized = torch.nn.functional.normalize
    assert close(scores(Gradient(cosine=True)), normalized(one) @ normalized(two).T)


def test_tracin_sums_checkpoints_with_their_rates() -> None:
    single = [scores("gradient", network(seed)) for seed in (0, 1)]
    models = [network(0), network(1)]
    assert close(scores(Gradient(rates=(0.1, 0.02)), models), 0.1 * single[0] + 0.02 * single[1])
    assert close(scores("gradient", models), (single[0] + single[1]) / 2)


def margin_features(model: nn.Module, k: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    one, two = (
        tangentlab.sketch(model, x, k, readout="margin", targets=y, seed=seed).features
        for x, y in ((X_TEST, Y_TEST), (X, Y))
    )
    with torch.no_grad():
        weights = 1 - model(X).softmax(1)[torch.arange(30), Y]
    return one, two, weights


def test_trak_is_its_formula_with_products_of_averages() -> None:
    total, weights = torch.zeros(4, 30, dtype=torch.float64), torch.zeros(30, dtype=torch.float64)
    for number in range(2):
        one, two, own = margin_features(network(number), 16, 5 + number)
        gram = two.T @ two
        gram += 0.01 * gram.diagonal().mean() * torch.eye(16)
        total += one @ torch.linalg.solve(gram, two.T) / 2
        weights += own / 2
    found = scores(Trak(k=16, ridge=0.01, seed=5), [network(0), network(1)])
    assert close(found.double(), total * weights, 1e-5)


def test_trak_without_projection_error_is_the_influence_in_the_linear_model() -> None:
    model = network()
    one, two = gradients(model, X_TEST, Y_TEST, "margin"), gradients(model, X, Y, "margin")
    kernel, cross = two @ two.T, one @ two.T
    features = [Trak(k=40, ridge=0.1, seed=seed) for seed in range(150)]
    mean = torch.stack([scores(method, check=False).double() for method in features]).mean(0)
    ridge = 0.1 * kernel.diagonal().sum() / 40
    weights = 1 - model(X).softmax(1)[torch.arange(30), Y].detach()
    exact = cross @ torch.linalg.inv(kernel + ridge * torch.eye(30)) * weights
    correlation = torch.corrcoef(torch.stack([mean.flatten(), exact.flatten()]))[0, 1]
    assert correlation > 0.99


@pytest.mark.parametrize("readout", ["pntk", "full"])
def test_exact_is_the_change_when_a_sample_is_left_out(readout: str) -> None:
    model, ridge = network(), 0.5
    found = scores(Exact(readout, ridge))
    target = torch.nn.functional.one_hot(Y, CLASSES).double()

    def predict(kept: list[int]) -> Tensor:
        kernel = tangentlab.ntk(model, X[kept], readout=readout)
        cross = tangentlab.ntk(model, X_TEST, X[kept], readout=readout)
        y = target[kept]
        return linalg.regress(kernel, y, ridge=ridge).predict(cross).reshape(4, CLASSES)

    whole = predict(list(range(30)))
    rows = torch.arange(4)
    for left_out in (0, 17):
        change = whole - predict([n for n in range(30) if n != left_out])
        assert close(found[:, left_out], change[rows, Y_TEST])
    terms = scores(Representer(readout, ridge))
    assert close(terms.sum(1), whole[rows, Y_TEST])


@pytest.mark.parametrize("readout", ["pntk", "full"])
def test_exact_for_numbers_is_the_change_of_the_loss(readout: str) -> None:
    model, ridge = network(), 0.3
    y, y_test = torch.randn(30, CLASSES).double(), torch.randn(4, CLASSES).double()
    found = attribute(model, X, X_TEST, Exact(readout, ridge), targets=y, test_targets=y_test).scores

    def loss(kept: list[int]) -> Tensor:
        fit = linalg.regress(tangentlab.ntk(model, X[kept], readout=readout), y[kept], ridge=ridge)
        predicted = fit.predict(tangentlab.ntk(model, X_TEST, X[kept], readout=readout)).reshape(4, CLASSES)
        return (predicted - y_test).square().sum(1) / 2

    without = loss([n for n in range(30) if n != 11])
    assert close(found[:, 11], without - loss(list(range(30))), 1e-9)


def test_the_ridge_is_chosen_by_leave_one_out() -> None:
    kernel = tangentlab.ntk(network(), X, readout="pntk")
    best = linalg.ridge_path(kernel, torch.nn.functional.one_hot(Y, CLASSES).double()).best
    assert close(scores(Exact()), scores(Exact(ridge=best)), 1e-8)


def test_all_forms_of_samples_give_the_same_scores() -> None:
    expected = scores(Trak(k=16))
    data, test = TensorDataset(X, Y), TensorDataset(X_TEST, Y_TEST)
    for train, tests in ((data, test), (DataLoader(data, 7), DataLoader(test, 3)), (data, DataLoader(test, 4))):
        found = attribute(network(), train, tests, Trak(k=16))
        assert torch.equal(found.scores, expected)
    assert found.test_targets is not None
    assert torch.equal(found.test_targets, Y_TEST)


def test_checkpoints_are_loaded_into_one_model(tmp_path: object) -> None:
    from pathlib import Path

    path = Path(str(tmp_path)) / "one.pt"
    torch.save(network(1).state_dict(), path)
    model = network(7)
    found = scores("gradient", model, checkpoints=[network(0).state_dict(), path])
    assert torch.equal(found, scores("gradient", [network(0), network(1)]))
    assert torch.equal(model[0].weight, network(7)[0].weight)


def test_a_readout_of_ones_own() -> None:
    def squared(outputs: Tensor, target: Tensor) -> Tensor:
        return outputs[target].square()

    model = network()
    found = scores(Gradient(readout=squared), model)
    parts = [reference.jacobian(model, x, readout=squared, targets=y) for x, y in ((X_TEST, Y_TEST), (X, Y))]
    one, two = (torch.cat([part.flatten(1) for part in side.values()], 1) for side in parts)
    assert close(found, one @ two.T)
    assert scores(Trak(k=16, readout=squared), model).isfinite().all()


def test_methods_by_name() -> None:
    assert set(attribution.METHODS) == {"exact", "gradient", "representer", "trak"}
    for name in attribution.METHODS:
        found = attribute(network(), X, X_TEST, name, targets=Y, test_targets=Y_TEST)
        assert found.method["name"] == name
