"""Processes of several machines on one folder: real processes, each of which believes to be on a machine of its own.

What they cannot do is see whether a process of another machine lives; they have its signs of life only.
"""

import socket
import time
from pathlib import Path

import pytest

from tangentlab.store import _claims
from tests.store.test_faults import chunks, inodes, start
from tests.store.worker import work


def elsewhere(host: str, stale: float, path: Path, log: Path | None = None, budget: str | None = None) -> None:
    """The computation on a machine of that name, with another idea of how long the dead are silent."""
    socket.gethostname = lambda: host
    _claims._BEAT, _claims._STALE = stale / 20, stale
    work(path, log, budget)


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
    """Its claims are waited for, and taken over when it has been silent for long enough."""
    path, log = tmp_path / "kernel.zarr", tmp_path / "b.log"
    first = start("a", 1.0, path, target=elsewhere)
    while not list(path.glob(".tangentlab/claims/tile-*.claim")) or len(inodes(path)) < 5:
        assert first.is_alive()
        time.sleep(0.001)
    first.kill()
    first.join()
    left, before = list(path.glob(".tangentlab/claims/tile-*.claim")), inodes(path)
    assert 5 <= len(before) < len(undisturbed)
    began = time.monotonic()
    second = start("b", 1.0, path, log, target=elsewhere)
    second.join()
    assert second.exitcode == 0
    assert chunks(path) == undisturbed
    assert {name: inodes(path)[name] for name in before} == before, "a finished tile was written again"
    unfinished = [claim for claim in left if claim.stem.replace("tile-", "c/").replace("-", "/") not in before]
    if unfinished:
        assert time.monotonic() - began > 0.9, "the dead were waited for"
        assert {claim.stem.removeprefix("tile-").replace("-", "/") for claim in unfinished} <= set(
            log.read_text().split()
        )


def test_a_slow_machine_keeps_its_claims(tmp_path: Path) -> None:
    """However long a tile takes, signs of life come from a thread of their own."""
    folder = tmp_path / "claims"
    slow = start(folder, target=hold)
    while not list(folder.glob("*.claim")):
        assert slow.is_alive()
        time.sleep(0.01)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_claims, "_STALE", 0.5)
        with _claims.Claims(folder) as mine:
            until = time.monotonic() + 1.5
            while time.monotonic() < until:
                assert not mine.take("tile-0-0")
                time.sleep(0.05)
            slow.kill()
            slow.join()
            assert mine.wait("tile-0-0", lambda: False)


def hold(folder: Path) -> None:
    """Claims a tile on another machine and does not give it back."""
    socket.gethostname = lambda: "slow"
    _claims._BEAT = 0.05
    with _claims.Claims(folder) as claims:
        assert claims.take("tile-0-0")
        time.sleep(600)
