"""Stores in an object store that is slow, busy, forgetful and throttled, by processes that are killed."""

import atexit
import os
import random
import time
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from soak._computations import Kind, process, whole_store
from tangentlab.store import _leases
from tangentlab.store._bucket import Bucket
from tests.store import object_service
from tests.store.worker import work as fill_store

TROUBLE = {"delay": 0.02, "busy": 0.05, "lost": 0.05, "rate": 150}
"""Delays of up to 20 ms; 5 % of the requests answered by 503 and not executed, 5 % executed and answered by 503 all the
same; and 503 for what exceeds 150 requests per second."""
HOUR = 3600.0


@cache
def service() -> object_service.Service:
    """Start the service, once; it ends with this process."""
    stack = ExitStack()
    found = stack.enter_context(object_service.running())
    atexit.register(stack.close)
    os.environ.update(found.environment)
    found.faults(**TROUBLE)
    return found


def address(folder: Path) -> str:
    """Return the address of an episode's store."""
    service()
    return f"s3://{object_service.BUCKET}/{folder.name}/kernel.zarr"


def fill(environment: dict[str, str], place: str, budget: str, host: str | None, late: float) -> None:
    """Compute the store, on a machine of some name whose clock is wrong."""
    import socket

    os.environ.update(environment)
    real = time.time
    time.time = lambda: real() + late
    if host is not None:  # whether its processes live shows in their signs of life alone
        socket.gethostname = lambda: host
        _leases._BEAT, _leases._STALE = 0.1, 2.5
    fill_store(place, None, budget)  # type: ignore[arg-type]


def contents(place: str) -> dict[str, bytes]:
    """Read every tile that is there."""
    bucket = Bucket(place)
    return {name: bytes(bucket.read(name)) for name in bucket.names("c")}


def start(count: int, folder: Path, moments: random.Random) -> list[Any]:
    place = address(folder)
    return [
        process(
            fill,
            service().environment,
            place,
            moments.choice(["1GiB", "600KiB"]),
            moments.choice([None, None, "a", "b"]),
            moments.choice([0.0, HOUR, -HOUR]),
        )
        for _ in range(count)
    ]


def steps(folder: Path) -> set[str]:
    time.sleep(0.05)  # asking is a request, too
    return set(Bucket(address(folder)).names("c"))


def intact(folder: Path) -> None:
    expected = whole_store()
    wrong = [name for name, content in contents(address(folder)).items() if expected.get(name) != content]
    assert not wrong, f"tiles differ after a kill: {wrong[:5]}"


def finish(folder: Path) -> None:
    place = address(folder)
    before, _leases._STALE = _leases._STALE, 2.5  # machines that do not exist hold leases
    try:
        assert fill_store(place).complete, "tiles are missing after the last call"  # type: ignore[arg-type]
        assert contents(place) == whole_store(), "the store differs from one computed in a folder"
        fill_store(place)  # type: ignore[arg-type]  # clears up after the dead
    finally:
        _leases._STALE = before
    left = set(Bucket(place).names("")) - whole_store().keys()
    assert left == {"zarr.json"}, f"left behind: {sorted(left - {'zarr.json'})}"
    Bucket(place).clear("")


def in_bucket(count: int) -> Kind:
    """Return the computation of a store in an object store by several processes."""
    return Kind(lambda folder, moments: start(count, folder, moments), steps, intact, finish)
