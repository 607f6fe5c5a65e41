"""Engines execute tasks: all of them, once, wherever that is."""

import os
import pickle
import platform
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tangentlab import TangentError
from tangentlab.engines import Dask, Executor, InProcess, Shard, as_engine, process_pool
from tangentlab.store import StoredKernel
from tests.store.problems import make


@dataclass(frozen=True)
class Square:
    """A task."""

    number: int

    def __call__(self) -> int:
        return self.number**2


def fails() -> int:
    raise TangentError("no result.", "it was asked to fail.", "ask it for something else.")


def dies() -> int:
    os._exit(1)


def results(engine: Any, count: int = 7) -> list[int]:
    found = dict(engine.run([Square(number) for number in range(count)]))
    return [found[number] for number in range(count)]


@pytest.fixture(scope="module")
def cluster() -> Any:
    pytest.importorskip("distributed")
    with Dask(2) as engine:
        yield engine


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> StoredKernel:
    return make(tmp_path_factory.mktemp("here") / "kernel.zarr")


def test_every_task_is_executed(cluster: Dask) -> None:
    squares = [number**2 for number in range(7)]
    assert results(InProcess()) == squares
    with ThreadPoolExecutor(3) as pool:
        assert results(as_engine(pool)) == squares
    assert results(cluster) == squares
    assert cluster.workers == 2
    assert pickle.loads(pickle.dumps(Square(3)))() == 9


def test_a_store_by_every_engine_is_the_same(tmp_path: Path, here: StoredKernel, cluster: Dask) -> None:
    with ThreadPoolExecutor(2) as threads, process_pool(2) as processes:
        for number, engine in enumerate((threads, Executor(processes), cluster, Dask(cluster.client))):
            kernel = make(tmp_path / f"{number}.zarr", engine=engine)
            assert kernel.complete
            # The same to rounding: how a matrix library sums depends on the number of threads, which engines differ in.
            torch.testing.assert_close(kernel.to_tensor(), here.to_tensor(), rtol=1e-5, atol=1e-5)
            assert {path.name for path in kernel.path.iterdir()} == {"zarr.json", "c"}


def test_workers_share_the_cores(cluster: Dask) -> None:
    expected = int(os.environ.get("OMP_NUM_THREADS", max(1, (os.cpu_count() or 1) // 2)))
    assert set(cluster.client.run(torch.get_num_threads).values()) == {expected}


def new_pages(blocks: int = 60) -> int:
    """Pages that the system gives this process while it frees and takes blocks of 8 MiB."""
    import resource

    torch.ones(2 * 1024**2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(blocks):
        torch.ones(2 * 1024**2)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other systems keep or return memory by other rules")
def test_workers_use_freed_memory_again(cluster: Dask) -> None:
    """Dask tells its workers not to, and then every intermediate is zeroed by the system first."""
    results = [result for _, result in cluster.run([new_pages] * 8)]
    assert max(results) < 60 * 2048 / 4  # a quarter of all pages


def test_errors_of_tasks_come_through(cluster: Dask) -> None:
    with ThreadPoolExecutor(1) as pool:
        for engine in (InProcess(), Executor(pool), cluster):
            with pytest.raises(TangentError, match="no result") as refusal:
                list(engine.run([Square(1), fails]))
            assert refusal.value.remedy == "ask it for something else."


def test_a_pool_whose_worker_dies_says_what_to_do() -> None:
    with ProcessPoolExecutor(1) as pool, pytest.raises(TangentError, match="cannot continue") as refusal:
        list(Executor(pool).run([dies]))
    assert "to resume" in refusal.value.remedy
    with pytest.raises(TangentError, match="cannot continue"):
        list(Executor(pool).run([Square(1)]))


@given(count=st.integers(1, 9), items=st.integers(0, 40))
def test_shards_share_all_items(count: int, items: int) -> None:
    shares = [Shard(index, count).share(range(items)) for index in range(count)]
    assert sorted(item for share in shares for item in share) == list(range(items))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_shards_make_a_store(tmp_path: Path, here: StoredKernel) -> None:
    path = tmp_path / "kernel.zarr"
    progress = [make(path, engine=Shard(index, 3)).progress for index in (2, 0, 2, 1)]
    assert 0 < progress[0] < progress[1] == progress[2] < progress[3] == 1
    assert torch.equal(StoredKernel(path).to_tensor(), here.to_tensor())


@pytest.mark.parametrize("text", ["4/4", "-1/4", "0/0", "1", "a/b", "1/", "1/2/3", ""])
def test_shards_that_do_not_exist(text: str) -> None:
    with pytest.raises(TangentError):
        Shard.parse(text)


@pytest.mark.parametrize(
    ("make_engine", "message"),
    [
        (lambda: as_engine("here"), "engine is of type str"),
        (lambda: Executor("pool"), "pool is of type str"),
        (lambda: Dask(0), "Dask cluster is 0"),
        (lambda: Shard(1, 1), "does not exist"),
        (lambda: Shard(0.5, 2), "does not exist"),
    ],
)
def test_refusals(make_engine: Callable[[], Any], message: str) -> None:
    with pytest.raises(TangentError, match=message):
        make_engine()


def test_no_scheduler_there(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("tangentlab.engines._dask._PATIENCE", "0.3s")
    with pytest.raises(TangentError, match="no Dask scheduler"):
        Dask("tcp://127.0.0.1:1")


def test_dask_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr("importlib.import_module", absent)
    with pytest.raises(TangentError, match="Dask is not installed"):
        Dask()
