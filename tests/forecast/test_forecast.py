"""Forecasts of training: the linearization trained by the loop, kernel regression, learning curves, ranking."""

import math

import pandas as pd
import pytest
import torch
from torch import nn

import tangentlab
from tangentlab import TangentError, analysis, linearize, training
from tests.posterior.problems import labels, network, samples

X, TEST = samples(40), samples(25, seed=2)
Y, TRUTH = labels(X), labels(TEST)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_steps_are_those_of_the_trained_linearization(momentum: float) -> None:
    model = network()
    forecast = tangentlab.predict_training(model, X, Y, test=(TEST, TRUTH), momentum=momentum, steps=64)
    linear = linearize(network())
    spec = training.TrainingSpec(
        epochs=64, batch_size=40, loss=training.Squared(), optimizer=training.SGD(forecast.lr, momentum=momentum),
        schedule=training.Constant(),
    )  # fmt: skip
    result = training.train(linear, (X, Y), spec, test=(TEST, TRUTH))
    history = result.history.set_index("epoch")
    for row in forecast.table.to_dict("records"):
        measured = history.loc[row["step"]]
        assert row["train_loss"] == pytest.approx(measured["train_loss"], rel=1e-6)
        assert row["test_loss"] == pytest.approx(measured["test_loss"], rel=1e-6)
        assert row["test_accuracy"] == pytest.approx(measured["test_accuracy"])
    level = float(history["train_loss"].loc[8])
    first = int((history["train_loss"] <= level).idxmax())
    assert forecast.steps_to(level) == pytest.approx(first, abs=1.0)
    assert forecast.steps_to(0.0) == math.inf


def test_larger_learning_rates_than_the_largest_stable_diverge() -> None:
    stable = tangentlab.predict_training(network(), X, Y, momentum=0.5).largest_stable_lr
    below, above = (
        tangentlab.predict_training(network(), X, Y, lr=share * stable, momentum=0.5, steps=3000).table["train_loss"]
        for share in (0.99, 1.02)
    )
    assert below.iloc[-1] < below.iloc[0]
    assert above.iloc[-1] > 1e6


def test_flow_is_the_limit_of_small_steps() -> None:
    lr = tangentlab.predict_training(network(), X, Y).largest_stable_lr
    table = tangentlab.predict_training(network(), X, Y, lr=lr / 500, steps=2000).table
    assert float((table["train_loss"] / table["flow_loss"] - 1).abs().max()) < 1e-3


def test_learning_curve_predicts_the_error_on_new_samples() -> None:
    x = samples(400, seed=7)
    noise = torch.randn(400, 1, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    y = x.sin().sum(1, keepdim=True) + 0.3 * noise
    forecast = tangentlab.predict_training(network(1, hidden=50), x[:200], y[:200], readout="pntk")
    curve = forecast.learning_curve([50, 100, 200])
    assert list(curve["samples"]) == [50, 100, 200]
    assert float(curve["gcv"].iloc[0]) > float(curve["gcv"].iloc[-1])
    assert curve["eigenlearning"].iloc[1] == pytest.approx(curve["gcv"].iloc[1], rel=0.4)
    assert math.isnan(curve["eigenlearning"].iloc[-1])
    from tangentlab import linalg, ntk

    model = network(1, hidden=50)
    kernel, cross = ntk(model, x[:200], readout=0), ntk(model, x[200:], x[:200], readout=0)
    path = linalg.ridge_path(kernel, y[:200], f0=model(x[:200]).detach())
    guess = path.regression(path.best_by_gcv).predict(cross, f0=model(x[200:]).detach())
    measured = float((guess - y[200:]).square().mean())
    assert curve["gcv"].iloc[-1] == pytest.approx(measured, rel=0.25)
    with pytest.raises(TangentError, match="no learning curve of the full kernel"):
        tangentlab.predict_training(network(), X, Y, readout="full").learning_curve()


def test_left_out_samples_are_those_of_separate_fits() -> None:
    from tangentlab import linalg, ntk
    from tangentlab.forecast import leave_one_out

    kernel, y = ntk(network(), X, readout="pntk"), X[:, :2]
    found = leave_one_out(linalg.eigh(kernel), y, ridge=0.3)
    for i in (0, 17):
        rest = [j for j in range(40) if j != i]
        fit = linalg.regress(kernel[rest][:, rest], y[rest], ridge=0.3)
        torch.testing.assert_close(found.predictions[i : i + 1], fit.predict(kernel[i : i + 1, rest]))


class WithNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(4, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 3)).double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


def test_batch_norm_in_training_mode_gets_an_answer() -> None:
    model = WithNorm().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    forecast = tangentlab.predict_training(model, X, Y)
    assert "1 BatchNorm layers in evaluation mode, at the statistics of the samples" in forecast.note
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    inner = model.body[0](X)
    mean, variance = inner.mean(0), inner.var(0)
    normal = model.body[3](torch.relu((inner - mean) / (variance + 1e-5).sqrt()))
    torch.testing.assert_close(forecast.start, normal.detach())
    assert tangentlab.predict_training(WithNorm().eval(), X, Y).note == ""


def test_rank_models() -> None:
    class Blind(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3).double()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x[:, [2, 3, 2, 3]])

    found = analysis.rank_models({"blind": Blind(), "mlp": network(hidden=40), "norm": WithNorm()}, X, Y)
    assert isinstance(found, pd.DataFrame)
    assert found["model"].iloc[-1] == "blind"
    assert found["error"].is_monotonic_increasing
    assert found.set_index("model")["note"].loc["norm"].startswith("1 BatchNorm")
    real = analysis.rank_models([network(1)], X, X.sin().sum(1))
    assert real["error"].isna().all()
    gaps, plain = (analysis.rank_models([network()], X, classes) for classes in (10**9 * Y, Y))
    assert gaps["error"].equals(plain["error"])  # class numbers may have gaps
    for arguments, message in (
        (({}, X, Y), "no models"),
        ((network(), X, Y), "One model was passed"),
        (([network(), "mlp"], X, Y), "model '1' is a str"),
        (([network()], X), "no targets"),
        (([network()], X, Y[:4]), "40 samples and 4 targets"),
        (([network()], X, ["a"] * 40), "targets are a list"),
        (([network()], X, torch.full((40,), math.nan)), "NaN or infinite"),
        (([network()], X, 0 * Y), "one class"),
        ((None, X, Y), "models are a NoneType"),
        (([network()], X, Y.to(torch.complex64)), "targets are complex"),
        (([network()], X, torch.tensor(1)), "targets are one number"),
    ):
        with pytest.raises(TangentError, match=message):
            analysis.rank_models(*arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"momentum": 1.0}, "momentum=1.0"),
        ({"momentum": "a"}, "momentum='a'"),
        ({"lr": -1.0}, "lr=-1.0"),
        ({"lr": "fast"}, "lr='fast'"),
        ({"steps": 0}, "steps=0"),
        ({"readout": "trace"}, "readout is 'trace'"),
        ({"y": None}, "no targets"),
        ({"y": Y + 5}, "labels go from 5 to 7"),
        ({"y": ["a"] * 40}, "targets are a list"),
        ({"y": torch.full((40, 3), math.nan)}, "NaN or infinite"),
        ({"test": TEST}, "no targets"),
        ({"y": Y.to(torch.complex64)}, "targets are complex"),
        ({"y": torch.tensor(1)}, r"targets have shape \(\)"),
        ({"device": "meta"}, "device is 'meta'"),
        ({"output": lambda result: result.logits_of}, "output= fails"),
        ({"test": (TEST.float(), Y[:5])}, "The model fails on a batch"),
        ({"y": X[:, :2]}, r"targets are \(40, 2\) and the outputs \(40, 3\)"),
    ],
)
def test_refusals(options: dict[str, object], message: str) -> None:
    given = {"y": Y, **options}
    with pytest.raises(TangentError, match=message):
        tangentlab.predict_training(network(), X, given.pop("y"), **given)  # type: ignore[arg-type]


def test_what_a_forecast_is_asked() -> None:
    forecast = tangentlab.predict_training(network(), X, Y, readout="pntk", steps=10)
    for loss in ("a", math.nan, True):
        with pytest.raises(TangentError, match="The loss is"):
            forecast.steps_to(loss)  # type: ignore[arg-type]
    for sizes in ([2], [41], [10.5]):
        with pytest.raises(TangentError, match="whole number from 4 to 40"):
            forecast.learning_curve(sizes)  # type: ignore[arg-type]
    with pytest.raises(TangentError, match="repeats=0"):
        forecast.learning_curve([10], repeats=0)
    for sizes in ([], 8, "8"):
        with pytest.raises(TangentError, match="has no numbers"):
            forecast.learning_curve(sizes)  # type: ignore[arg-type]
    with pytest.raises(TangentError, match="seed='a'"):
        forecast.learning_curve([10], seed="a")  # type: ignore[arg-type]
    with pytest.raises(TangentError, match="model is of type NoneType"):
        tangentlab.predict_training(None, X, Y)  # type: ignore[arg-type]
    with pytest.raises(TangentError, match="The model fails on a batch of 40 samples"):
        tangentlab.predict_training(network(), X.float(), Y)
