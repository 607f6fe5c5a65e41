"""Processes that die, compete or run out of disk: what is finished stays, and the result is the same to the bit."""

import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tangentlab import TangentError
from tangentlab.engines import Dask
from tangentlab.store import StoredKernel
from tests.store.problems import make
from tests.store.worker import work

# Processes are forked from a server that has imported everything, or starting them would take most of the time.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.store.worker"])
KILLS = 50


def start(*arguments: Any, target: Any = work) -> Any:
    process = CONTEXT.Process(target=target, args=arguments)
    process.start()
    return process


def chunks(path: Path) -> dict[str, bytes]:
    return {str(chunk.relative_to(path)): chunk.read_bytes() for chunk in path.glob("c/*/*")}


def inodes(path: Path) -> dict[str, int]:
    return {str(chunk.relative_to(path)): chunk.stat().st_ino for chunk in path.glob("c/*/*")}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    path = tmp_path_factory.mktemp("undisturbed") / "kernel.zarr"
    assert work(path).complete
    return chunks(path)


def kill_at_some_moment(path: Path, moments: random.Random) -> bool:
    """Start the computation and kill it: at once, or soon after some more tiles are there. False if it finished."""
    process = start(path, None, moments.choice(["1GiB", "600KiB"]))
    wanted = len(inodes(path)) + moments.choice([0, 0, 1, 2, 4, 8])
    while len(inodes(path)) < wanted and process.is_alive():
        time.sleep(0.0005)
    process.join(moments.uniform(0, 0.05 if path.exists() else 0.2))
    process.kill()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return bool(process.exitcode)


def test_killed_at_random_moments(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    """Among them while the store is created, while a tile is written, and while factors are spilled."""
    path, moments = tmp_path / "kernel.zarr", random.Random()
    kills, before = 0, {}
    while kills < KILLS or not path.exists() or not StoredKernel(path).complete:
        if path.exists() and kills < KILLS and StoredKernel(path).complete:
            assert chunks(path) == undisturbed
            shutil.rmtree(path)
            before = {}
        if kills < KILLS:
            kills += kill_at_some_moment(path, moments)
        else:
            work(path)
        after = inodes(path)
        assert {name: after.get(name) for name in before} == before, "a finished tile was written again"
        before = after
    assert chunks(path) == undisturbed
    work(path)  # clears up after the dead
    assert {entry.name for entry in path.iterdir()} == {"zarr.json", "c"}


@pytest.mark.parametrize("count", [2, 4])
def test_processes_on_one_store(count: int, tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    path, logs = tmp_path / "kernel.zarr", [tmp_path / f"{number}.log" for number in range(count)]
    processes = [start(path, log) for log in logs]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * count
    assert chunks(path) == undisturbed
    written = [line for log in logs if log.exists() for line in log.read_text().split()]
    assert sorted(written) == sorted(name.removeprefix("c/") for name in undisturbed), "each tile once"
    assert {entry.name for entry in path.iterdir()} <= {"zarr.json", "c", ".tangentlab"}


def test_one_of_two_processes_is_killed(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    path = tmp_path / "kernel.zarr"
    first, second = start(path), start(path)
    while not len(inodes(path)) > 5 and first.is_alive():
        time.sleep(0.002)
    first.kill()
    second.join()
    assert second.exitcode == 0
    assert chunks(path) == undisturbed


def interrupt(path: Path) -> None:
    """Sends itself Ctrl-C when some tiles are there."""
    import threading

    def press() -> None:
        while len(inodes(path)) < 8:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has its background processes ignore it
    threading.Thread(target=press, daemon=True).start()
    try:
        work(path)
    except KeyboardInterrupt:
        leases = list((path / ".tangentlab" / "claims").iterdir())
        os._exit(0 if not leases else 3)
    os._exit(4)


def test_ctrl_c_leaves_no_leases(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    path = tmp_path / "kernel.zarr"
    process = start(path, target=interrupt)
    process.join()
    assert process.exitcode == 0
    assert 8 <= len(inodes(path)) < len(undisturbed)
    assert work(path).complete
    assert chunks(path) == undisturbed


def test_a_dask_worker_is_killed(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    expected = make(tmp_path / "here.zarr", tile=2)
    killed: list[int] = []
    with Dask(2) as cluster:
        processes = list(cluster.client.run(os.getpid).values())

        class Killing(Dask):
            """Kills a worker as soon as the first tiles are there."""

            def __init__(self) -> None:
                self.client = cluster.client

            def run(self, tasks: Any) -> Any:
                for result in super().run(tasks):
                    if not killed and inodes(path):
                        killed.append(processes[0])
                        os.kill(processes[0], signal.SIGKILL)
                    yield result

        path = tmp_path / "kernel.zarr"
        kernel = make(path, tile=2, engine=Killing())
    assert killed
    assert kernel.complete
    assert chunks(path) == chunks(expected.path)


def limited(path: Path, size: int) -> None:
    """A process that may not write files beyond some size: the disk is full, as far as it can tell."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    try:
        work(path)
    except TangentError as error:
        os._exit(0 if "resume" in error.remedy else 3)
    os._exit(4)


@pytest.mark.parametrize("size", [100, 2000])
def test_no_room_for_a_file(size: int, tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    path = tmp_path / "kernel.zarr"
    process = start(path, size, target=limited)
    process.join()
    assert process.exitcode == 0
    assert work(path).complete
    assert chunks(path) == undisturbed


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A file system with room for a part of the kernel."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"no file system can be mounted: {error}")
    if done.returncode:
        pytest.skip(f"no file system can be mounted: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_leaves_a_store_that_resumes(small_disk: Path, undisturbed: dict[str, bytes]) -> None:
    path = small_disk / "kernel.zarr"
    with pytest.raises(TangentError, match="is full") as refusal:
        work(path)
    assert "resume" in refusal.value.remedy
    there = chunks(path)
    assert 0 < len(there) < len(undisturbed)
    assert all(content == undisturbed[name] for name, content in there.items())
    before = inodes(path)
    subprocess.run(["mount", "-o", "remount,size=16m", str(small_disk)], check=True)
    assert work(path).complete
    assert {name: inodes(path)[name] for name in before} == before
    assert chunks(path) == undisturbed


def test_a_read_only_folder(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        folder = tmp_path / "locked"
        folder.mkdir(mode=0o500)
    else:
        folder = Path("/proc")  # root writes to any folder but this
    with pytest.raises(TangentError, match="cannot be written"):
        make(folder / "new" / "kernel.zarr")
