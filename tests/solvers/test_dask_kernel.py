"""Linear algebra in a Dask cluster: equal to that of this process, and refused clearly."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tangentlab import TangentError, linalg, solvers, store
from tangentlab.engines import Dask, InProcess
from tangentlab.solvers import _block_tasks, _dask_kernel
from tangentlab.store import StoredKernel
from tests.store import object_service
from tests.store.problems import images, network

pytest.importorskip("distributed")
SAMPLES, TILE = 230, 30


@pytest.fixture(scope="module")
def cluster() -> Iterator[Dask]:
    with Dask(2) as engine:
        yield engine


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of two tiles, the last one of less than one tile, and nothing brought here."""
    monkeypatch.setattr(_dask_kernel, "_LEAST", 2 * TILE)
    monkeypatch.setattr(_dask_kernel, "_WHOLE", 0)
    monkeypatch.setattr("tangentlab.linalg._eigen.SMALL", 0)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> StoredKernel:
    double = torch.float64
    path = tmp_path_factory.mktemp("stored") / "kernel.zarr"
    return store.compute(network(1, dtype=double), images(SAMPLES, dtype=double), path, tile=TILE, progress=False)


@pytest.fixture(scope="module")
def dense(stored: StoredKernel) -> torch.Tensor:
    return stored.to_tensor()


def targets(columns: int = 3) -> torch.Tensor:
    return torch.randn(SAMPLES, columns, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


@pytest.mark.parametrize("keep", [True, False])
def test_products(stored: StoredKernel, dense: torch.Tensor, cluster: Dask, keep: bool) -> None:
    kernel = solvers.DaskKernel(stored, cluster, keep=keep)
    assert kernel.tile == 2 * TILE
    assert [rows.stop - rows.start for rows in kernel.rows] == [60, 60, 60, 50]
    v = targets()
    assert torch.allclose(kernel.product(v), dense @ v, rtol=1e-13, atol=1e-10)
    assert torch.equal(kernel.diagonal(), dense.diagonal())
    assert "kept" in repr(kernel) or not keep


@pytest.mark.parametrize("method", ["auto", "cholesky", "mixed", "cg"])
def test_regression(stored: StoredKernel, dense: torch.Tensor, cluster: Dask, method: Any) -> None:
    y, f0 = targets(), targets() / 2
    fit = linalg.regress(solvers.DaskKernel(stored.path, cluster), y, f0=f0, ridge=0.5, method=method, tolerance=1e-12)
    expected = linalg.regress(dense, y, f0=f0, ridge=0.5)
    assert fit.method == ("cholesky" if method == "auto" else method)
    assert torch.allclose(fit.coefficients, expected.coefficients, rtol=1e-10, atol=1e-12)
    assert torch.allclose(fit.norm, expected.norm)
    assert torch.allclose(fit.predict(dense[:7], f0=f0[:7]), expected.predict(dense[:7], f0=f0[:7]))


def test_every_scale(tmp_path: Path, cluster: Dask) -> None:
    """The kernel is brought to unit size on the workers; single precision is multiplied in double."""
    model = network(1)
    with torch.no_grad():
        for weight in model[-1].parameters():
            weight *= 1e-6
        model[0].weight *= 1e-6
    kernel = store.compute(model, images(100), tmp_path / "kernel.zarr", tile=TILE, progress=False)
    y, ridge = torch.randn(100, dtype=torch.float64) * 1e200, 1e-3 * float(kernel.diagonal().max())
    fit = linalg.regress(solvers.DaskKernel(kernel, cluster), y, ridge=ridge)
    assert torch.allclose(fit.coefficients, linalg.regress(kernel, y, ridge=ridge).coefficients, rtol=1e-9)


def test_several_outputs(tmp_path: Path, cluster: Dask) -> None:
    kernel = store.compute(network(3), images(50), tmp_path / "kernel.zarr", tile=20, readout="full", progress=False)
    y = torch.randn(50, 3, dtype=torch.float64)
    fit = linalg.regress(solvers.DaskKernel(kernel, cluster), y, ridge=0.1)
    assert torch.allclose(fit.coefficients, linalg.regress(kernel, y, ridge=0.1).coefficients, rtol=1e-8)


def test_some_of_the_samples(stored: StoredKernel, dense: torch.Tensor, cluster: Dask) -> None:
    kernel = solvers.DaskKernel(stored, cluster, samples=200)
    fit = linalg.regress(kernel, targets()[:200], ridge=0.5)
    expected = linalg.regress(dense[:200, :200], targets()[:200], ridge=0.5)
    assert torch.allclose(fit.coefficients, expected.coefficients, rtol=1e-10, atol=1e-12)
    for wrong in (0, 231, True):
        with pytest.raises(TangentError, match="There are no"):
            solvers.DaskKernel(stored, cluster, samples=wrong)


@pytest.mark.parametrize("k", [1, 12])
def test_eigenpairs(stored: StoredKernel, dense: torch.Tensor, cluster: Dask, k: int) -> None:
    spectrum = linalg.eigh(solvers.DaskKernel(stored, cluster), k)
    values, vectors = torch.linalg.eigh(dense)
    assert torch.allclose(spectrum.values, values.flip(0)[:k], rtol=1e-12)
    assert torch.allclose((spectrum.vectors * vectors.flip(1)[:, :k]).sum(0).abs(), torch.ones(k).double(), atol=1e-6)
    assert spectrum.method == "block Krylov"


def test_singular(tmp_path: Path, cluster: Dask) -> None:
    """Every sample twice."""
    twice = images(60, dtype=torch.float64).repeat(2, 1, 1, 1)
    model = network(1, dtype=torch.float64)
    kernel = store.compute(model, twice, tmp_path / "kernel.zarr", tile=TILE, progress=False)
    spread = solvers.DaskKernel(kernel, cluster)
    y = torch.randn(120, dtype=torch.float64)
    for method in ("auto", "cholesky", "mixed"):
        with pytest.raises(TangentError, match=r"not positive definite|stopped at a relative residual") as refusal:
            linalg.regress(spread, y, method=method)  # type: ignore[arg-type]
        assert "Use ridge=" in refusal.value.remedy
        assert "eigen" not in refusal.value.remedy
    with pytest.raises(TangentError, match="is not brought to this process"):
        linalg.regress(spread, y, method="eigen")
    with pytest.raises(TangentError, match="is not brought to this process"):
        linalg.eigh(spread)


def test_small_kernels_are_brought_here(
    stored: StoredKernel, dense: torch.Tensor, cluster: Dask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_dask_kernel, "_WHOLE", SAMPLES)
    kernel = solvers.DaskKernel(stored, cluster)
    assert torch.equal(kernel.dense(), dense)
    assert torch.allclose(linalg.eigh(kernel).values, torch.linalg.eigvalsh(dense).flip(0), rtol=1e-9)


def test_the_row_of_a_failure() -> None:
    with pytest.raises(_block_tasks.NotPositive) as found:
        _block_tasks.corner(np.diag([1.0, 2.0, -1.0]), 60)
    assert found.value.row == 62


@pytest.mark.soak
def test_a_worker_is_lost(stored: StoredKernel, dense: torch.Tensor) -> None:
    """Its blocks are read again, and what was sent to it is sent again."""
    y = targets()
    with Dask(2) as cluster:
        kernel = solvers.DaskKernel(stored, cluster, keep=True)
        kernel.product(y)
        address, process = next(iter(cluster.client.run(os.getpid).items()))
        os.kill(process, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while address in cluster.addresses and time.monotonic() < deadline:
            time.sleep(0.1)
        assert torch.allclose(kernel.product(y), dense @ y, rtol=1e-12, atol=1e-10)
        found = linalg.regress(kernel, y, ridge=0.5).coefficients
        assert torch.allclose(found, linalg.regress(dense, y, ridge=0.5).coefficients, rtol=1e-9)


@pytest.mark.soak
def test_from_an_object_store(stored: StoredKernel, dense: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    with object_service.running() as service:
        for name, value in service.environment.items():
            monkeypatch.setenv(name, value)
        address = f"s3://{object_service.BUCKET}/kernel.zarr"
        store.copy(stored.path, address)
        with Dask(1) as cluster:
            v = targets()
            assert torch.allclose(solvers.DaskKernel(address, cluster).product(v), dense @ v, rtol=1e-12, atol=1e-10)


def test_a_damaged_tile_is_found(stored: StoredKernel, tmp_path: Path, cluster: Dask) -> None:
    copy = store.copy(stored.path, tmp_path / "kernel.zarr")
    tile = tmp_path / "kernel.zarr" / "c" / "1" / "2"
    content = bytearray(tile.read_bytes())
    content[7] ^= 1
    tile.write_bytes(content)
    with pytest.raises(TangentError, match="Tile 1/2 is damaged"):
        solvers.DaskKernel(copy, cluster).product(targets())


def test_a_store_that_workers_do_not_see(stored: StoredKernel, cluster: Dask, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = solvers.DaskKernel(stored, cluster)
    monkeypatch.setattr(kernel, "_path", "/nowhere/kernel.zarr")
    with pytest.raises(TangentError, match="A worker of the cluster cannot read") as refusal:
        kernel.product(targets())
    assert "object store" in refusal.value.remedy


def test_refusals(stored: StoredKernel, tmp_path: Path, cluster: Dask, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TangentError, match="engine is a InProcess"):
        solvers.DaskKernel(stored, InProcess())  # type: ignore[arg-type]
    with pytest.raises(TangentError, match="kernel is a Tensor"):
        solvers.DaskKernel(torch.eye(3), cluster)  # type: ignore[arg-type]
    with pytest.raises(TangentError, match="does not exist"):
        solvers.DaskKernel(tmp_path / "nothing.zarr", cluster)
    copy = store.copy(stored.path, tmp_path / "kernel.zarr")
    copy.discard([(0, 0)])
    with pytest.raises(TangentError, match="is not complete: 9"):
        solvers.DaskKernel(tmp_path / "kernel.zarr", cluster)
    kernel = solvers.DaskKernel(stored, cluster)
    with pytest.raises(TangentError, match="ridge -1"):
        linalg.regress(kernel, targets(), ridge=-1)
    with pytest.raises(TangentError, match="do not fit a kernel of 230 rows"):
        linalg.regress(kernel, targets()[:-1])
    monkeypatch.setattr(solvers.DaskKernel, "room", lambda self: 1000)
    with pytest.raises(TangentError, match="workers of the cluster have 1e\\+03 B free"):
        linalg.regress(kernel, targets(), ridge=1, method="cholesky")
    assert linalg.regress(kernel, targets(), ridge=0.5).method == "cg"
    assert not solvers.DaskKernel(stored, cluster).keep


def test_a_store_in_the_memory_of_this_process(cluster: Dask) -> None:
    pytest.importorskip("obstore")
    kernel = store.compute(network(1), images(20), "memory://here/kernel.zarr", tile=10, progress=False)
    with pytest.raises(TangentError, match="in the memory of this process"):
        solvers.DaskKernel(kernel, cluster)


def test_without_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(TangentError, match="Dask is not installed") as refusal:
        Dask(1)
    assert "tangentlab[dask]" in refusal.value.remedy
