"""Readouts that know the target on the command line: of named data, of files, of a user's own function."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import tangentlab
from tangentlab import TangentError, data, models, store
from tangentlab._cli._remedies import on_command_line
from tangentlab.cli import app

MLP = ("--model", "mlp", "-o", "hidden=(8,)", "-o", "outputs=10")
DIGITS = ("--data", "digits", "--n-train", "30")
OWN = """
import torch

def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))

def smooth(outputs, target):
    return torch.nn.functional.cross_entropy(outputs, target, label_smoothing=0.1)
"""


def call(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [*map(str, arguments)])


def done(*arguments: Any) -> None:
    result = call(*arguments, "--quiet")
    assert result.exit_code == 0, (result.stdout, result.exception)


def refusal(*arguments: Any) -> TangentError:
    result = call(*arguments, "--quiet")
    assert isinstance(result.exception, TangentError), result.stdout
    assert result.exit_code != 0
    return result.exception


def test_named_data_has_its_labels(tmp_path: Path) -> None:
    path = tmp_path / "k.zarr"
    done("kernel", "compute", *MLP, *DIGITS, "--readout", "margin", "--out", path)
    digits = data.load("digits", n_train=30)
    network = models.build("mlp", input_shape=digits.input_shape, hidden=(8,), outputs=10, seed=0).eval()
    expected = tangentlab.ntk(network, digits.train, readout="margin")
    assert torch.allclose(store.open(path)[:], expected, rtol=1e-4, atol=1e-4)
    done("kernel", "resume", path)
    done("spectrum", *MLP, *DIGITS, "--readout", "loss")
    done("align", *MLP, *DIGITS, "--readout", "loss", "--task", "classes")


@pytest.fixture
def own(tmp_path: Path) -> tuple[Path, torch.Tensor, np.ndarray]:
    (tmp_path / "own.py").write_text(OWN)
    x, y = torch.randn(12, 5, generator=torch.Generator().manual_seed(1)), np.arange(12, dtype=np.int32) % 3
    torch.save(x, tmp_path / "x.pt")
    np.save(tmp_path / "y.npy", y)
    return tmp_path, x, y


def test_files_and_own_functions(own: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, x, y = own
    monkeypatch.chdir(folder)
    own_model = ("--model", "own.py:network", "--data", "x.pt")
    done("kernel", "compute", *own_model, "--readout", "margin", "--targets", "y.npy", "--out", "a.zarr")
    done("kernel", "compute", *own_model, "--labels", "y.npy", "--readout", "margin", "--out", "b.zarr")
    done("kernel", "compute", *own_model, "--targets", "y.npy", "--readout", "own.py:smooth", "--out", "c.zarr")
    space: dict[str, Any] = {}
    exec(OWN, space)
    network = space["network"]()
    for name, readout in (("a", "margin"), ("b", "margin"), ("c", space["smooth"])):
        expected = tangentlab.ntk(network, x, readout=readout, targets=y)
        assert torch.allclose(store.open(f"{name}.zarr")[:], expected, rtol=1e-4, atol=1e-5)
    monkeypatch.chdir("/")
    done("kernel", "resume", folder / "c.zarr")
    tile = next(file for file in (folder / "c.zarr" / "c").rglob("*") if file.is_file())
    tile.write_bytes(b"damaged")
    done("kernel", "verify", folder / "c.zarr", "--repair")
    assert json.loads((folder / "c.zarr" / "zarr.json").read_text())["attributes"]["tangentlab"]["provenance"][
        "options"
    ]["targets"] == str(folder / "y.npy")
    np.save(folder / "y.npy", (y + 1) % 3)
    assert "targets: " in refusal("kernel", "resume", folder / "c.zarr").what


def test_refusals(own: Any) -> None:
    folder, _, y = own
    given = ("spectrum", "--model", f"{folder}/own.py:network", "--data", folder / "x.pt")
    assert "needs targets" in refusal(*given, "--readout", "margin").what
    assert "--targets" in on_command_line(refusal(*given, "--readout", "margin")).remedy
    assert "does not depend" in refusal(*given, "--targets", folder / "y.npy").why
    assert "no function" in refusal(*given, "--readout", f"{folder}/own.py:nothing", "--targets", folder / "y.npy").what
    assert "There is no" in refusal(*given, "--readout", f"{folder}/none.py:f", "--targets", folder / "y.npy").what
    assert "There is no" in refusal(*given, "--readout", "margin", "--targets", folder / "none.npy").what
    np.save(folder / "few.npy", y[:5])
    assert (
        "12 samples, and there are 5 targets"
        in refusal(*given, "--readout", "margin", "--targets", folder / "few.npy").what
    )
    np.save(folder / "large.npy", y + 5)
    assert "hold the class" in refusal(*given, "--readout", "margin", "--targets", folder / "large.npy").what
