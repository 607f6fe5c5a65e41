"""``tangentlab kernel`` as a user calls it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from tangentlab import models, ntk
from tangentlab._cli._recipe import Recipe, parse_options
from tangentlab._errors import TangentError
from tangentlab.cli import app
from tangentlab.data import load
from tangentlab.store import StoredKernel

MLP = ["--model", "mlp", "-o", "outputs=1", "-o", "seed=0", "-o", "hidden=[20]"]
DIGITS = ["--data", "digits", "--n-train", "120"]


def call(*arguments: Any) -> Any:
    """A command in this process."""
    return CliRunner().invoke(app, ["kernel", *map(str, arguments)])


def good(*arguments: Any) -> str:
    result = call(*arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


def expected() -> torch.Tensor:
    model = models.build("mlp", outputs=1, seed=0, hidden=[20], input_shape=(1, 8, 8)).eval()
    return ntk(model, load("digits", n_train=120).train.inputs(), readout="pntk")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "kernel.zarr"
    good("compute", *MLP, *DIGITS, "--out", path, "--tile", 50, "-q")
    return path


def test_compute_info_verify(made: Path) -> None:
    torch.testing.assert_close(StoredKernel(made).to_tensor(), expected(), rtol=1e-4, atol=1e-4)
    about = json.loads(good("info", made, "--json"))
    assert about["shape"] == [120, 120]
    assert about["complete"] is True
    assert about["manifest"]["provenance"]["recipe"]["model_options"] == {"outputs": 1, "seed": 0, "hidden": [20]}
    assert "MLP" in good("info", made)
    assert "6 tiles checked, 0 damaged" in good("verify", made)
    assert json.loads(good("resume", made, "-q", "--json"))["complete"] is True


def test_shards_and_resume(tmp_path: Path) -> None:
    path = tmp_path / "kernel.zarr"
    state = json.loads(good("compute", *MLP, *DIGITS, "--out", path, "--tile", 50, "--shard", "1/2", "-q", "--json"))
    assert 0 < state["progress"] < 1
    assert json.loads(good("resume", path, "--shard", "0/2", "-q", "--json"))["complete"] is True
    torch.testing.assert_close(StoredKernel(path).to_tensor(), expected(), rtol=1e-4, atol=1e-4)


def test_verify_repairs(made: Path) -> None:
    before = StoredKernel(made).to_tensor()
    chunk = made / "c" / "0" / "1"
    chunk.write_bytes(b"\0" + chunk.read_bytes()[1:])
    result = call("verify", made)
    assert result.exit_code == 1
    assert "tile 0/1" in result.stdout
    assert json.loads(good("verify", made, "--repair", "-q", "--json"))["damaged"] == [[0, 1]]
    assert torch.equal(StoredKernel(made).to_tensor(), before)


def test_verify_of_an_unfinished_store(tmp_path: Path) -> None:
    """Missing tiles have an exit code of their own, and --repair computes them."""
    path = tmp_path / "kernel.zarr"
    good("compute", *MLP, *DIGITS, "--out", path, "--tile", 50, "--shard", "1/2", "-q")
    result = call("verify", path)
    assert result.exit_code == 3
    assert "0 damaged, 3 missing" in result.stdout
    assert json.loads(good("verify", path, "--repair", "-q", "--json"))["repaired"] is True
    assert "0 missing" in good("verify", path)


def test_info_is_written_for_people(made: Path) -> None:
    said = good("info", made)
    assert "model options outputs=1 seed=0 hidden=[20]" in " ".join(said.split())
    assert "{" not in said


def test_status_of_a_complete_store(made: Path) -> None:
    assert "6 of 6 tiles done, 100.0% of the entries, complete" in " ".join(good("status", made).split())
    assert json.loads(good("status", made, "--json"))["seconds_left"] == 0


def test_the_estimate_counts_the_processes(tmp_path: Path) -> None:
    path = tmp_path / "kernel.zarr"
    said = good("compute", *MLP, *DIGITS, "--out", path, "--dry-run", "--workers", 2, "--memory", "1GiB")
    assert "2 processes" in said
    assert "per process" in said
    about = json.loads(good("compute", *MLP, *DIGITS, "--out", path, "--dry-run", "--workers", 2, "--json"))
    assert (about["workers"], about["processes"]) == (1, 2)
    about = json.loads(good("compute", *MLP, *DIGITS, "--out", path, "--dry-run", "--shard", "0/3", "--json"))
    assert (about["workers"], about["processes"]) == (3, 1)


def test_plan_by_the_shape_of_the_inputs() -> None:
    arguments = ["plan", "--model", "lenet", "-o", "outputs=5", "--samples", "3000"]
    said = " ".join(good(*arguments, "--shape", "3,40,40").split())
    assert "512 random inputs, shape 3 x 40 x 40" in said
    assert "3000 x 3000 kernel of 3000 samples" in said
    said = " ".join(good("plan", *MLP, *DIGITS, "--samples", "3000").split())
    assert "120 samples of digits, shape 1 x 8 x 8" in said
    assert "pass it as --shape" in said
    row = json.loads(good(*arguments, "--shape", "3,40,40", "--json"))[0]
    assert "3 x 40 x 40" in row["assumptions"][0]


def test_plan_compares_methods() -> None:
    arguments = ["plan", *MLP, *DIGITS, "--samples", "3000,2000000", "--workers", "4", "--features", "64"]
    small, large = json.loads(good(*arguments, "--price", "2.5", "--json"))
    names = ["Cholesky on one machine", "Cholesky in a Dask cluster", "block coordinate descent", "sketched regression"]
    for row in (small, large):
        assert [cost["method"] for cost in row["methods"]] == names
        for cost in row["methods"]:
            assert cost["price"] == pytest.approx(2.5 * cost["machines"] * cost["seconds"] / 3600)
    assert small["choose"] in names[:3]
    assert not small["methods"][0]["obstacle"]
    assert small["methods"][0]["memory"] >= 4 * 3000**2
    assert "of memory" in large["methods"][0]["obstacle"]  # 16 TB
    assert large["methods"][1]["network"] > 4 * 4 * 2_000_000**2
    assert any("Dask takes 1 ms" in line for line in large["assumptions"])
    said = " ".join(good(*arguments, "--methods", "--within", "1e-9").split())
    assert "choose: none takes at most" in said
    assert "not possible: a machine has" in said
    assert "price" not in said


def test_plan_for_tokens(tmp_path: Path) -> None:
    source = tmp_path / "words.py"
    source.write_text(
        "from torch import nn\n"
        "def words():\n"
        "    return nn.Sequential(nn.Embedding(50, 4), nn.Flatten(), nn.Linear(28, 2)).eval()\n"
    )
    said = " ".join(
        good("plan", "--model", f"{source}:words", "--shape", "7", "--vocabulary", "50", "--samples", "9").split()
    )
    assert "512 inputs of random tokens below 50, shape 7" in said


def test_export(made: Path, tmp_path: Path) -> None:
    good("export", made, "--out", tmp_path / "k.npy")
    assert np.array_equal(np.load(tmp_path / "k.npy"), StoredKernel(made).to_tensor().numpy())
    good("export", made, "--out", tmp_path / "k.zarr.zip", "--dtype", "float16")
    good("export", tmp_path / "k.zarr.zip", "--out", tmp_path / "k.zarr")
    assert StoredKernel(tmp_path / "k.zarr").dtype == torch.float16
    assert call("export", made, "--out", tmp_path / "k.txt").exit_code == 1


def test_dry_run_and_plan(tmp_path: Path) -> None:
    path = tmp_path / "kernel.zarr"
    said = json.loads(good("compute", *MLP, *DIGITS, "--out", path, "--dry-run", "--json"))
    assert not path.exists()
    assert said["samples"] == 120
    assert said["disk"] == 120**2 * 4 + 4  # one tile
    assert said["seconds"] > 0
    table = json.loads(good("plan", *MLP, *DIGITS, "--samples", "60000,1280000", "--workers", "1,64", "--json"))
    assert [(row["samples"], row["workers"]) for row in table] == [(60000, 1), (60000, 64), (1280000, 1), (1280000, 64)]
    assert table[2]["contract_seconds"] == pytest.approx(table[3]["contract_seconds"] * 64)
    assert 60000**2 * 2 < table[0]["disk"] < 60000**2 * 2.3
    assert "1280000 x 1280000 kernel" in good("plan", *MLP, *DIGITS, "--samples", "1280000")


def test_a_factory_and_a_checkpoint(tmp_path: Path) -> None:
    source = tmp_path / "mine.py"
    source.write_text("from torch import nn\n\n\ndef build(width=3):\n    return nn.Linear(width, 2)\n")
    weights = {"weight": torch.randn(2, 4), "bias": torch.randn(2)}
    torch.save({"state_dict": weights}, tmp_path / "weights.pt")
    x = torch.randn(11, 4)
    np.save(tmp_path / "x.npy", x.numpy())
    torch.save(x, tmp_path / "x.pt")
    model = ["--model", f"{source}:build", "-o", "width=4", "--checkpoint", tmp_path / "weights.pt"]
    for number, data in enumerate(("x.npy", "x.pt")):
        path = tmp_path / f"{number}.zarr"
        good("compute", *model, "--data", tmp_path / data, "--readout", "1", "--out", path, "-q", "--dtype", "float64")
        torch.testing.assert_close(StoredKernel(path).to_tensor(), x.double() @ x.double().T + 1)
    recipe = Recipe(f"{source}:build", {"width": 4}, str(tmp_path / "weights.pt"))
    assert torch.equal(recipe.load_model().weight, weights["weight"])


FACTORY = """
import torch
from torch import nn


def {name}(x):
    return {code}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x):
        hidden = {name}(self.one(x))
        return self.two(torch.where(hidden > 100, {rare} * hidden, hidden))  # {comment}


def build():
    return Net()
"""


@pytest.mark.parametrize("edit", [{"code": "x.relu()"}, {"code": "2 * x.tanh()"}, {"rare": "3"}])
def test_an_edited_factory_is_refused(edit: dict[str, str], tmp_path: Path) -> None:
    """The weights are the same, the network is another one, if only for samples that are rare."""
    source, path, packed = tmp_path / "mine.py", tmp_path / "kernel.zarr", tmp_path / "kernel.zip"
    plain = {"name": "act", "code": "x.tanh()", "rare": "2", "comment": ""}
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32))
    np.save(tmp_path / "y.npy", np.arange(30) % 2)
    command = ["compute", "--model", f"{source}:build", "--data", tmp_path / "x.npy", "--out", path, "--tile", 10, "-q"]
    regress = ["regress", "--labels", tmp_path / "y.npy", "--n-train", "20", "--ridge", "1", "--no-prior", "-q"]
    source.write_text(FACTORY.format(**plain))
    good(*command, "--shard", "0/2")
    source.write_text(FACTORY.format(**plain | edit))
    for attempt in (command, [*command, "--shard", "1/2"], [*command, "--workers", 2], ["resume", path, "-q"]):
        assert "holds another kernel" in str(call(*attempt).exception)
    source.write_text(FACTORY.format(**plain | {"comment": "written about later"}))
    good("resume", path, "-q")
    good("export", path, "--out", packed, "--dtype", "float16")
    good("verify", path, "--repair", "-q")
    source.write_text(FACTORY.format(**plain | edit))
    chunk = path / "c" / "0" / "1"
    damaged = b"\0" + chunk.read_bytes()[1:]
    chunk.write_bytes(damaged)
    assert "holds another kernel" in str(call("verify", path, "--repair").exception)
    assert chunk.read_bytes() == damaged
    for kernel in (path, packed):
        result = CliRunner().invoke(app, [*map(str, regress), "--kernel", str(kernel)])
        assert "holds another kernel" in str(result.exception), result.output
    source.write_text(FACTORY.format(**plain))
    result = CliRunner().invoke(app, [*map(str, regress), "--kernel", str(packed)])
    assert result.exit_code == 0, (result.output, result.exception)


def test_safetensors(tmp_path: Path) -> None:
    save = pytest.importorskip("safetensors.torch").save_file
    model = models.build("mlp", outputs=1, hidden=[20], input_shape=(1, 8, 8))
    save(model.state_dict(), tmp_path / "w.safetensors")
    options = {"outputs": 1, "hidden": [20], "input_shape": (1, 8, 8)}
    loaded = Recipe("mlp", options, str(tmp_path / "w.safetensors")).load_model()
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), model.parameters(), strict=True))


def test_options_are_python_values() -> None:
    assert parse_options(["width=2", "init=lecun", "hidden=[3, 4]", "flag=True"]) == {
        "width": 2,
        "init": "lecun",
        "hidden": [3, 4],
        "flag": True,
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compute", "--data", "digits", "--out", "k"], "--model is missing"),
        (["compute", "--model", "mlp", "--out", "k"], "--data is missing"),
        (["compute", "--model", "lenett", "--data", "digits", "--out", "k"], "lenett"),
        (["compute", *MLP, "--data", "digitz", "--out", "k"], "digitz"),
        (["compute", *MLP, "--data", "none.npy", "--out", "k"], "There is no file of samples"),
        (["compute", "--model", "none.py:build", *DIGITS, "--out", "k"], "There is no model file"),
        (["compute", "--model", "none:build", *DIGITS, "--out", "k"], "Write a name of tangentlab.models"),
        (["compute", *MLP, "-o", "widht=2", *DIGITS, "--out", "k"], "widht"),
        (["compute", *MLP, "-o", "2", *DIGITS, "--out", "k"], "name=value"),
        (["compute", *MLP, "--checkpoint", "none.pt", *DIGITS, "--out", "k"], "There is no checkpoint"),
        (["compute", *MLP, *DIGITS, "--out", "k", "--dtype", "int8"], "int8"),
        (["compute", *MLP, *DIGITS, "--out", "k", "--memory", "much"], "memory_budget"),
        (["compute", *MLP, *DIGITS, "--out", "k", "--split", "half"], "no split"),
        (["compute", *MLP, *DIGITS, "--out", "k", "--shard", "2/2"], "does not exist"),
        (["compute", *MLP, *DIGITS, "--out", "k", "--shard", "0/2", "--workers", "2"], "A shard is one process"),
        (["compute", *MLP, *DIGITS, "--out", "k", "--readout", "seven"], "seven"),
        (["resume", "none.zarr"], "does not exist"),
        (["plan", *MLP, *DIGITS, "--samples", "many"], "positive numbers"),
        (["plan", *MLP, *DIGITS, "--samples", "9", "--shape", "3,8,8"], "Both --data and --shape"),
        (["plan", *MLP, "--samples", "9", "--shape", "3,x"], "positive numbers"),
        (["plan", *MLP, "--shape", "3,8,8"], "--samples is missing"),
        (["plan", *MLP, *DIGITS, "--vocabulary", "9"], "without --shape"),
        (["plan", *MLP, *DIGITS, "--price", "-1"], "The price is -1"),
        (["plan", *MLP, *DIGITS, "--methods", "--bandwidth", "0"], "--bandwidth is 0"),
        (["status", "none.zarr"], "does not exist"),
    ],
)
def test_errors(arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = call(*arguments)
    assert isinstance(result.exception, TangentError)  # main() turns it into a message and exit code 1
    assert message in str(result.exception)
    assert not list(tmp_path.iterdir())


def start(*arguments: Any, group: bool = False) -> subprocess.Popen[str]:
    # A shell has its background processes ignore Ctrl-C, and what these start inherits that.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{heard}; from tangentlab.cli import main; main()"
    command = [sys.executable, "-c", program, "kernel", *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, **streams, env=environment, start_new_session=group)


@pytest.mark.parametrize("scheduler", [[], ["--scheduler", "local"]])
def test_ctrl_c_says_how_to_go_on(scheduler: list[str], tmp_path: Path) -> None:
    """A terminal sends Ctrl-C to all processes, workers included; one message is printed."""
    if scheduler:
        pytest.importorskip("distributed")
    path = tmp_path / "kernel.zarr"
    work = ["--tile", 15, "--workers", "2", *scheduler]
    process = start("compute", *MLP, "--data", "digits", "--out", path, *work, group=True)
    deadline = time.monotonic() + 120
    while len(list(path.glob("c/*/*"))) < 5 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert f"tangentlab kernel resume {path}" in errors.replace("\n", "")
    assert "Traceback" not in errors
    assert "distributed" not in errors
    assert "1437 x 1437 kernel" in errors  # the estimate
    assert "2 processes" in errors
    assert 0 < StoredKernel(path).progress < 1
    assert StoredKernel(path).verify().good


def test_a_refusal_is_a_message(tmp_path: Path) -> None:
    process = start("info", tmp_path)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "Error:" in errors
    assert "Traceback" not in errors
