"""The file by which workers get model and data: what comes out is what went in."""

import builtins
import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from tangentlab import TangentError
from tangentlab.store._job import read_job, write_job
from tests.store.problems import images, network

MANY = 300_000
"""Numbers that are large enough for a tensor to be written as it is."""


@pytest.fixture(params=["cloudpickle", "pickle"])
def pickler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "cloudpickle":
        pytest.importorskip("cloudpickle")
    else:
        plain = importlib.import_module

        def absent(name: str, package: str | None = None) -> Any:
            if name == "cloudpickle":
                raise ImportError(name)
            return plain(name, package)

        monkeypatch.setattr("importlib.import_module", absent)
    return str(request.param)


def passed(path: Path, content: Any) -> Any:
    write_job(path, content)
    result = read_job(path)
    path.unlink()
    return result


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.complex64, torch.int64, torch.bool]
)
def test_tensors_of_every_kind(dtype: torch.dtype, tmp_path: Path, pickler: str) -> None:
    large = (torch.randn(4, MANY, generator=torch.Generator().manual_seed(0)) * 3).to(dtype)
    for tensor in (large, large[:, ::2], large.T, large[1:, 5:], large[:, :3].contiguous(), large[0, 0], large[:0]):
        found = passed(tmp_path / "job", tensor)
        assert found.dtype == dtype
        assert torch.equal(found, tensor)
        found.zero_()  # it is the worker's own


def test_what_is_inside_other_things(tmp_path: Path, pickler: str) -> None:
    x, weights = images(5000), torch.nn.Parameter(torch.ones(MANY))
    content = {"data": TensorDataset(x, x), "array": np.arange(MANY), "weights": weights, "model": network()}
    found = passed(tmp_path / "job", content)
    one, two = found["data"].tensors
    assert torch.equal(one, x)
    assert one is two  # as before, once in memory
    assert np.array_equal(found["array"], content["array"])
    assert isinstance(found["weights"], torch.nn.Parameter)
    assert found["weights"].requires_grad
    assert torch.equal(found["model"](x[:3]), content["model"](x[:3]))


def test_large_tensors_are_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pickled part stays small, however large the data."""
    x, pickled = torch.ones(50 * MANY), []
    plain = importlib.import_module("pickle").dump
    monkeypatch.setattr(
        "tangentlab.store._job.pickle.dump", lambda value, file: pickled.append(value) or plain(value, file)
    )
    write_job(tmp_path / "job", x)
    ((body, sizes),) = pickled
    assert sizes == [x.nbytes]
    assert len(body) < 1000


def test_refusals(tmp_path: Path, pickler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TangentError, match="cannot be sent"):
        write_job(tmp_path / "job", (i for i in range(3)))
    assert not list(tmp_path.iterdir())
    with pytest.raises(TangentError, match="does not exist"):
        read_job(tmp_path / "job")
    write_job(tmp_path / "job", TensorDataset(torch.ones(3)))
    plain = builtins.__import__

    def unknown(name: str, *rest: Any) -> Any:
        if name.startswith("torch.utils.data"):
            raise ImportError(f"No module named {name!r}")
        return plain(name, *rest)

    monkeypatch.setattr("builtins.__import__", unknown)
    monkeypatch.delitem(sys.modules, "torch.utils.data.dataset")
    with pytest.raises(TangentError, match="worker cannot load"):
        read_job(tmp_path / "job")
