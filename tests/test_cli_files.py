"""A user's own models, weights, samples and labels on the command line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from tangentlab import ntk
from tangentlab._cli._files import load_factory, load_samples, load_weights
from tangentlab._errors import TangentError
from tangentlab.cli import app
from tangentlab.store import StoredKernel

MODEL = """
import torch
from torch import nn

class Two(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.left, self.right = nn.Linear(4, width), nn.Linear(3, width)
        self.head = nn.Linear(width, 3)

    def forward(self, left, right):
        return self.head(torch.tanh(self.left(left) + self.right(right)))

def build(width=6):
    torch.manual_seed(0)
    return Two(width)

ready = build()
"""


def call(*arguments: Any) -> str:
    result = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "two_inputs.py").write_text(MODEL)
    rng = np.random.default_rng(0)
    arrays = {"left": rng.normal(size=(30, 4)), "right": rng.normal(size=(30, 3))}
    arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
    np.savez(tmp_path / "x.npz", **arrays)
    torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, tmp_path / "x.pt")
    np.save(tmp_path / "labels.npy", rng.integers(0, 3, 30))
    return tmp_path


def build(folder: Path, **options: Any) -> nn.Module:
    return load_factory(f"{folder / 'two_inputs.py'}:build", options)


@pytest.mark.parametrize("file", ["x.npz", "x.pt"])
def test_inputs_by_name(folder: Path, file: str) -> None:
    out = folder / "k.zarr"
    spec = f"{folder / 'two_inputs.py'}:build"
    call("kernel", "compute", "--model", spec, "--data", folder / file, "--out", out, "-q")
    expected = ntk(build(folder).eval(), load_samples(folder / "x.pt"), readout="pntk")
    torch.testing.assert_close(StoredKernel(out).to_tensor(), expected, rtol=1e-4, atol=1e-4)


def test_regression_from_a_store_with_labels(folder: Path) -> None:
    out = folder / "k.zarr"
    spec = f"{folder / 'two_inputs.py'}:build"
    call("kernel", "compute", "--model", spec, "--data", folder / "x.npz", "--out", out, "-q", "--dtype", "float64")
    labels = ("--labels", folder / "labels.npy", "--n-train", 20, "--ridge", 0.1)
    facts = json.loads(call("regress", "--kernel", out, *labels, "--out", folder / "fit", "-q", "--json"))
    kernel = StoredKernel(out).to_tensor()
    y = torch.nn.functional.one_hot(torch.from_numpy(np.load(folder / "labels.npy"))).double()
    with torch.no_grad():
        f0 = build(folder).eval()(**load_samples(folder / "x.pt")).double()
    weights = torch.linalg.solve(kernel[:20, :20] + 0.1 * torch.eye(20, dtype=torch.float64), (y - f0)[:20])
    expected = f0[20:] + kernel[20:, :20] @ weights
    np.testing.assert_allclose(np.load(folder / "fit" / "predictions.npz")["test"], expected, rtol=1e-5, atol=1e-5)
    assert facts["test_accuracy"] == pytest.approx(float((expected.argmax(1) == y[20:].argmax(1)).double().mean()))
    with pytest.raises(TangentError, match="Pass --labels"):
        call("regress", "--kernel", out)
    with pytest.raises(TangentError, match="do not fit the kernel"):
        call("regress", "--kernel", out, "--labels", folder / "labels.npy", "--n-train", 31)
    (folder / "two_inputs.py").write_text(MODEL.replace("manual_seed(0)", "manual_seed(1)"))
    with pytest.raises(TangentError, match="holds another kernel"):
        call("regress", "--kernel", out, *labels)


def test_regression_from_a_store_is_that_of_its_model_and_data(tmp_path: Path) -> None:
    chosen = ("--model", "mlp", "-o", "hidden=(16,)", "--data", "digits", "--n-train", 60, "--n-test", 40)
    out = tmp_path / "k.zarr"
    call("kernel", "compute", *chosen, "-o", "outputs=10", "--split", "all", "--tile", 16, "--out", out, "-q")
    ours = json.loads(call("regress", "--kernel", out, "--ridge", 0.01, "-q", "--json"))
    direct = json.loads(call("regress", *chosen, "--ridge", 0.01, "-q", "--json"))
    for name in ("train_accuracy", "test_accuracy", "network_test_accuracy"):
        assert ours[name] == direct[name], name
    assert ours["test_squared_error"] == pytest.approx(direct["test_squared_error"], rel=1e-3)
    with pytest.raises(TangentError, match="--no-prior"):
        call("regress", "--kernel", out, "--task", "cifar2")
    assert "test accuracy" in call("regress", "--kernel", out, "--task", "cifar2", "--no-prior", "--ridge", "loo")
    with pytest.raises(TangentError, match="Both --kernel and --model"):
        call("regress", "--kernel", out, "--model", "mlp")
    with pytest.raises(TangentError, match="without --kernel"):
        call("regress", *chosen, "--labels", "y.npy")


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "model."])
def test_prefixes_of_names_are_taken_off(folder: Path, prefix: str) -> None:
    source, target = build(folder), build(folder)
    with torch.no_grad():
        source.head.weight += 1
    torch.save({"state_dict": {prefix + k: v for k, v in source.state_dict().items()}}, folder / "w.pt")
    load_weights(target, folder / "w.pt")
    assert torch.equal(target.head.weight, source.head.weight)


def test_tied_weights_need_to_be_there_once(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    state = {name: torch.ones_like(value) for name, value in model.state_dict().items() if name != "1.weight"}
    torch.save(state, tmp_path / "w.pt")
    load_weights(model, tmp_path / "w.pt")
    assert bool((model[1].weight == 1).all())
    torch.save({name: value for name, value in state.items() if name != "1.bias"}, tmp_path / "w.pt")
    with pytest.raises(TangentError, match=r"missing: 1\.bias\."):
        load_weights(model, tmp_path / "w.pt")


def test_weights_that_do_not_fit_are_named_shortly(folder: Path) -> None:
    torch.save(build(folder, width=7).state_dict(), folder / "w.pt")
    with pytest.raises(
        TangentError, match=r"of another shape: left\.weight \(7, 4\) for \(6, 4\).* and \d more"
    ) as caught:
        load_weights(build(folder), folder / "w.pt")
    assert len(str(caught.value)) < 600
    torch.save({f"block{i}.weight": torch.ones(2) for i in range(50)}, folder / "w.pt")
    with pytest.raises(TangentError, match=r"not of the model: block0\.weight, .* and 47 more") as caught:
        load_weights(build(folder), folder / "w.pt")
    torch.save(build(folder), folder / "whole.pt")
    with pytest.raises(TangentError, match="Python objects beside tensors") as caught:
        load_weights(build(folder), folder / "whole.pt")
    assert "\x1b" not in str(caught.value)


def test_models_of_a_file(folder: Path) -> None:
    file = folder / "two_inputs.py"
    assert isinstance(load_factory(f"{file}:ready", {}), nn.Module)
    assert build(folder, width=9).head.in_features == 9
    (folder / "broken.py").write_text("import torch\ndef build(:\n")
    cases = {
        f"{file}:missing": "has no missing",
        f"{folder / 'broken.py'}:build": r"SyntaxError: .* in line 2: def build\(:",
        f"{file}:MODEL": "has no MODEL",
        f"{file}:torch": "fails: TypeError",
    }
    for spec, message in cases.items():
        with pytest.raises(TangentError, match=message):
            load_factory(spec, {})


def test_files_of_samples_are_refused_where_they_would_be_misread(folder: Path) -> None:
    spec = f"{folder / 'two_inputs.py'}:build"
    common = ("kernel", "compute", "--model", spec, "--out", folder / "k.zarr", "-q", "--data")
    for option in (("--n-train", 10), ("--n-test", 3), ("--split", "test")):
        with pytest.raises(TangentError, match="has no splits"):
            call(*common, folder / "x.npz", *option)
    torch.save((torch.ones(3, 4), torch.ones(3)), folder / "pair.pt")
    with pytest.raises(TangentError, match="holds tuple"):
        call(*common, folder / "pair.pt")
    with pytest.raises(TangentError, match="Pass --labels"):
        call("regress", "--model", spec, "--data", folder / "x.npz")


def test_a_transformer_with_a_folder_of_weights(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[dev]'")
    pytest.importorskip("safetensors", reason="safetensors is not installed: pip install '.[dev]'")
    sizes = "vocab_size=50, n_positions=8, n_embd=16, n_layer=1, n_head=2, num_labels=3, pad_token_id=0"
    (tmp_path / "gpt.py").write_text(
        "from transformers import GPT2Config, GPT2ForSequenceClassification\n"
        f"def build():\n    return GPT2ForSequenceClassification(GPT2Config({sizes}))\n"
    )
    torch.manual_seed(1)
    model = load_factory(f"{tmp_path / 'gpt.py'}:build", {}).eval()
    assert isinstance(model, transformers.PreTrainedModel)
    model.save_pretrained(tmp_path / "weights")
    x = {"input_ids": torch.randint(1, 50, (12, 8)), "attention_mask": torch.ones(12, 8, dtype=torch.long)}
    torch.save(x, tmp_path / "tokens.pt")
    chosen = ("--model", f"{tmp_path / 'gpt.py'}:build", "--checkpoint", tmp_path / "weights")
    call("kernel", "compute", *chosen, "--data", tmp_path / "tokens.pt", "--out", tmp_path / "k.zarr", "-q")
    expected = ntk(model, x, readout="pntk", output=lambda result: result.logits)
    torch.testing.assert_close(StoredKernel(tmp_path / "k.zarr").to_tensor(), expected, rtol=1e-4, atol=1e-4)
