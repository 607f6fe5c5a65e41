"""Processes of several machines on one folder: real processes, each of which believes to be on a machine of its own.

What they cannot do is see whether a process of another machine lives; they have its signs of life only.
"""

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from tangentlab.store import _leases, _writer
from tests.store.test_faults import chunks, inodes, start
from tests.store.worker import work


def elsewhere(host: str, stale: float, path: Path, log: Path | None = None, budget: str | None = None) -> None:
    """The computation on a machine of that name, with another idea of how long the dead are silent."""
    socket.gethostname = lambda: host
    _leases._BEAT, _leases._STALE = stale / 20, stale
    work(path, log, budget)


def dies(path: Path) -> None:
    """A machine that loses power when it is about to write its sixth tile."""
    write, tiles = _writer.write_tile, []

    def deadly(array: Any, tile: Any, values: Any) -> None:
        if len(tiles) == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        tiles.append(tile)
        write(array, tile, values)

    _writer.write_tile = deadly
    elsewhere("a", 60.0, path)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    path = tmp_path_factory.mktemp("undisturbed") / "kernel.zarr"
    assert work(path).complete
    return chunks(path)


@pytest.mark.parametrize("budget", ["1GiB", "600KiB"])  # the second: factors do not fit, and are shared
def test_machines_share_a_store(budget: str, tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    path, logs = tmp_path / "kernel.zarr", [tmp_path / f"{name}.log" for name in "ab"]
    processes = [start(log.stem, 60.0, path, log, budget, target=elsewhere) for log in logs]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert chunks(path) == undisturbed
    written = [line for log in logs if log.exists() for line in log.read_text().split()]
    assert sorted(written) == sorted(name.removeprefix("c/") for name in undisturbed), "each tile once"


def test_a_machine_dies(tmp_path: Path, undisturbed: dict[str, bytes]) -> None:
    """Its leases are waited for, and taken over when it has been silent for long enough."""
    path, log = tmp_path / "kernel.zarr", tmp_path / "b.log"
    first = start(path, target=dies)
    first.join()
    assert first.exitcode == -signal.SIGKILL
    left, before = list(path.glob(".tangentlab/claims/tile-*.claim")), inodes(path)
    assert left
    assert len(before) == 5
    second = start("b", 1.0, path, log, target=elsewhere)
    second.join()
    assert second.exitcode == 0
    assert chunks(path) == undisturbed
    assert {name: inodes(path)[name] for name in before} == before, "a finished tile was written again"
    claimed = {claim.stem.removeprefix("tile-").replace("-", "/") for claim in left}
    assert claimed - {name.removeprefix("c/") for name in before} <= set(log.read_text().split())


def test_leases_of_another_machine_last_as_long_as_its_heartbeat(tmp_path: Path) -> None:
    """Not as long as a tile may take, and not as a process of the same number here lives."""
    folder = tmp_path / "claims"
    slow = start(folder, target=hold)
    while not list(folder.glob("*.claim")):
        assert slow.is_alive()
        time.sleep(0.01)
    (claim,), (alive,) = folder.glob("*.claim"), folder.glob("*.alive")
    long_ago = time.time() - 3600
    os.utime(claim, (long_ago, long_ago), follow_symlinks=False)  # a tile that takes an hour
    with _leases.Leases(folder) as mine:
        assert not mine.take("tile-0-0")
        slow.kill()
        slow.join()
        assert not mine.take("tile-0-0"), "nobody can know yet"
        os.utime(alive, (long_ago, long_ago))
        assert mine.take("tile-0-0")


def hold(folder: Path) -> None:
    """Lease a tile on another machine and do not release it."""
    socket.gethostname = lambda: "slow"
    with _leases.Leases(folder) as leases:
        assert leases.take("tile-0-0")
        time.sleep(600)
