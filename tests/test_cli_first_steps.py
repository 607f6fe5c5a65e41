"""The first minutes on the command line: what to do next, completion, and suggestions for misspelled words."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tangentlab._cli._welcome import EXAMPLES
from tangentlab._suggestions import did_you_mean

COMMANDS = [command for _, commands in EXAMPLES for command in commands]
PROGRAM = "import sys; sys.argv[0] = 'tangentlab'; from tangentlab.cli import main; main()"


def call(*arguments: str, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "120", "TERM": "dumb", **variables}
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, cwd=cwd, env=environment)


def test_without_arguments() -> None:
    done = call()
    assert done.returncode == 0, done.stderr
    assert all(command in done.stdout for command in COMMANDS)
    assert len(done.stdout.splitlines()) < 24


def test_the_examples_run(tmp_path: Path) -> None:
    """As they are printed, one after the other, in one folder; with less training."""
    (tmp_path / "net.py").write_text("import torch\n\n\ndef build():\n    return torch.nn.Linear(5, 2)\n")
    code = "import numpy; numpy.save('samples.npy', numpy.random.default_rng(0).normal(size=(9, 5)).astype('float32'))"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    for command in COMMANDS:
        name, *arguments = shlex.split(command.replace("--epochs 5", "--epochs 1"))
        assert name == "tangentlab"
        small = ["--n-train", "60"] if "digits" in arguments else []
        done = call(*arguments, *small, cwd=tmp_path)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["kernle"], "'kernel'"),
        (["kernel", "comptue"], "'compute'"),
        (["train", "--modle", "mlp"], "--model"),
        (["spectrum", "--model", "lenett", "--data", "digits"], "Did you mean 'lenet'?"),
        (["spectrum", "--model", "mlp", "--data", "dgits"], "Did you mean 'digits'?"),
        (["spectrum", "--model", "mlp", "--data", "digits", "--n-train", "20", "--readout", "pnkt"], "mean 'pntk'?"),
        (["select", "--method", "lmcd", "--model", "mlp", "--data", "digits", "--count", "3"], "mean 'lcmd'?"),
    ],
)
def test_misspelled_words(arguments: list[str], hint: str) -> None:
    done = call(*arguments)
    assert done.returncode in (1, 2)
    assert hint in " ".join(re.sub(r"[│\s]+", " ", done.stderr).split())
    assert "Traceback" not in done.stderr


def test_did_you_mean() -> None:
    assert did_you_mean("LENETT", ["lenet", "mlp"]) == "Did you mean 'lenet'? "
    assert did_you_mean("fig", ["fig1", "fig2", "x"], most=2) == "Did you mean 'fig2' or 'fig1'? "
    assert did_you_mean("xyz", ["lenet"]) == ""


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_completion_script(tmp_path: Path) -> None:
    """In a bash, as for a user: the program asks which shell started it."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = shlex.join([sys.executable, str(program), "--show-completion"])
    script = subprocess.run(["bash", "-c", f"{command}; exit $?"], capture_output=True, text=True, timeout=200)
    assert script.returncode == 0, script.stderr
    assert "complete -o default -F _tangentlab_completion tangentlab" in script.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [("tangentlab ker", "kernel"), ("tangentlab kernel comp", "compute"), ("tangentlab train --epo", "--epochs")],
)
def test_completion(words: str, expected: str) -> None:
    """What bash asks the program for when Tab is pressed."""
    number = str(len(words.split()) - 1)
    done = call(_TANGENTLAB_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=number)
    assert expected in done.stdout.split(), done.stderr
