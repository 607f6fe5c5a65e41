"""All experiments at the tiny preset, computed once for all tests of a session and shared by its workers."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tangentlab.experiments import Result, reproduce


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder of the results. Workers of pytest-xdist share it, and with it their finished units of work."""
    base = tmp_path_factory.getbasetemp()
    return (base if worker_id == "master" else base.parent) / "experiments"


@pytest.fixture(scope="session")
def tiny(runs: Path) -> Callable[[str], Result]:
    """Run an experiment, unless it is finished."""
    threads = torch.get_num_threads()

    def run(name: str) -> Result:
        torch.set_num_threads(1)  # networks this small only wait for each other's threads
        try:
            return reproduce(name, "tiny", out=runs, progress=False)
        finally:
            torch.set_num_threads(threads)

    return run
