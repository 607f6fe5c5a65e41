"""Stores in an object store: the faults of the local store's tests, and those of a service.

The result is the same to the bit as in a folder, whatever happens on the way.
"""

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zarr

from tangentlab import TangentError, store
from tangentlab.engines import Dask
from tangentlab.store import StoredKernel, _leases
from tangentlab.store._bucket import Bucket
from tests.store import object_service
from tests.store.object_service import BUCKET, Service
from tests.store.problems import images, make, network
from tests.store.test_faults import CONTEXT
from tests.store.test_faults import chunks as files

SAMPLES, TILE = 96, 24
KILLS = int(os.environ.get("TANGENTLAB_KILLS", 5))
TROUBLE = {"delay": 0.01, "busy": 0.05, "lost": 0.05}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    patch = pytest.MonkeyPatch()
    with object_service.running() as found:
        for name, value in found.environment.items():
            patch.setenv(name, value)
        yield found
    patch.undo()


@pytest.fixture
def place(service: Service, request: pytest.FixtureRequest) -> Iterator[str]:
    service.faults()
    yield f"s3://{BUCKET}/{request.node.name}/kernel.zarr"
    service.faults()


def work(path: Any, budget: str | None = None, **options: Any) -> StoredKernel:
    """The same kernel every time: 10 tiles."""
    torch.set_num_threads(1)
    options = {"tile": TILE, "batch_size": TILE, "memory_budget": budget, "progress": False} | options
    return store.compute(network(), images(SAMPLES), path, **options)


def elsewhere(environment: dict[str, str], path: str, budget: str | None = None, host: str | None = None) -> None:
    """The computation in another process, perhaps on a machine of another name whose clock is an hour slow."""
    import socket

    os.environ.update(environment)
    if host is not None:
        real = time.time
        socket.gethostname = lambda: host
        time.time = lambda: real() - 3600
        _leases._BEAT, _leases._STALE = 0.1, 2.5  # the service dates files by whole seconds
    work(path, budget)


def start(service: Service, *arguments: Any) -> Any:
    process = CONTEXT.Process(target=elsewhere, args=(service.environment, *arguments))
    process.start()
    return process


def chunks(path: str) -> dict[str, bytes]:
    bucket = Bucket(path)
    return {name: bytes(bucket.read(name)) for name in bucket.names("c")}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    path = tmp_path_factory.mktemp("undisturbed") / "kernel.zarr"
    assert work(path).complete
    return files(path)


def test_the_same_as_in_a_folder(place: str, tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    kernel = work(place, keep_weights=True)
    assert chunks(place) == undisturbed
    names = set(Bucket(place).names("")) - set(undisturbed)
    assert names == {"zarr.json", f"weights-{kernel.manifest.key}.pt"}
    here = work(tmp_path / "kernel.zarr")
    assert torch.equal(kernel.to_tensor(), here.to_tensor())
    assert torch.equal(kernel @ torch.ones(SAMPLES), here @ torch.ones(SAMPLES))
    assert kernel.nbytes_stored == here.nbytes_stored
    assert store.open(place).verify().good
    assert "verysecret" not in str(Bucket(place).read("zarr.json"))
    assert torch.equal(store.copy(place, tmp_path / "copy.zarr").to_tensor(), here.to_tensor())
    store.pack(place, tmp_path / "kernel.zip")
    assert torch.equal(store.open(tmp_path / "kernel.zip").to_tensor(), here.to_tensor())


def test_memory() -> None:
    pytest.importorskip("obstore")
    kernel = make("memory://anywhere/kernel.zarr")
    assert kernel.complete
    assert StoredKernel("memory://anywhere/kernel.zarr").verify().good
    with pytest.raises(TangentError, match="does not exist"):
        StoredKernel("memory://elsewhere/kernel.zarr")


def test_killed_at_random_moments(service: Service, place: str, undisturbed: dict[str, bytes]) -> None:
    moments, kills = random.Random(), 0
    service.faults(**TROUBLE)
    while kills < KILLS:
        process = start(service, place, moments.choice(["1GiB", "600KiB"]))
        process.join(moments.uniform(0.05, 1.5))
        process.kill()
        process.join()
        kills += process.exitcode == -signal.SIGKILL
        assert process.exitcode in (0, -signal.SIGKILL)
        there = chunks(place)
        assert all(undisturbed[name] == content for name, content in there.items()), "half a tile"
        if len(there) == len(undisturbed) and kills < KILLS:
            Bucket(place).clear("")
    assert work(place).complete
    assert chunks(place) == undisturbed
    assert set(Bucket(place).names("")) - set(undisturbed) == {"zarr.json"}


@pytest.mark.parametrize("count", [2, 4])
def test_processes_on_one_store(count: int, service: Service, place: str, undisturbed: dict[str, bytes]) -> None:
    service.faults(**TROUBLE)
    processes = [start(service, place) for _ in range(count)]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * count
    assert chunks(place) == undisturbed


def test_a_machine_dies(service: Service, place: str, undisturbed: dict[str, bytes]) -> None:
    """Its leases are taken over by one whose clock is an hour off."""
    service.faults(delay=0.05)
    first = start(service, place, None, "a")
    deadline = time.monotonic() + 60
    while not any(name.endswith(".claim") for name in Bucket(place).names("")) and time.monotonic() < deadline:
        time.sleep(0.01)
    first.kill()
    first.join()
    assert any(worker.host == "a" for worker in store.status(place).workers)
    second = start(service, place, None, "b")
    second.join()
    assert second.exitcode == 0
    assert chunks(place) == undisturbed


def test_leases(service: Service, place: str) -> None:
    bucket = Bucket(place)
    with bucket.leases() as mine, bucket.leases() as others:
        assert mine.take("tile-0-0")
        assert mine.take("tile-0-0")
        assert not others.take("tile-0-0")
        states = mine.workers()
        assert [worker.alive for worker in states] == [True, True]
        assert sorted(worker.held for worker in states) == [0, 1]
        mine.release("tile-0-0")
        assert others.take("tile-0-0")
    assert not list(bucket.names(""))


def test_a_flipped_bit_is_found_and_repaired(place: str, undisturbed: dict[str, bytes]) -> None:
    work(place)
    bucket = Bucket(place)
    damaged = bytearray(bucket.read("c/1/3"))
    damaged[100] ^= 4
    bucket.write("c/1/3", bytes(damaged))
    bucket.write("c/2/2", bytes(damaged[:50]))
    assert StoredKernel(place).verify().damaged == [(1, 3), (2, 2)]
    with pytest.raises(TangentError, match="Tile 1/3 is damaged"):
        StoredKernel(place).to_tensor()
    options = {"tile": TILE, "batch_size": TILE, "progress": False}
    store.repair(network(), images(SAMPLES), place, **options)
    assert chunks(place) == undisturbed


def test_writes_refused_midway(
    service: Service, place: str, undisturbed: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_leases, "_STALE", 1.5)  # leases could not be removed, and this process lives on
    service.faults(writes=18)
    with pytest.raises(TangentError, match="refuses the request") as refusal:
        work(place)
    assert "resume" in refusal.value.remedy
    service.faults()
    there = chunks(place)
    assert 0 < len(there) < len(undisturbed)
    assert work(place).complete
    assert chunks(place) == undisturbed


def test_samples_are_appended(place: str, tmp_path: Path) -> None:
    options = {"tile": TILE, "batch_size": TILE, "progress": False}
    for path in (place, tmp_path / "kernel.zarr"):
        store.compute(network(), images(SAMPLES)[:100], path, **options)
        store.append(network(), images(SAMPLES), path, **options)
    assert chunks(place) == files(tmp_path / "kernel.zarr")
    assert StoredKernel(place).complete


def test_workers_without_a_common_disk(place: str) -> None:
    """Tasks of an engine get model and data through the object store."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(2) as pool:
        kernel = work(place, engine=pool)
    assert kernel.complete
    assert set(Bucket(place).names("")) == {"zarr.json", *chunks(place)}


def test_a_dask_worker_is_killed(service: Service, place: str, undisturbed: dict[str, bytes]) -> None:
    pytest.importorskip("distributed")
    service.faults(**TROUBLE)
    killed: list[int] = []
    with Dask(2) as cluster:
        processes = list(cluster.client.run(os.getpid).values())

        class Killing(Dask):
            """Kills a worker as soon as the first tiles are there."""

            def __init__(self) -> None:
                self.client = cluster.client

            def run(self, tasks: Any) -> Any:
                for result in super().run(tasks):
                    if not killed and list(Bucket(place).names("c")):
                        killed.append(processes[0])
                        os.kill(processes[0], signal.SIGKILL)
                    yield result

        kernel = work(place, engine=Killing())
    assert killed
    assert kernel.complete
    assert {name: len(content) for name, content in chunks(place).items()} == {
        name: len(content) for name, content in undisturbed.items()
    }
    assert kernel.verify().good


@pytest.mark.parametrize(
    ("address", "message"),
    [
        (Path("s3://bucket/kernel.zarr"), "an address as a path"),
        ("s3://nobody/kernel.zarr", "no bucket 'nobody'"),
        ("ftp://bucket/kernel.zarr", "scheme 'ftp'"),
        ("s3://bucket", "store's address"),
        ("s3://someone:verysecret@bucket/kernel.zarr", "credentials or parameters"),
    ],
)
def test_wrong_addresses(address: Any, message: str, service: Service) -> None:
    for call in (StoredKernel, make):
        with pytest.raises(TangentError, match=message) as refusal:
            call(address)  # type: ignore[operator]
        assert "verysecret" not in str(refusal.value)


def test_a_bucket_that_is_read_only(service: Service, place: str) -> None:
    service.faults(writes=0)
    with pytest.raises(TangentError, match="refuses the request"):
        work(place)
    assert not list(Bucket(place).names(""))


def test_reading_needs_no_permission_to_write(service: Service, place: str) -> None:
    make(place)
    service.faults(writes=0)
    assert StoredKernel(place).verify().good
    assert store.status(place).complete


def test_no_credentials(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setattr("tangentlab.store._bucket._RETRY", {"max_retries": 0})
    with pytest.raises(TangentError, match="no credentials"):
        StoredKernel(f"s3://{BUCKET}/kernel.zarr")


def test_lists_that_break_off(service: Service, place: str) -> None:
    work(place)
    whole = list(Bucket(place).entries(""))
    service.faults(cut=2)
    assert list(Bucket(place).entries("")) == whole
    service.faults(cut=9)
    with pytest.raises(TangentError, match="cannot be reached"):
        list(Bucket(place).names(""))


def test_something_else_is_there(place: str) -> None:
    Bucket(place).write("notes.txt", b"mine")
    with pytest.raises(TangentError, match="is not a stored kernel"):
        work(place)
    assert list(Bucket(place).names("")) == ["notes.txt"]


def test_a_store_of_a_newer_version(place: str) -> None:
    work(place)
    bucket = Bucket(place)
    bucket.write("zarr.json", bytes(bucket.read("zarr.json")).replace(b'"format": 2', b'"format": 9'))
    with pytest.raises(TangentError, match="has the format 9"):
        StoredKernel(place)


def test_other_zarr_clients_are_told(place: str, tmp_path: Path) -> None:
    """Only the upper triangle is stored; the array says so, and a symmetric copy is plain Zarr."""
    kernel = make(tmp_path / "kernel.zarr")
    array = zarr.open(tmp_path / "kernel.zarr", mode="r")
    assert array.attrs["stored_triangle"] == "upper"
    assert "read as NaN" in array.attrs["note"]
    full = kernel.to_tensor().numpy()
    assert np.array_equal(np.triu(array[:]), np.triu(full))
    for target in (tmp_path / "all.zarr", place):
        store.export_zarr(kernel, target)
        with pytest.raises(TangentError, match="is not a stored kernel"):
            store.export_zarr(kernel, target)
    copies = [zarr.open(tmp_path / "all.zarr", mode="r"), zarr.open(Bucket(place).array_store(False), mode="r")]
    for copy in copies:
        assert np.array_equal(copy[:], full)
        assert copy.attrs["complete"] is True
    assert {entry.name for entry in (tmp_path / "all.zarr").iterdir()} == {"zarr.json", "c"}


def test_on_the_command_line(place: str, tmp_path: Path) -> None:
    from tests.test_cli_kernel import DIGITS, MLP, call, good

    good("compute", *MLP, *DIGITS, "--out", place, "--tile", 50, "--shard", "0/2", "-q")
    assert "3 of 6 tiles done" in good("status", place)
    assert call("verify", place).exit_code == 3
    good("resume", place, "-q")
    assert "6 tiles checked, 0 damaged, 0 missing" in good("verify", place)
    said = good("info", place)
    assert place in said
    assert "verysecret" not in said
    good("export", place, "--out", tmp_path / "copy.zarr")
    assert files(tmp_path / "copy.zarr") == chunks(place)
    assert "largest" in good_spectrum(place)
    assert "is complete" in good("submit", "--slurm", "--out", place, "--dry-run")
    script = good("submit", "--slurm", "--out", f"{place}.new", "--dry-run", *MLP, *DIGITS)
    assert f"kernel resume {place}.new " in script
    assert "--output=" in script


def good_spectrum(place: str) -> str:
    from typer.testing import CliRunner

    from tangentlab.cli import app

    result = CliRunner().invoke(app, ["spectrum", "--kernel", place, "-q"])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout
