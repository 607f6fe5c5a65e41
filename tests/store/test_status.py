"""The state of a store while it is computed."""

import os
import time
from pathlib import Path

import pytest

from tangentlab.engines import Shard
from tangentlab.store import StoredKernel, create, missing_shards, status
from tangentlab.store._leases import Leases
from tests.store.problems import images, make, network


def test_no_worker(tmp_path: Path) -> None:
    path = tmp_path / "kernel.zarr"
    kernel = create(network(), images(), path, tile=10)
    assert kernel.progress == 0
    found = status(path)
    assert (found.done, found.tiles, found.workers) == (0, 21, ())
    assert found.seconds_left is None
    assert "no worker is running" in str(found)
    assert missing_shards(path, 4) == [0, 1, 2, 3]
    make(path, engine=Shard(2, 4))
    assert missing_shards(path, 4) == [0, 1, 3]
    assert 0 < status(path).done < 21
    make(path)
    assert status(path).complete
    assert str(status(path)).endswith("complete")
    assert missing_shards(path, 4) == []


def test_create_leaves_an_existing_store_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "kernel.zarr"
    make(path)
    assert create(network(), images(), path, tile=10).complete


def test_workers_and_rate(tmp_path: Path) -> None:
    """A process of another machine is dead when it is silent for a minute, one of this machine when it has ended."""
    path = tmp_path / "kernel.zarr"
    make(path, engine=Shard(0, 2))
    done = [tile for tile in StoredKernel(path).plan.tiles() if tile not in StoredKernel(path).missing]
    now = time.time()
    for number, tile in enumerate(reversed(done)):
        os.utime(path / "c" / str(tile[0]) / str(tile[1]), (now, now - 6 * number))
    folder = path / ".tangentlab" / "claims"
    with Leases(folder) as leases:
        assert leases.take("tile-0-1")
        (folder / "far~7~a.alive").touch()
        (folder / "lost~8~b.alive").touch()
        os.utime(folder / "lost~8~b.alive", (now - 100, now - 100))
        os.symlink("lost~8~b", folder / "tile-0-2.claim")
        os.utime(folder / "tile-0-2.claim", (now - 100, now - 100), follow_symlinks=False)
        found = status(path)
        states = {worker.host: (worker.alive, worker.held) for worker in found.workers}
        own = leases.name.partition("~")[0]
        assert states == {own: (True, 1), "far": (True, 0), "lost": (False, 1)}
        assert (len(found.running), len(found.dead)) == (2, 1)
        assert found.tiles_per_minute == pytest.approx(10, rel=0.05)
        left = found.seconds_left
        assert left is not None
        assert left == pytest.approx(6 * (21 - len(done)), rel=0.4)  # tiles on the diagonal and at the edge count less
        assert "2 running, 1 dead" in str(found)
        assert not list(folder.glob("*.clock"))
    assert status(path).dead


def test_a_pause_does_not_count(tmp_path: Path) -> None:
    """Tiles of another day say nothing about the rate of today."""
    path = tmp_path / "kernel.zarr"
    make(path, engine=Shard(0, 2))
    old = time.time() - 86400
    for chunk in path.glob("c/*/*"):
        os.utime(chunk, (old, old))
    with Leases(path / ".tangentlab" / "claims"):
        assert status(path).tiles_per_minute is None
        assert "fewer than two tiles" in str(status(path))
