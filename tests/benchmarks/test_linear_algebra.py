"""The benchmarks of linear algebra at a tiny size, on random images in place of CIFAR-10."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks import eigenpairs, regression
from benchmarks.kernels_of_data import GeneratedKernel, network
from tangentlab import ntk


@pytest.fixture(autouse=True)
def _few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    def images(folder: Path, samples: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(0)
        return torch.randn(samples, 3, 32, 32, generator=generator), torch.arange(samples) % 10

    for module in (eigenpairs, regression):
        monkeypatch.setattr(module, "images", images)


def test_eigenpairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = tmp_path / "record.json"
    eigenpairs.main(["--data-dir", ".", "--samples", "40", "--pairs", "3", "--threads", "1", "--json", str(record)])
    content = json.loads(record.read_text())
    assert content["ours"]["of_largest"] < 1e-5
    assert content["peer"]["of_own"] < 0.02
    assert content["peer"]["products"] > 3
    assert "required 4" in capsys.readouterr().out


def test_a_peer_out_of_time_is_stopped() -> None:
    result, values = eigenpairs.peer(torch.eye(50), 3, limit=-1.0)
    assert not result.finished
    assert not len(values)


def test_regression(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    arguments = ["--data-dir", ".", "--samples", "70", "--tile", "32", "--gemm", "64", "--threads", "1"]
    regression.main([*arguments, "--json", str(record)])
    content = json.loads(record.read_text())
    assert content["residual"] < 1e-7  # the kernel is in float32: its two triangles agree to that on some processors
    assert content["samples"] == 70


def test_the_generated_kernel_is_the_kernel() -> None:
    model, x = network("mlp"), torch.randn(9, 3, 32, 32)
    kernel, expected = GeneratedKernel(model, x, "1GiB"), ntk(model, x, readout=0)
    torch.testing.assert_close(kernel.read(slice(2, 5), slice(0, 9)), expected[2:5])
    torch.testing.assert_close(kernel.diagonal(), expected.diagonal())
    torch.testing.assert_close(kernel @ torch.eye(9), expected)
