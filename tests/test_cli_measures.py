"""Commands on a network and data: what they print and write, on the embedded digits, in one process."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import tangentlab
from tangentlab import data, linalg, models, tasks
from tangentlab._errors import TangentError
from tangentlab.cli import app

MLP = ("--model", "mlp", "-o", "hidden=(16,)")
SMALL = ("--data", "digits", "--n-train", "60", "--n-test", "40", "--task", "cifar2")


def call(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def facts(*arguments: str) -> dict[str, Any]:
    return json.loads(call(*arguments, "--json"))


@pytest.fixture(scope="module")
def digits() -> data.ImageData:
    return tasks.cifar2(data.load("digits", n_train=60, n_test=40))


@pytest.fixture(scope="module")
def network(digits: data.ImageData) -> torch.nn.Module:
    return models.build("mlp", input_shape=digits.input_shape, outputs=1, hidden=(16,), seed=0).eval()


def test_train_writes_weights_and_a_history_and_does_not_repeat(tmp_path: Path) -> None:
    command = ("train", *MLP, *SMALL, "--epochs", "2", "--batch-size", "30", "--out", str(tmp_path), "-q")
    first, second = facts(*command), facts(*command)
    history = pd.read_csv(tmp_path / "history.csv")
    assert list(history["epoch"]) == [0, 1, 2]
    assert first["test_accuracy"] == second["test_accuracy"] == history["test_accuracy"].iloc[-1]
    weights = torch.load(tmp_path / "weights.pt", weights_only=True)
    assert weights["0.weight" if "0.weight" in weights else next(iter(weights))].ndim == 2
    assert json.loads((tmp_path / "record.json").read_text())["spec.epochs"] == 2


def test_linearize_measures_the_way_to_trained_weights(tmp_path: Path) -> None:
    call("train", *MLP, *SMALL, "--epochs", "3", "--batch-size", "20", "--out", str(tmp_path), "-q")
    found = facts("linearize", *MLP, *SMALL, "--checkpoint", str(tmp_path / "weights.pt"), "--points", "3")
    errors = [point["error"] for point in found["path"]]
    assert len(errors) == 3
    assert 0 < errors[0] < errors[-1] == found["relative_error"]
    assert 0 <= found["linear_accuracy"] <= 1
    with pytest.raises(TangentError, match="--checkpoint is missing"):
        call("linearize", *MLP, *SMALL)


def test_compare_has_a_row_a_model(tmp_path: Path) -> None:
    found = facts("compare", *MLP, *SMALL, "--epochs", "1", "--at", "start,end", "--out", str(tmp_path), "-q")
    assert len(found) == 3
    assert all(row["status"] == "finished" for row in found.values())
    assert len(pd.read_csv(tmp_path / "comparison.csv")) == 3


def test_spectrum_is_that_of_the_kernel(tmp_path: Path, digits: data.ImageData, network: torch.nn.Module) -> None:
    found = facts("spectrum", *MLP, "-o", "outputs=1", *SMALL[:6], "--out", str(tmp_path), "-q")
    expected = linalg.eigh(tangentlab.ntk(network, digits.train, readout="pntk"))
    assert found["largest"] == pytest.approx(float(expected.values[0]), rel=1e-5)
    assert found["eigenpairs"] == 60
    assert found["share_of_trace"] == pytest.approx(1, rel=1e-5)
    assert (tmp_path / "spectrum.png").stat().st_size > 1000
    assert np.load(tmp_path / "eigenvectors.npz")["vectors"].shape == (60, 60)
    assert len(pd.read_csv(tmp_path / "spectrum.csv")) == 60


def test_spectrum_of_a_store(tmp_path: Path) -> None:
    path = str(tmp_path / "kernel.zarr")
    call("kernel", "compute", *MLP, "-o", "outputs=1", *SMALL[:6], "--out", path, "-q")
    stored = facts("spectrum", "--kernel", path, "-k", "5", "-q")
    direct = facts("spectrum", *MLP, "-o", "outputs=1", *SMALL[:6], "-k", "5", "-q")
    assert stored["largest"] == pytest.approx(direct["largest"], rel=1e-5)
    with pytest.raises(TangentError, match="Both --kernel and --model"):
        call("spectrum", "--kernel", path, *MLP)


@pytest.mark.parametrize("ridge", ["0", "1e-3", "loo", "gcv"])
def test_regress_is_kernel_regression_with_the_prior_mean(
    tmp_path: Path, digits: data.ImageData, network: torch.nn.Module, ridge: str
) -> None:
    found = facts("regress", *MLP, *SMALL, "--ridge", ridge, "--dtype", "float64", "--out", str(tmp_path), "-q")
    network = network.double()
    train, test = (split.inputs().double() for split in (digits.train, digits.test))
    kernel, cross = tangentlab.ntk(network, train, readout="pntk"), tangentlab.ntk(network, test, train, readout="pntk")
    with torch.no_grad():
        f0, f0_test = network.float()(train.float()).double(), network(test.float()).double()
    y = digits.train.targets.double()
    expected = f0_test + cross @ torch.linalg.solve(kernel + found["ridge"] * torch.eye(60), y - f0)
    np.testing.assert_allclose(np.load(tmp_path / "predictions.npz")["test"], expected, rtol=1e-4, atol=1e-5)
    right = (expected * digits.test.targets > 0).double().mean()
    assert found["test_accuracy"] == pytest.approx(float(right))
    assert (tmp_path / "path.csv").exists() == (ridge in ("loo", "gcv"))


def test_align_gives_alignment_and_energy(digits: data.ImageData, network: torch.nn.Module) -> None:
    found = facts("align", *MLP, *SMALL, "-k", "60", "-q")
    y = digits.train.targets.double()
    kernel = tangentlab.ntk(network.float(), digits.train, readout="pntk").double()
    (target,) = found["targets"]
    assert target["alignment"] == pytest.approx(float((y.T @ kernel @ y).squeeze()) / 60**2, rel=1e-4)
    assert target["energy_concentration"] == pytest.approx(1, rel=1e-6)
    assert target["norm_at_least"] == pytest.approx(1 / target["alignment"], rel=1e-6)
    assert 0 < target["share_of_largest"] <= 1


def test_nads_and_bench(tmp_path: Path) -> None:
    gelu = ("-o", "activation=gelu", "-o", "outputs=1")
    found = facts("nads", *MLP, *gelu, "--shape", "1,6,6", "-k", "4", "--out", str(tmp_path))
    assert found["alignments"] == sorted(found["alignments"], reverse=True)
    assert np.load(tmp_path / "nads.npz")["directions"].shape == (4, 1, 6, 6)
    assert (tmp_path / "nads.png").stat().st_size > 1000
    measured = facts("bench", *MLP, "--shape", "1,6,6", "--samples", "20", "--repeats", "1")
    assert measured["relative_difference"] < 1e-5
    assert measured["ratio"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("regress", *MLP, "--task", "cifr2"), "Did you mean 'cifar2'"),
        (("regress", *MLP, "--ridge", "much"), "--ridge is 'much'"),
        (("regress", *MLP, "--readout", "trace"), "no regression with readout"),
        (("train", *MLP, "--optimizer", "sdg", "--out", "runs"), "Did you mean 'sgd'"),
        (("train", *MLP, "--task", "one-vs-rest:11", "--out", "runs"), "no class 11"),
        (("align", "--model", "mpl"), "Did you mean 'mlp'"),
        (("align", *MLP, "--data", "inputs.npy"), "needs labeled samples"),
        (("spectrum",), "--model is missing"),
        (("nads", *MLP, "--shape", "8x8"), "--shape is '8x8'"),
        (("bench", *MLP, "--shape", "a"), "--shape is 'a'"),
        (("spectrum", *MLP, "--dtype", "float8"), "no dtype 'float8'"),
    ],
)
def test_wrong_arguments_are_refused_with_a_hint(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    with pytest.raises(TangentError) as error:
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert message in str(error.value)


def test_posterior_of_a_trained_network(tmp_path: Path) -> None:
    digits = ("--data", "digits", "--n-train", "60", "--n-test", "40")
    call("train", *MLP, *digits, "--epochs", "3", "--out", str(tmp_path / "run"), "-q")
    weights = ("--checkpoint", str(tmp_path / "run" / "weights.pt"))
    out = tmp_path / "posterior"
    chosen = ("--prior-precision", "5", "--readout", "pntk")
    found = facts("posterior", *MLP, *weights, *digits, *chosen, "--out", str(out), "-q")
    assert found["method"] == "exact, pNTK for every output, 60 samples x 10 outputs"
    assert 0 <= found["test_calibration_error"] <= 1
    names = {"posterior.pt", "predictions.npz", "record.json", "reliability.csv", "reliability.png"}
    assert {path.name for path in out.iterdir()} == names
    with np.load(out / "predictions.npz") as arrays:
        assert arrays["probabilities"].shape == (40, 10)
    held = facts("posterior", *MLP, *weights, *digits, "--held-out", "20", "--subset", "30", "--readout", "pntk", "-q")
    assert "30 samples x 10 outputs, a subset of 60" in held["method"]
    assert held["test_accuracy"] * 20 == pytest.approx(round(held["test_accuracy"] * 20))  # 20 of 40 are left
    with pytest.raises(TangentError, match="There are 40 test samples"):
        call("posterior", *MLP, *weights, *digits, "--held-out", "40")
    numbers = ("--noise", "0.1", "--prior-precision", "1", "--out", str(tmp_path / "real"))
    real = facts("posterior", *MLP, *SMALL, *numbers, "-q")
    assert (tmp_path / "real" / "predictions.png").read_bytes()[:4] == b"\x89PNG"
    assert real["test_squared_error"] < real["network_test_squared_error"]
    with pytest.raises(TangentError, match="nothing to choose the prior precision by"):
        call("posterior", *MLP, *weights, *digits)
    with pytest.raises(TangentError, match="--prior-precision is 'wide'"):
        call("posterior", *MLP, *weights, *digits, "--prior-precision", "wide")


def test_forecast_with_the_measured_curve(tmp_path: Path) -> None:
    digits = ("--data", "digits", "--n-train", "40", "--n-test", "20")
    found = facts(
        "forecast", *MLP, *digits, "--steps", "20", "--loss", "0.09", "--measure", "--out", str(tmp_path), "-q"
    )
    assert found["largest_stable_lr"] == pytest.approx(2 * found["lr"])
    assert found["measured_train_loss"] == pytest.approx(found["train_loss"], rel=0.5)
    names = {"forecast.csv", "forecast.png", "measured.csv", "record.json"}
    assert {path.name for path in tmp_path.iterdir()} == names
    call("forecast", *MLP, *digits, "--steps", "5", "--readout", "pntk", "--out", str(tmp_path), "-q")
    assert list(pd.read_csv(tmp_path / "learning_curve.csv")["samples"])[-1] == 40
    with pytest.raises(TangentError, match="no forecast with readout 'trace'"):
        call("forecast", *MLP, *digits, "--readout", "trace")
