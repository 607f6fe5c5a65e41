"""What can be killed: computations in processes of their own."""

import multiprocessing
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.store.test_faults import chunks
from tests.store.worker import work as fill_store

# Processes are forked from a server that has imported everything, or starting them would take most of the time.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.store.worker", "tests.training.worker"])
PATIENCE = 300
"""Seconds after which a process that neither gets on nor ends counts as hanging."""


@dataclass(frozen=True)
class Kind:
    """A computation that can be killed.

    Attributes:
        start: Starts its processes on a folder.
        steps: The names of what is finished in the folder.
        intact: Raises AssertionError if something finished is not what it must be.
        finish: Lets it finish in this process and raises AssertionError if the result is another one.
    """

    start: Callable[[Path, random.Random], list[Any]]
    steps: Callable[[Path], set[str]]
    intact: Callable[[Path], None]
    finish: Callable[[Path], None]


@cache
def whole_store() -> dict[str, bytes]:
    """Return every tile of the store, computed in a folder without interruption."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.zarr"
        assert fill_store(path).complete
        return chunks(path)


def process(target: Callable[..., Any], *arguments: Any) -> Any:
    """Start a computation in a process of its own."""
    started = CONTEXT.Process(target=target, args=arguments)
    started.start()
    return started
