"""``tangentlab kernel submit --slurm`` and ``status`` against a real Slurm."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tangentlab import TangentError, models, ntk
from tangentlab.data import load
from tangentlab.engines import Dask, Resources, Shard, array_of, slurm_queue, slurm_script
from tangentlab.store import StoredKernel, missing_shards, status
from tangentlab.store._array import present
from tangentlab.store._tiles import units
from tests import slurm_cluster
from tests.store.problems import make
from tests.test_cli_kernel import MLP, call, good

SAMPLES, SHARDS = 400, 4
DIGITS = ["--data", "digits", "--n-train", SAMPLES]
SUBMIT = ["submit", "--slurm", "--shards", SHARDS, "--cpus", 2, "--sbatch=--export=ALL,OMP_NUM_THREADS=1", "--json"]


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    slurm_cluster.require()
    with slurm_cluster.running(tmp_path / "slurm") as environment:
        for name in ("SLURM_CONF", "PATH"):
            monkeypatch.setenv(name, environment[name])
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
        yield


def until(true: Callable[[], Any], logs: Path, seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            pytest.fail(str({path.name: path.read_text()[-2000:] for path in logs.glob("*.log")}))
        time.sleep(0.02)


def test_a_task_is_canceled_and_submitted_again(slurm: None, tmp_path: Path) -> None:
    path, logs = tmp_path / "kernel.zarr", tmp_path / "kernel.zarr.logs"
    first = json.loads(good(*SUBMIT, *MLP, *DIGITS, "--tile", 8, "--out", path))
    assert first["shards"] == [0, 1, 2, 3]
    assert sorted(slurm_queue(first["name"])) == [0, 1, 2, 3]
    assert json.loads(good(*SUBMIT, "--out", path))["job"] is None, "what is queued is not submitted twice"
    groups = units(StoredKernel(path).plan, SHARDS)
    share = [{tile for group in Shard(index, SHARDS).share(groups) for tile in group} for index in range(SHARDS)]
    until(lambda: status(path).running, logs)
    on_the_way = status(path)
    assert 0 < len(on_the_way.running) <= 2, "two tasks of two cores at a time"
    assert not on_the_way.complete
    until(lambda: all(present(path) & share[index] for index in (2, 3)), logs)
    subprocess.run(["scancel", f"{first['job']}_3"], check=True)
    until(lambda: not slurm_queue(first["name"]), logs)
    stopped = json.loads(good("status", path, "--json"))
    assert missing_shards(path, SHARDS) == [3]
    assert stopped["done"] == stopped["tiles"] - len(share[3] - present(path)) < stopped["tiles"]
    assert (stopped["running"], stopped["dead"], stopped["seconds_left"]) == (0, 1, None)
    assert "0 running, 1 dead" in good("status", path)
    assert "no worker is running" in good("status", path)

    second = json.loads(good(*SUBMIT, "--out", path))
    assert second["shards"] == [3]
    until(lambda: StoredKernel(path).complete, logs)
    until(lambda: not slurm_queue(first["name"]), logs)
    assert status(path).complete
    assert json.loads(good(*SUBMIT, "--out", path))["shards"] == []
    model = models.build("mlp", outputs=1, seed=0, hidden=[20], input_shape=(1, 8, 8)).eval()
    expected = ntk(model, load("digits", n_train=SAMPLES).train.inputs(), readout="pntk")
    torch.testing.assert_close(StoredKernel(path).to_tensor(), expected, rtol=1e-4, atol=1e-4)


def test_dask_workers_are_jobs(slurm: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dask_jobqueue")
    resources = Resources(2, 1024**3, 600)
    settings = {"interface": "lo", "log_directory": str(tmp_path), "scheduler_options": {"dashboard_address": None}}
    with Dask.on_slurm(1, resources, **settings) as engine:
        kernel = make(tmp_path / "kernel.zarr", engine=engine)
        said = subprocess.run(["squeue", "-h", "-o", "%C %m %l"], capture_output=True, text=True, check=True).stdout
    assert kernel.complete
    assert said.split() == ["2", "1G", "10:00"]
    torch.testing.assert_close(kernel.to_tensor(), make(tmp_path / "here.zarr").to_tensor(), rtol=1e-5, atol=1e-5)


def test_the_script(tmp_path: Path) -> None:
    """The request grows with the work, and options of the user prevail. Nothing is created."""
    arguments = [
        "submit",
        "--slurm",
        *MLP,
        "--data",
        "digits",
        "--out",
        tmp_path / "k.zarr",
        "--shards",
        6,
        "--dry-run",
    ]
    script = good(*arguments, "--cpus", 3, "--sbatch=--partition=long", "--time", "1-00:00:00")
    assert "#SBATCH --array=0-5\n" in script
    assert "#SBATCH --cpus-per-task=3\n" in script
    assert "#SBATCH --partition=long\n" in script
    assert script.count("--time=") == 1
    assert "--time=1-00:00:00" in script
    assert "OMP_NUM_THREADS=3" in script
    assert '--shard "$SLURM_ARRAY_TASK_ID/6"' in script
    assert not list(tmp_path.iterdir())
    memory = int(script.partition("--mem=")[2].partition("M")[0])
    assert 1024 < memory < 4096
    assert call("submit", *MLP, "--data", "digits", "--out", tmp_path / "k.zarr").exit_code == 1
    refused = call(*arguments, "--sbatch=partition")
    assert "option of sbatch" in str(refused.exception)


def test_requests() -> None:
    assert array_of([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"
    small, large = Resources.of_work(2, 1024**3, 60), Resources.of_work(2, 30 * 1024**3, 50 * 3600)
    assert small.time == "00:12:00"
    assert large.time == "4-04:10:00"
    assert large.mebibytes == 41 * 1024
    assert "#SBATCH --mem=2390M" in slurm_script("name", "true", [0], small)
    with pytest.raises(TangentError, match="resources"):
        Resources(0, 1, 1)


def test_no_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = call(*SUBMIT, *MLP, "--data", "digits", "--n-train", 60, "--out", tmp_path / "k.zarr")
    assert "There is no sbatch here" in str(result.exception)
    assert "login node" in result.exception.remedy
    assert not (tmp_path / "k.zarr").exists()
