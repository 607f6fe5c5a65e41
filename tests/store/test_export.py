"""Kernels for others: NumPy files and packed stores."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
import zarr
from zarr.storage import ZipStore

from tangentlab import TangentError, store
from tangentlab.engines import Shard
from tangentlab.store import StoredKernel, export_npy, pack
from tests.store.problems import make


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> StoredKernel:
    return make(tmp_path_factory.mktemp("store") / "kernel.zarr", readout="full")


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_npy(stored: StoredKernel, tmp_path: Path) -> None:
    path = export_npy(stored, tmp_path / "new" / "kernel.npy", progress=False)
    values = np.load(path, mmap_mode="r")
    assert values.dtype == np.float32
    assert np.array_equal(values, stored.to_tensor().numpy())
    assert [p.name for p in path.parent.iterdir()] == ["kernel.npy"]


def test_packed_and_unpacked_it_is_the_same(stored: StoredKernel, tmp_path: Path) -> None:
    path = pack(stored.path, tmp_path / "kernel.zarr.zip")
    assert [p.name for p in tmp_path.iterdir()] == ["kernel.zarr.zip"]
    packed = StoredKernel(path)
    assert packed.complete
    assert packed.manifest == stored.manifest
    assert torch.equal(packed.to_tensor(), stored.to_tensor())
    assert packed.verify().good
    assert path.stat().st_size < stored.nbytes_stored
    again = store.copy(path, tmp_path / "again.zarr")
    assert files(again.path) == files(stored.path)


def test_any_zarr_client_opens_a_packed_store(stored: StoredKernel, tmp_path: Path) -> None:
    path = pack(stored, tmp_path / "kernel.zarr.zip")
    array = zarr.open(ZipStore(path, mode="r"), mode="r")
    assert isinstance(array, zarr.Array)
    assert np.array_equal(array[:30, 30:60], stored[:30, 30:60].numpy())
    assert array.attrs["tangentlab"]["weights"] == stored.manifest.weights
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
    assert len(names) == len(set(names)) == stored.plan.count + 1


def test_rounding_is_stated(stored: StoredKernel, tmp_path: Path) -> None:
    packed = StoredKernel(pack(stored, tmp_path / "half.zip", dtype="float16"))
    assert packed.dtype == torch.float16
    assert packed.manifest.provenance["rounded_from"] == "float32"
    torch.testing.assert_close(packed.to_tensor().float(), stored.to_tensor(), rtol=1e-3, atol=1e-5)
    assert packed.path.stat().st_size < pack(stored, tmp_path / "single.zip").stat().st_size


def test_what_cannot_be_packed(stored: StoredKernel, tmp_path: Path) -> None:
    for dtype in ("float64", "bfloat16"):
        with pytest.raises(TangentError, match="cannot be packed"):
            pack(stored, tmp_path / "k.zip", dtype=dtype)
    large = make(tmp_path / "large.zarr")
    values = np.full((10, 10), 1e6, np.float32)
    zarr.open(large.path, mode="r+")[10:20, 10:20] = values
    with pytest.raises(TangentError, match="as large as 1e"):
        pack(large, tmp_path / "k.zip", dtype="float16")
    assert [p.name for p in tmp_path.iterdir()] == ["large.zarr"]


def test_an_incomplete_kernel_is_not_copied(tmp_path: Path) -> None:
    part = make(tmp_path / "part.zarr", engine=Shard(0, 2))
    for copy in (export_npy, pack):
        with pytest.raises(TangentError, match="not complete"):
            copy(part, tmp_path / "copy.zip")
    assert [p.name for p in tmp_path.iterdir()] == ["part.zarr"]


def test_a_packed_store_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "text.zip").write_text("no archive")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("readme", "hello")
    for name in ("text.zip", "other.zip"):
        with pytest.raises(TangentError, match=name):
            StoredKernel(tmp_path / name)
