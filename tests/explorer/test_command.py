"""``tangentlab explore``: from a model, a run with checkpoints, a store; and what it refuses."""

import http.client
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tangentlab import TangentError
from tangentlab.cli import app

MODEL = ("--model", "mlp", "-o", "hidden=(8,)", "--data", "digits", "--n-train", "40", "-q")


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def content(page: Path) -> dict:
    text = page.read_text()
    begin = text.index('<script type="application/json" id="data">') + len('<script type="application/json" id="data">')
    return json.loads(text[begin : text.index("</script>", begin)])


def test_a_run_with_checkpoints(tmp_path: Path) -> None:
    out = tmp_path / "run"
    run("train", *MODEL, "--epochs", "3", "--keep", "1,2", "--out", str(out))
    assert sorted(path.name for path in out.glob("*.pt")) == ["epoch-1.pt", "epoch-2.pt", "start.pt", "weights.pt"]
    page = tmp_path / "page.html"
    facts = json.loads(run("explore", *MODEL, "--run", str(out), "--out", str(page), "-k", "6", "--json"))
    assert facts["checkpoints"] == 4
    shown = content(page)
    assert [state["name"] for state in shown["states"]] == ["start", "epoch 1", "epoch 2", "trained"]
    assert shown["count"] == 40
    assert shown["kind"] == "image"
    assert shown["states"][0]["linear"]["kind"] == "moved"
    with pytest.raises(TangentError, match="--keep"):
        run("train", *MODEL, "--epochs", "3", "--keep", "9", "--out", str(tmp_path / "other"))


def test_a_store_and_own_files(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).normal(size=(20, 5)).astype("float32"), np.arange(20) % 3
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    (tmp_path / "model.py").write_text(
        "import torch\ndef build():\n    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), "
        "torch.nn.Linear(7, 3))\n"
    )
    (tmp_path / "names.txt").write_text("".join(f"row {i}\n" for i in range(20)))
    given = ("--model", f"{tmp_path}/model.py:build", "--data", f"{tmp_path}/x.npy", "--labels", f"{tmp_path}/y.npy")
    page = tmp_path / "own.html"
    run("explore", *given, "--names", f"{tmp_path}/names.txt", "--texts", f"{tmp_path}/names.txt", "-k", "5", "-q",
        "--ridge", "0.1", "--out", str(page))  # fmt: skip
    shown = content(page)
    assert (shown["kind"], shown["names"][3]) == ("text", "row 3")
    assert shown["states"][0]["fit"]["ridge"] == 0.1
    kernel = tmp_path / "kernel.zarr"
    run("kernel", "compute", *given, "--out", str(kernel), "-q")
    run("explore", "--kernel", str(kernel), "-q", "--out", str(page))
    shown = content(page)
    assert shown["kind"] == "row"
    assert shown["labeled"]
    assert shown["states"][0]["linear"]["kind"] == "fitted"
    with pytest.raises(TangentError, match="entries"):
        run("explore", *given, "--texts", f"{tmp_path}/model.py", "-q", "--out", str(tmp_path / "none.html"))
    assert not (tmp_path / "none.html").exists()


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (("--run", "nowhere"), "start.pt"),
        (("--ridge", "much"), "--ridge"),
        (("--texts", "nowhere.txt"), "cannot be read"),
        (("--embedding", "umap"), "embedding"),
        (("--readout", "full", "--kernel", "x.zarr"), "--kernel"),
        (("--run", "x", "--checkpoint", "y.pt"), "Both"),
    ],
)
def test_refusals(arguments: tuple[str, ...], fragment: str, tmp_path: Path) -> None:
    with pytest.raises(TangentError, match=fragment):
        run("explore", *MODEL, *arguments, "--out", str(tmp_path / "page.html"))
    assert list(tmp_path.iterdir()) == []


def test_serving_until_interrupted(tmp_path: Path) -> None:
    command = ["explore", *MODEL, "-k", "4", "--serve", "--json"]
    code = "import sys; from tangentlab.cli import main; sys.argv[0] = 'tangentlab'; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        cwd=tmp_path, env={**os.environ, "PYTHONUNBUFFERED": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )  # fmt: skip
    try:
        assert process.stdout is not None
        text = ""
        while not text.rstrip().endswith("}"):
            line = process.stdout.readline()
            assert line, process.stderr.read() if process.stderr else ""
            text += line
        address = json.loads(text)["address"]
        host, port = address.removeprefix("http://").rstrip("/").split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=10)
        connection.request("GET", "/")
        assert b"tangentlab" in connection.getresponse().read()
        connection.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
        assert list(tmp_path.iterdir()) == []
    finally:
        process.kill()
