"""A stored kernel is the kernel, and is read like a matrix."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from tangentlab import TangentError, reference
from tangentlab.kernels import ntk
from tangentlab.store import StoredKernel, compute
from tangentlab.store import open as open_store
from tests.store.problems import images, make, network

READOUTS = ["pntk", 1, "trace", "full", torch.tensor([[1.0, 0.5], [0.0, 2.0], [-1.0, 1.0]], dtype=torch.float64)]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> StoredKernel:
    return make(tmp_path_factory.mktemp("store") / "kernel.zarr")


@pytest.fixture(scope="module")
def dense(stored: StoredKernel) -> torch.Tensor:
    return stored.to_tensor()


@pytest.mark.parametrize("readout", READOUTS, ids=["pntk", "int", "trace", "full", "matrix"])
@pytest.mark.parametrize("tile", [3, 13, 100])
def test_it_is_the_kernel(readout: Any, tile: int, tmp_path: Path) -> None:
    model, x = network(dtype=torch.float64), images(13, dtype=torch.float64)
    kernel = compute(model, x, tmp_path / "k.zarr", readout=readout, tile=tile)
    expected = reference.ntk(model, x, readout=readout).reshape(kernel.shape)
    torch.testing.assert_close(kernel.to_tensor(), expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(kernel.diagonal(), expected.diagonal(), rtol=1e-10, atol=1e-10)
    assert torch.equal(kernel.to_tensor(), kernel.to_tensor().T)
    assert kernel.complete
    assert kernel.progress == 1
    assert kernel.plan.readouts == {"full": 3}.get(str(readout), 2 if isinstance(readout, torch.Tensor) else 1)


index = st.one_of(
    st.integers(-53, 52),
    st.slices(53),
    st.lists(st.integers(-53, 52), max_size=6),
    st.lists(st.booleans(), min_size=53, max_size=53).map(np.array),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=index, columns=index)
def test_indices(rows: Any, columns: Any, stored: StoredKernel, dense: torch.Tensor) -> None:
    matrix = dense.numpy()
    single = [isinstance(part, int) for part in (rows, columns)]
    if any(single) or isinstance(rows, slice) or isinstance(columns, slice):
        expected = matrix[np.asarray(rows, int) if isinstance(rows, list) else rows]
        if single[0]:
            expected = expected[np.asarray(columns, int) if isinstance(columns, list) else columns]
        else:
            expected = expected[:, np.asarray(columns, int) if isinstance(columns, list) else columns]
    else:
        lists = [np.asarray(part) if len(part) else np.zeros(0, int) for part in (rows, columns)]
        expected = matrix[np.ix_(*lists)]
    assert np.array_equal(stored[rows, columns].numpy(), expected)


def test_reading_whole_rows_and_blocks(stored: StoredKernel, dense: torch.Tensor) -> None:
    assert torch.equal(stored[7], dense[7])
    assert torch.equal(stored[...], dense)
    assert torch.equal(stored.read(slice(3, 41), slice(20, None)), dense[3:41, 20:])
    assert np.array_equal(np.asarray(stored), dense.numpy())
    assert stored.tile == 10
    assert len(stored) == 53


@pytest.mark.parametrize("bad", [1.5, "rows", None, np.zeros((2, 2), int), np.ones(5, bool)])
def test_bad_indices(bad: Any, stored: StoredKernel) -> None:
    with pytest.raises(TangentError, match="not an index"):
        stored[bad]
    with pytest.raises(TangentError, match="two slices"):
        stored.read(bad)


def test_index_out_of_range(stored: StoredKernel) -> None:
    with pytest.raises(IndexError):
        stored[53]
    with pytest.raises(TangentError, match="two axes"):
        stored[1, 2, 3]


@pytest.mark.parametrize("shape", [(53,), (53, 1), (53, 4)])
def test_products(shape: tuple[int, ...], stored: StoredKernel, dense: torch.Tensor) -> None:
    v = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(stored @ v, dense @ v)
    torch.testing.assert_close(stored @ v.double().numpy(), dense @ v)


@pytest.mark.parametrize("wrong", [torch.zeros(52), torch.zeros(53, 1, 1), 3.0])
def test_wrong_products(wrong: Any, stored: StoredKernel) -> None:
    with pytest.raises(TangentError, match="multiplied"):
        stored @ wrong


def test_dask(stored: StoredKernel, dense: torch.Tensor) -> None:
    pytest.importorskip("dask.array")
    array = stored.to_dask()
    assert array.shape == stored.shape
    assert array.chunks[0] == (10, 10, 10, 10, 10, 3)
    assert np.array_equal(array[5:33, ::2].compute(scheduler="synchronous"), dense[5:33, ::2].numpy())


def test_any_zarr_client_reads_it(stored: StoredKernel, dense: torch.Tensor) -> None:
    array = zarr.open(stored.path, mode="r")
    assert isinstance(array, zarr.Array)
    assert array.chunks == (10, 10)
    values = array[:]
    upper = np.triu(np.ones(values.shape, bool))
    assert np.array_equal(values[upper], dense.numpy()[upper])
    assert np.isnan(values[10:, :10]).all()
    metadata = json.loads((stored.path / "zarr.json").read_text())
    assert [codec["name"] for codec in metadata["codecs"]] == ["bytes", "crc32c"]
    assert metadata["attributes"]["tangentlab"]["samples"][0]["stop"] == 53
    names = {path.name for path in stored.path.iterdir()}
    assert names == {"zarr.json", "c"}  # nothing is left over


def test_opened_again_and_pickled(stored: StoredKernel, dense: torch.Tensor) -> None:
    for kernel in (open_store(stored.path), open_store(str(stored.path)), pickle.loads(pickle.dumps(stored))):
        assert torch.equal(kernel.to_tensor(), dense)
        assert kernel.manifest == stored.manifest
        assert "complete" in repr(kernel)


def test_every_kind_of_samples_gives_one_kernel(tmp_path: Path, dense: torch.Tensor) -> None:
    dataset = TensorDataset(images(), torch.zeros(53))
    for number, x in enumerate((images(), dataset, DataLoader(dataset, batch_size=7, shuffle=True))):
        torch.manual_seed(0)
        kernel = make(tmp_path / str(number))
        kernel = compute(network(), x, tmp_path / str(number), tile=10) if number < 2 else kernel
        assert torch.equal(kernel.to_tensor(), dense)
    shuffled = compute(network(), x, tmp_path / "shuffled", tile=10)
    torch.testing.assert_close(shuffled.diagonal().sort().values, dense.diagonal().sort().values)


@pytest.mark.parametrize("budget", ["2MiB", "4MiB", "1GiB"])
def test_factors_that_do_not_fit(budget: str, tmp_path: Path) -> None:
    """In two panels at a time, in some, and all at once: the same bits."""
    x = images(400)
    kernel = compute(network(), x, tmp_path / budget, tile=40, batch_size=20, memory_budget=budget)
    expected = ntk(network(), x, readout="pntk")
    torch.testing.assert_close(kernel.to_tensor(), expected, rtol=1e-4, atol=1e-3)


def test_a_budget_that_is_too_small(tmp_path: Path) -> None:
    with pytest.raises(TangentError, match="too small for tiles of 400"):
        compute(network(), images(800), tmp_path / "k", tile=400, memory_budget="2MiB")
    assert not list(tmp_path.iterdir())


def test_a_small_budget_makes_small_tiles(tmp_path: Path) -> None:
    kernel = compute(network(), images(300), tmp_path / "k", memory_budget="3MiB")
    assert 1 < kernel.plan.tile < 300
    assert kernel.complete


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"readout": "per_class"}, "per_class"),
        ({"dtype": torch.bfloat16}, "bfloat16"),
        ({"tile": 0}, "tile is 0"),
        ({"tile": 2.5}, "tile is 2.5"),
        ({"engine": "dask"}, "engine is of type str"),
        ({"readout": 3}, "does not exist"),
    ],
)
def test_refusals(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(TangentError, match=message):
        make(tmp_path / "k.zarr", **options)
    assert not list(tmp_path.iterdir())
