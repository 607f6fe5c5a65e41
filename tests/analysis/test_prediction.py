"""Generalized cross-validation, the minimum-norm solution, and the linearization error along a path."""

import copy

import pytest
import torch
from torch import nn

from tangentlab import TangentError, analysis, ntk, training
from tangentlab.analysis import _minimum_norm
from tests.analysis.problems import convnet, images, jacobian, matrix, rows, smooth


def test_gcv_by_its_formula_and_against_test_error():
    torch.manual_seed(1)
    model = smooth(width=40)
    x, test = rows(60), rows(300, seed=1)
    truth = (x[:, :1].sin() + x[:, 1:2], test[:, :1].sin() + test[:, 1:2])
    y, y_test = truth[0] + 0.3 * rows(60, 1, seed=2), truth[1] + 0.3 * rows(300, 1, seed=3)
    with torch.no_grad():
        f0, f0_test = model(x), model(test)
    kernel, cross = matrix(model, x), ntk(model, test, x, readout=0)
    ridges = [1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0]
    found = analysis.predicted_error(kernel, y, ridges, f0=f0, test=(cross, y_test, f0_test))
    for _, row in found.table.iterrows():
        hat = kernel @ torch.linalg.inv(kernel + row["ridge"] * torch.eye(60, dtype=torch.float64))
        left = y - f0 - hat @ (y - f0)
        gcv = left.square().mean() / (1 - hat.trace() / 60) ** 2
        assert row["gcv"] == pytest.approx(float(gcv), rel=1e-6)
        guess = f0_test + cross @ torch.linalg.solve(kernel + row["ridge"] * torch.eye(60, dtype=torch.float64), y - f0)
        assert row["test_error"] == pytest.approx(float((guess - y_test).square().mean()), rel=1e-6)
    assert found.correlation > 0.8
    assert found.best == found.table.loc[found.table["gcv"].idxmin(), "ridge"]


@pytest.mark.parametrize("points", [5, 150])
@pytest.mark.parametrize("kept", [True, False])
def test_minimum_norm_against_lapack(points, kept, monkeypatch):
    """Fewer and more equations (2 a point) than the network's 86 weights; products from kept factors and by passes."""
    if not kept:
        monkeypatch.setattr(_minimum_norm, "keep_jacobian", lambda *_: None)
    model, x = convnet(), images(points)
    y = torch.randn(points, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    found = analysis.minimum_norm(model, x, y, batch_size=4, progress=False)
    matrix_ = jacobian(model, x)
    with torch.no_grad():
        f0 = model(x)
    expected = torch.linalg.lstsq(matrix_, (y - f0).reshape(-1, 1), driver="gelsd").solution[:, 0]
    u = torch.cat([found.displacement[name].flatten() for name, _ in model.named_parameters()])
    torch.testing.assert_close(u, expected, rtol=1e-5, atol=1e-6 * float(expected.abs().max()))
    assert found.norm == pytest.approx(float(expected.norm()), rel=1e-6)
    torch.testing.assert_close(found.predictions, f0 + (matrix_ @ expected).reshape(-1, 2), rtol=1e-5, atol=1e-5)
    if points == 5:
        torch.testing.assert_close(found.predictions, y, rtol=1e-7, atol=1e-7)
    test = images(3, seed=9)
    with torch.no_grad():
        there = model(test) + (jacobian(model, test) @ expected).reshape(-1, 2)
    torch.testing.assert_close(found.predict(test), there, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.model(test).detach(), there, rtol=1e-5, atol=1e-5)


def test_minimum_norm_near_the_interpolation_threshold_of_a_nearly_singular_jacobian():
    """Samples that differ by 1e-9: J has condition number 1e9 and more, of which its kernel keeps nothing."""
    model, x = convnet(), images(12)
    x[1] = x[0] + 1e-9 * images(1, seed=5)[0]
    matrix_ = jacobian(model, x)
    with torch.no_grad():
        f0 = model(x)
    # Targets that a displacement of unit size meets.
    direction = torch.randn(matrix_.shape[1], generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    y = f0 + (matrix_ @ direction).reshape(f0.shape)
    expected = torch.linalg.lstsq(matrix_, (y - f0).reshape(-1, 1), rcond=0.0, driver="gelsd").solution[:, 0]
    found = analysis.minimum_norm(model, x, y, progress=False)
    u = torch.cat([found.displacement[name].flatten() for name, _ in model.named_parameters()])
    torch.testing.assert_close(u, expected, rtol=0, atol=1e-4 * float(expected.abs().max()))
    assert found.fit.floor == 0
    cut = analysis.minimum_norm(model, x, y, cutoff=1e-7, progress=False)
    assert cut.fit.rank == 22
    expected = torch.linalg.lstsq(matrix_, (y - f0).reshape(-1, 1), rcond=1e-7, driver="gelsd").solution[:, 0]
    u = torch.cat([cut.displacement[name].flatten() for name, _ in model.named_parameters()])
    torch.testing.assert_close(u, expected, rtol=0, atol=1e-6 * float(expected.abs().max()))


def test_minimum_norm_of_equal_samples_with_different_targets():
    """No displacement meets both; the least squares give their mean, with and without a cutoff."""
    model, x = convnet(), images(4)
    x[1] = x[0]
    y = torch.eye(4, dtype=torch.float64)[:, :2]
    found = analysis.minimum_norm(model, x, y, progress=False)
    cut = analysis.minimum_norm(model, x, y, cutoff=1e-10, progress=False)
    assert (found.fit.rank, cut.fit.rank) == (None, 6)
    assert found.fit.floor > 0
    for each in (found, cut):
        torch.testing.assert_close(each.predictions[0], y[:2].mean(0))
    torch.testing.assert_close(found.displacement, cut.displacement, rtol=1e-6, atol=1e-6)


def test_minimum_norm_in_float32():
    model, x = convnet().float(), images(5).float()
    y = torch.randn(5, 2, generator=torch.Generator().manual_seed(3))
    found = analysis.minimum_norm(model, x, y, progress=False)
    double = analysis.minimum_norm(model, x, y, dtype=torch.float64, progress=False)
    assert found.norm == pytest.approx(double.norm, rel=1e-3)
    torch.testing.assert_close(found.predictions, y.double(), rtol=0, atol=1e-3)


def test_minimum_norm_of_one_output_some_weights_and_a_given_kernel():
    model, x = convnet(), images(6)
    y = torch.sign(rows(6, 1))[:, 0]
    found = analysis.minimum_norm(model, x, y, readout=1, parameters="0", ridge=0.5, progress=False)
    assert set(found.displacement) == {"0.weight", "0.bias"}
    kernel = ntk(model, x, readout=1, parameters="0")
    given = analysis.minimum_norm(model, x, y, readout=1, parameters="0", ridge=0.5, kernel=kernel)
    torch.testing.assert_close(found.displacement, given.displacement)
    with torch.no_grad():
        residual = y - model(x)[:, 1]
    expected = torch.linalg.solve(kernel + 0.5 * torch.eye(6, dtype=torch.float64), residual)
    torch.testing.assert_close(found.coefficients[:, 0], expected, rtol=1e-8, atol=1e-10)
    with pytest.raises(TangentError, match="not a set of functions"):
        analysis.minimum_norm(model, x, y, readout="trace")
    with pytest.raises(TangentError, match="not a set of functions"):
        analysis.minimum_norm(model, x, y, readout="margin")
    with pytest.raises(TangentError, match="Targets"):
        analysis.minimum_norm(model, x, y)


def test_the_error_of_a_smooth_network_grows_linearly_along_a_line():
    network, x = smooth(), rows(10)
    end = copy.deepcopy(network)
    with torch.no_grad():
        for parameter in end.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    fractions = [0.0, 0.01, 0.02, 1.0]
    table = analysis.linearization_along(network, analysis.straight_path(network, end, fractions), x)
    assert table["error"][0] == 0
    assert table["error"][2] / table["error"][1] == pytest.approx(2, rel=0.05)
    direct = end(x) - network(x)
    step = torch.cat([(a - b).flatten() for a, b in zip(end.parameters(), network.parameters(), strict=True)])
    assert table["distance"][3] == pytest.approx(float(step.detach().norm()), rel=1e-9)
    expected = (direct[:, 0] - jacobian(network, x) @ step).norm() / direct.norm()
    assert table["error"][3] == pytest.approx(float(expected), rel=1e-9)
    assert table["worst"][3] >= table["error"][3]
    with pytest.raises(TangentError, match="no weights"):
        analysis.linearization_along(network, [{}], x)
    with pytest.raises(TangentError, match="different parameters"):
        list(analysis.straight_path(network, nn.Linear(2, 2), [0.5]))


def test_the_error_along_training():
    network, x = smooth().float(), rows(30).float()
    y = x[:, :1] * x[:, 1:2]
    spec = training.TrainingSpec(epochs=3, batch_size=10, loss=training.Squared(), optimizer=training.SGD(0.1))
    callback = analysis.linearization_callback(network, x)
    start = copy.deepcopy(network)
    result = training.train(network, (x, y), spec, callbacks=[callback], progress=False)
    values = result.values["linearization"]
    assert values[0] == {"distance": 0.0, "error": 0.0, "worst": 0.0}
    assert 0 < values[1]["distance"] < values[3]["distance"]
    table = analysis.linearization_along(start, [network], x)
    assert table["error"][0] == pytest.approx(values[3]["error"])
