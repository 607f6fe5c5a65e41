"""Stores of readouts that know the target: the targets and the function belong to the kernel's identity."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

import tangentlab
from tangentlab import TangentError
from tangentlab.engines import Shard
from tangentlab.store import append, compute, estimate, repair
from tests.store.problems import images, network

LABELS = torch.arange(25) * 7 % 3


def smooth(outputs: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(outputs, target, label_smoothing=0.1)


def smoother(outputs: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy(outputs, target, label_smoothing=0.2)


def two(outputs: Tensor, target: Tensor) -> Tensor:
    return torch.stack([outputs[target], outputs.square().sum()])


def read(path: Path) -> dict[str, Any]:
    return json.loads((path / "zarr.json").read_text())["attributes"]["tangentlab"]


@pytest.mark.parametrize("readout", ["loss", "margin", "label", smooth, two])
def test_a_stored_kernel_is_that_in_memory(readout: Any, tmp_path: Path) -> None:
    model, x = network(dtype=torch.float64), images(25, dtype=torch.float64)
    kernel = compute(model, x, tmp_path / "k.zarr", readout=readout, targets=LABELS, tile=10)
    expected = tangentlab.ntk(model, x, readout=readout, targets=LABELS)
    size = len(kernel) // 25
    assert torch.allclose(kernel[:], expected.reshape(25 * size, 25 * size), rtol=1e-10)
    manifest = read(tmp_path / "k.zarr")
    name = readout if isinstance(readout, str) else f"tests.store.test_readouts.{readout.__name__}"
    assert manifest["readout"] == name
    assert len(manifest["samples"][0]["targets"]) == 64
    assert ("readout" in manifest["identity"]["code"]) == callable(readout)


def test_targets_and_functions_belong_to_a_store(tmp_path: Path) -> None:
    model, x, path = network(), images(25), tmp_path / "k.zarr"
    compute(model, x, path, readout=smooth, targets=LABELS, tile=10, engine=Shard(0, 2))
    other = LABELS.clone()
    other[7] = (other[7] + 1) % 3  # none of the samples that the identity is computed from
    for changed in (
        {"targets": other},
        {"readout": smoother},
        {"readout": "loss"},
        {"readout": "pntk", "targets": None},
    ):
        options: dict[str, Any] = {"readout": smooth, "targets": LABELS} | changed
        for call in (compute, repair):
            with pytest.raises(TangentError, match="holds another kernel"):
                call(model, x, path, **options)
    with pytest.raises(TangentError, match="targets: "):
        compute(model, x, path, readout=smooth, targets=other)
    assert compute(model, x, path, readout=smooth, targets=LABELS.int()).complete, "the same classes in another type"


def test_an_edited_function_is_refused(tmp_path: Path) -> None:
    """Functions of one name that agree on the samples of the identity: their code tells them apart."""

    def made(threshold: float) -> Any:
        def function(outputs: Tensor, target: Tensor) -> Tensor:
            return outputs[target] if outputs.abs().max() < threshold else outputs.sum()

        return function

    model, x, path = network(), images(25), tmp_path / "k.zarr"
    compute(model, x, path, readout=made(1e6), targets=LABELS)
    with pytest.raises(TangentError, match="code of readout"):
        compute(model, x, path, readout=made(1e7), targets=LABELS)
    assert compute(model, x, path, readout=made(1e6), targets=LABELS).complete


def test_append_data_sets_and_loaders(tmp_path: Path) -> None:
    model, x, path = network(), images(25), tmp_path / "k.zarr"
    compute(model, TensorDataset(x[:12], LABELS[:12]), path, readout="margin", tile=5)
    kernel = append(model, x, path, readout="margin", targets=LABELS)
    assert torch.allclose(kernel[:], tangentlab.ntk(model, x, readout="margin", targets=LABELS), rtol=1e-4, atol=1e-5)
    wrong = LABELS.clone()
    wrong[3] = (wrong[3] + 1) % 3
    with pytest.raises(TangentError, match="targets: "):
        append(model, images(30), path, readout="margin", targets=torch.cat([wrong, LABELS[:5]]))
    loader = DataLoader(TensorDataset(x, LABELS), batch_size=4)
    again = compute(model, loader, tmp_path / "again.zarr", readout="margin", tile=10)
    assert torch.allclose(again[:], kernel[:], rtol=1e-4, atol=1e-5)


def test_threads_and_estimates(tmp_path: Path) -> None:
    model, x = network(), images(25)
    options: dict[str, Any] = {"readout": "margin", "targets": LABELS}
    with ThreadPoolExecutor(2) as pool:
        kernel = compute(model, x, tmp_path / "k.zarr", tile=5, engine=pool, **options)
    assert kernel.complete
    assert estimate(model, x, tmp_path / "other.zarr", samples=100, **options) is not None
    with pytest.raises(TangentError, match="needs targets"):
        compute(model, x, tmp_path / "none.zarr", readout="margin")
    with pytest.raises(TangentError, match="hold the class"):
        compute(model, x, tmp_path / "none.zarr", readout="margin", targets=LABELS + 3)
    assert not (tmp_path / "none.zarr").exists()
