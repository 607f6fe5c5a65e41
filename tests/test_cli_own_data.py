"""A user's own samples, labels and splits in every command, and factories that draw their weights."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import tangentlab
from tangentlab._errors import TangentError
from tangentlab.cli import app
from tangentlab.store import StoredKernel

FACTORY = """
import torch
from torch import nn

def build(width=5):
    return nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 3))

class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(4, 3), nn.Linear(2, 3)

    def forward(self, left, right):
        return torch.tanh(self.left(left)) + self.right(right)

def two():
    return Two()

def restless():
    import os
    model = build()
    with torch.no_grad():
        model[0].weight += 0.1 * torch.tensor([float(b) for b in os.urandom(4)]) / 255
    return model
"""
N, TEST = 24, 10


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [*map(str, arguments)])


def call(*arguments: Any) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def facts(*arguments: Any) -> Any:
    return json.loads(call(*arguments, "-q", "--json"))


def refusal(*arguments: Any) -> str:
    error = run(*arguments).exception
    assert isinstance(error, TangentError), error
    return str(error)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(FACTORY)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N + TEST, 4)).astype(np.float32)
    y = np.argmax(x[:, :3], 1)
    np.save("x.npy", x), np.save("y.npy", y), np.save("real.npy", x[:, :2].astype(np.float64))
    np.save("train.npy", x[:N]), np.save("test.npy", x[N:]), np.save("ytrain.npy", y[:N]), np.save("ytest.npy", y[N:])
    np.savez("two.npz", left=x, right=x[:, :2])
    np.save("double.npy", x.astype(np.float64))
    return tmp_path


ONE = ("--model", "mine.py:build", "--data", "x.npy", "--labels", "y.npy", "--n-train", N)
APART = (
    *("--model", "mine.py:build", "--data", "train.npy", "--labels", "ytrain.npy"),
    *("--test-data", "test.npy", "--test-labels", "ytest.npy"),
)


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).eval()


def one_hot() -> torch.Tensor:
    return torch.nn.functional.one_hot(torch.from_numpy(np.load("y.npy"))).double()


@pytest.mark.parametrize("files", [ONE, APART], ids=["one file", "two files"])
def test_align(folder: Path, files: tuple[Any, ...]) -> None:
    found = facts("align", *files, "-k", 5, "--dtype", "float64")
    x, y = torch.from_numpy(np.load("x.npy"))[:N].double(), one_hot()[:N]
    kernel = tangentlab.ntk(network().double(), x, readout="pntk")
    expected = torch.diagonal(y.T @ kernel @ y) / N**2
    assert [row["alignment"] for row in found["targets"]] == pytest.approx(expected.tolist(), rel=1e-9)


@pytest.mark.parametrize("readout", ["1", "trace"])
def test_align_has_readouts(folder: Path, readout: str) -> None:
    found = facts("align", *ONE, "--readout", readout, "--dtype", "float64")
    x, y = torch.from_numpy(np.load("x.npy"))[:N].double(), one_hot()[:N]
    kernel = tangentlab.ntk(network().double(), x, readout=int(readout) if readout.isdecimal() else readout)
    assert [row["alignment"] for row in found["targets"]] == pytest.approx(
        (torch.diagonal(y.T @ kernel @ y) / N**2).tolist(), rel=1e-9
    )
    assert "trace" in refusal("align", *ONE, "--readout", "full")


def test_align_of_a_store(folder: Path) -> None:
    call("kernel", "compute", "--model", "mine.py:build", "--data", "x.npy", "--dtype", "float64", "--out", "k", "-q")
    stored = facts("align", "--kernel", "k", "--labels", "y.npy", "--n-train", N)
    direct = facts("align", *ONE, "--dtype", "float64")
    assert stored["targets"][1]["alignment"] == pytest.approx(direct["targets"][1]["alignment"], rel=1e-9)
    assert stored["samples"] == N
    assert "Both --kernel and --model" in refusal("align", "--kernel", "k", *ONE)
    assert "--labels" in refusal("align", "--kernel", "k")
    call("kernel", "compute", *APART, "--split", "all", "--out", "both", "-q", "--readout", "full")
    assert "full" in refusal("align", "--kernel", "both")


@pytest.mark.parametrize("files", [ONE, APART], ids=["one file", "two files"])
def test_regress(folder: Path, files: tuple[Any, ...]) -> None:
    found = facts("regress", *files, "--ridge", 0.1, "--dtype", "float64", "--out", "fit")
    x, y, model = torch.from_numpy(np.load("x.npy")), one_hot(), network()
    with torch.no_grad():
        f0 = model(x).double()
    kernel = tangentlab.ntk(model.double(), x.double(), readout="pntk")
    weights = torch.linalg.solve(kernel[:N, :N] + 0.1 * torch.eye(N, dtype=torch.float64), (y - f0)[:N])
    expected = f0[N:] + kernel[N:, :N] @ weights
    np.testing.assert_allclose(np.load("fit/predictions.npz")["test"], expected, rtol=1e-5, atol=1e-6)
    assert found["test_accuracy"] == pytest.approx(float((expected.argmax(1) == y[N:].argmax(1)).double().mean()))


def test_a_store_remembers_labels_and_splits(folder: Path) -> None:
    call("kernel", "compute", *APART, "--split", "all", "--dtype", "float64", "--out", "k", "-q")
    stored = facts("regress", "--kernel", "k", "--ridge", 0.1)
    direct = facts("regress", *APART, "--ridge", 0.1, "--dtype", "float64")
    assert stored["test_squared_error"] == pytest.approx(direct["test_squared_error"], rel=1e-6)
    assert StoredKernel("k").shape == (N + TEST, N + TEST)
    call("kernel", "compute", *APART, "--split", "test", "--out", "t", "-q")
    assert StoredKernel("t").shape == (TEST, TEST)
    unlabeled = ("--model", "mine.py:build", "--data", "train.npy", "--test-data", "test.npy", "--split", "all")
    assert facts("spectrum", *unlabeled, "--n-train", 7, "--n-test", 5)["size"] == 12
    call("kernel", "compute", *unlabeled, "--n-train", 7, "--dtype", "float64", "--out", "u", "-q")
    assert "--labels" in refusal("regress", "--kernel", "u")
    y = np.load("y.npy")
    np.save("some.npy", np.concatenate([y[:7], y[N:]]))
    part = facts("regress", "--kernel", "u", "--labels", "some.npy", "--n-train", 7, "--ridge", 0.1)
    apart = facts("regress", *APART, "--n-train", 7, "--ridge", 0.1, "--dtype", "float64")
    assert part["test_squared_error"] == pytest.approx(apart["test_squared_error"], rel=1e-6)


@pytest.mark.parametrize("files", [ONE, APART], ids=["one file", "two files"])
def test_train_and_linearize(folder: Path, files: tuple[Any, ...]) -> None:
    found = facts("train", *files, "--epochs", 2, "--batch-size", 8, "--out", "run")
    assert 0 <= found["test_accuracy"] <= 1
    weights = torch.load("run/weights.pt", weights_only=True)
    start = torch.load("run/start.pt", weights_only=True)
    assert torch.equal(start["0.weight"], network()[0].weight)
    assert not torch.equal(weights["0.weight"], start["0.weight"])
    measured = facts("linearize", *files, "--checkpoint", "run/weights.pt")
    moved = sum(float((weights[name] - start[name]).double().square().sum()) for name in weights) ** 0.5
    assert measured["distance"] == pytest.approx(moved, rel=1e-4)
    assert "start.pt" in measured["base"]


def test_train_on_one_file_without_test_samples(folder: Path) -> None:
    found = facts("train", *ONE[:6], "--epochs", 1, "--out", "run")
    assert "test_accuracy" not in found
    assert "train_accuracy" in facts("regress", *ONE[:6], "--ridge", 1)
    assert "--test-data" in refusal("linearize", *ONE[:6], "--checkpoint", "run/weights.pt")


def test_compare(folder: Path) -> None:
    found = facts("compare", *ONE, "--epochs", 1, "--batch-size", 8)
    assert len(found) == 2
    assert all(0 <= row["test_accuracy"] <= 1 for row in found.values())


def test_inputs_by_name_and_real_targets_and_doubles(folder: Path) -> None:
    two = ("--model", "mine.py:two", "--data", "two.npz", "--labels", "y.npy", "--n-train", N)
    assert "test_accuracy" in facts("train", *two, "--epochs", 1, "--out", "run")
    assert len(facts("compare", *two, "--epochs", 1)) == 2
    assert facts("linearize", *two, "--checkpoint", "run/weights.pt")["distance"] > 0
    assert "test_accuracy" in facts("regress", *two, "--ridge", 1)
    assert len(facts("align", *two)["targets"]) == 3
    real = ("--model", "mlp", "-o", "hidden=(6,)", "-o", "input_shape=(4,1,1)", "-o", "outputs=2")
    x = np.load("x.npy").reshape(-1, 4, 1, 1)
    np.save("images.npy", x)
    fitted = facts("regress", *real, "--data", "images.npy", "--labels", "real.npy", "--n-train", N, "--ridge", 1e-3)
    assert fitted["test_squared_error"] < 1
    assert len(facts("align", *real, "--data", "images.npy", "--labels", "real.npy")["targets"]) == 2
    double = ("--model", "mine.py:build", "--data", "double.npy", "--labels", "y.npy", "--n-train", N)
    for command in (("align",), ("regress", "--ridge", 1), ("train", "--epochs", 1, "--out", "other")):
        facts(*command, *double)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("align", "--model", "mine.py:build", "--data", "x.npy"), "Pass --labels"),
        (("train", "--model", "mine.py:build", "--data", "x.npy", "--out", "run"), "Pass --labels"),
        (("compare", "--model", "mine.py:build", "--data", "x.npy"), "Pass --labels"),
        (("align", *ONE[:4], "--labels", "ytrain.npy"), "24 labels"),
        (("align", *ONE[:6], "--n-train", 99), "34 samples"),
        (("align", *ONE[:6], "--n-train", 0), "--n-train"),
        (("align", *ONE[:6], "--n-train", 30, "--n-test", 5), "34 samples"),
        (("align", *APART[:6], "--test-data", "test.npy"), "--test-labels"),
        (("align", *APART[:6], "--test-labels", "ytest.npy"), "--test-data"),
        (("align", *APART[:6], "--test-data", "two.npz", "--test-labels", "y.npy"), "two.npz"),
        (
            ("align", "--model", "mine.py:build", "--data", "x.npy", "--labels", "real.npy", "--task", "one-hot"),
            "class",
        ),
        (("align", "--model", "mlp", "--data", "digits", "--labels", "y.npy"), "--labels"),
        (("align", "--model", "mlp", "--data", "digits", "--test-data", "x.npy"), "--test-data"),
        (("train", *ONE[:6], "-o", "width=x", "--out", "run"), "fails"),
        (("train", "--model", "mine.py:two", *ONE[2:], "--out", "run"), "The model fails"),
        (("kernel", "compute", *ONE, "--out", "run"), "has no splits"),
        (
            ("kernel", "compute", *APART[:6], "--test-data", "test.npy", "--test-labels", "y.npy", "--out", "k"),
            "34 labels",
        ),
        (("spectrum", *APART[:4], "--test-data", "two.npz"), "two.npz"),
        (("spectrum", *APART[:4], "--test-data", "none.npy"), "none.npy"),
        (("train", *ONE[:4], "--labels", "real.npy", "--out", "run"), "do not fit outputs"),
        (("train", *ONE, "--device", "gpu9", "--out", "run"), "--device is 'gpu9'"),
        (("spectrum", *ONE[:4], "--device", "gpu9"), "--device is 'gpu9'"),
        (("kernel", "compute", *ONE[:4], "--device", "gpu9", "--out", "k"), "--device is 'gpu9'"),
        (("bench", *ONE[:2], "--device", "gpu9"), "--device is 'gpu9'"),
        (("nads", *ONE[:2], "--shape", "1,6,6"), "The model fails"),
    ],
)
def test_files_that_do_not_fit_are_refused(folder: Path, arguments: tuple[Any, ...], message: str) -> None:
    before = sorted(path.name for path in folder.iterdir() if path.name != "__pycache__")
    assert message in refusal(*arguments)
    assert sorted(path.name for path in folder.iterdir() if path.name != "__pycache__") == before


# Factories that draw their weights


def test_a_factory_draws_the_same_weights_at_every_call(folder: Path) -> None:
    command = ("spectrum", "--model", "mine.py:build", "--data", "x.npy", "--dtype", "float64")
    torch.manual_seed(5)
    first = facts(*command)
    state = torch.get_rng_state()
    assert facts(*command)["largest"] == first["largest"]
    assert torch.equal(torch.get_rng_state(), state), "the caller's generator is not touched"
    assert facts(*command, "--seed", 1)["largest"] != first["largest"]
    x = torch.from_numpy(np.load("x.npy")).double()
    kernel = tangentlab.ntk(network(0).double(), x, readout="pntk")
    assert first["largest"] == pytest.approx(float(torch.linalg.eigvalsh(kernel)[-1]), rel=1e-9)
    said = run(*command)
    assert "seed 0" in said.stderr
    assert "seed" not in run(*command, "-q").stderr


@pytest.mark.parametrize("factory", ["build", "restless"])
def test_an_interrupted_store_of_a_factory_is_resumed(folder: Path, factory: str) -> None:
    command = ("kernel", "compute", "--model", f"mine.py:{factory}", "--data", "x.npy", "--out", "k", "--tile", 9, "-q")
    call(*command, "--shard", "0/3")
    assert 0 < StoredKernel("k").progress < 1
    call(*command, "--shard", "1/3")  # the same command in another process
    call("kernel", "resume", "k", "-q")
    weights = torch.load("k/weights.pt", weights_only=True)
    model = network()
    model.load_state_dict(weights)
    expected = tangentlab.ntk(model, torch.from_numpy(np.load("x.npy")), readout="pntk")
    torch.testing.assert_close(StoredKernel("k").to_tensor(), expected, rtol=1e-4, atol=1e-5)
    assert facts("regress", "--kernel", "k", "--labels", "y.npy", "--ridge", 1)["train_accuracy"] >= 0
    chunk = Path("k/c/0/1")
    chunk.write_bytes(b"\0" + chunk.read_bytes()[1:])
    call("kernel", "verify", "k", "--repair", "-q")
    torch.testing.assert_close(StoredKernel("k").to_tensor(), expected, rtol=1e-4, atol=1e-5)


def test_a_factory_that_was_edited_is_refused_and_damaged_weights_too(folder: Path) -> None:
    command = ("kernel", "compute", "--model", "mine.py:build", "--data", "x.npy", "--out", "k", "--tile", 9, "-q")
    call(*command, "--shard", "0/3")
    assert "holds another kernel" in refusal(*command, "--seed", 3)
    weights = torch.load("k/weights.pt", weights_only=True)
    torch.save({**weights, "0.bias": weights["0.bias"] + 1}, "k/weights.pt")
    assert "weights.pt" in refusal("kernel", "resume", "k", "-q")
    Path("k/weights.pt").write_bytes(b"nothing")
    assert "weights.pt" in refusal("kernel", "resume", "k", "-q")
    Path("k/weights.pt").unlink()  # a store of an earlier version
    call("kernel", "resume", "k", "-q")
    (folder / "mine.py").write_text(FACTORY.replace("nn.Linear(4, width)", "nn.Linear(4, width, bias=False)"))
    assert "holds another kernel" in refusal("kernel", "resume", "k", "-q")


def test_weights_of_a_checkpoint_are_not_kept_twice(folder: Path) -> None:
    torch.save(network(4).state_dict(), "w.pt")
    call("kernel", "compute", "--model", "mine.py:build", "--checkpoint", "w.pt", "--data", "x.npy", "--out", "k", "-q")
    assert not Path("k/weights.pt").exists()


def test_linearize_does_not_compare_with_a_random_start_unasked(folder: Path) -> None:
    torch.save(network(7).state_dict(), "trained.pt")
    said = refusal("linearize", *ONE, "--checkpoint", "trained.pt")
    assert "--base" in said
    start = facts("linearize", *ONE, "--checkpoint", "trained.pt", "--base", "start", "--seed", 3)
    torch.save(network(3).state_dict(), "base.pt")
    given = facts("linearize", *ONE, "--checkpoint", "trained.pt", "--base", "base.pt")
    assert start["distance"] == pytest.approx(given["distance"], rel=1e-6)
    assert "seed 3" in start["base"]
    assert "base.pt" in given["base"]
