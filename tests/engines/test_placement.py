"""One Dask worker per device, as docs/slurm.md starts them, tried on the CPU."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tangentlab.engines import Dask
from tests.store.problems import make

DEVICES = ("0", "1")


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[str]:
    """The address of a scheduler with one worker for each device, which sees only its own."""
    pytest.importorskip("distributed")
    file = tmp_path / "scheduler.json"
    dask = [sys.executable, "-m", "dask"]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": tmp_path}
    place = ["--host", "127.0.0.1", "--no-dashboard", "--scheduler-file", str(file)]
    started = [subprocess.Popen([*dask, "scheduler", *place, "--port", "0"], **quiet)]
    try:
        for device in DEVICES:
            environment = os.environ | {"CUDA_VISIBLE_DEVICES": device, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
            environment["PYTHONPATH"] = str(Path(__file__).parents[2])
            worker = [*dask, "worker", *place, "--nworkers", "1", "--nthreads", "1"]
            started.append(subprocess.Popen(worker, env=environment, **quiet))
        deadline = time.monotonic() + 60
        while not file.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        yield json.loads(file.read_text())["address"]
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(30)


class Where:
    """A task that takes a moment and says which device its process sees."""

    def __call__(self) -> str:
        time.sleep(0.1)
        return os.environ["CUDA_VISIBLE_DEVICES"]


def test_every_worker_has_a_device_of_its_own(scheduler: str, tmp_path: Path) -> None:
    with Dask(scheduler) as engine:
        engine.client.wait_for_workers(len(DEVICES), timeout=120)
        assert engine.workers == len(DEVICES)
        assert {device for _, device in engine.run([Where()] * 8)} == set(DEVICES)
        kernel = make(tmp_path / "kernel.zarr", engine=engine, device="cpu")
    assert kernel.complete
    torch.testing.assert_close(kernel.to_tensor(), make(tmp_path / "here.zarr").to_tensor(), rtol=1e-5, atol=1e-5)
