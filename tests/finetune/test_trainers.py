"""Linearized models under the trainers of transformers and Lightning: killed runs resume bit for bit."""

import subprocess
import sys
from pathlib import Path

import pytest

from docs.build_examples import DOCS

NEEDED = {"trainer": ("transformers", "accelerate"), "lightning": ("transformers", "lightning")}


def run(library: str, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-m", "tests.finetune.trainer_script", library, str(folder), *more]
    return subprocess.run(command, capture_output=True, text=True, cwd=DOCS.parent, timeout=900)


@pytest.mark.parametrize("library", NEEDED)
def test_a_killed_run_resumes_bit_for_bit(library: str, tmp_path: Path) -> None:
    for package in NEEDED[library]:
        extra = "huggingface" if library == "trainer" else "lightning"
        pytest.importorskip(package, reason=f"{package} is not installed: pip install '.[{extra}]'")
    whole = run(library, tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr
    killed = run(library, tmp_path / "killed", "--die", "8")
    assert killed.returncode == -9, killed.stderr
    saved = {path.name for path in (tmp_path / "killed").iterdir()}
    assert any("6" in name for name in saved)
    assert not any("9" in name or "12" in name for name in saved)
    resumed = run(library, tmp_path / "killed")
    assert resumed.returncode == 0, resumed.stderr
    assert len(whole.stdout.split()[-1]) == 64
    assert resumed.stdout.split()[-1] == whole.stdout.split()[-1]


@pytest.mark.parametrize(
    ("options", "same"),
    [
        pytest.param(("--resumable",), True, id="linearization, loader with a state"),
        pytest.param(("--network",), False, id="network, plain loader"),
    ],
)
def test_lightning_within_an_epoch(options: tuple[str, ...], same: bool, tmp_path: Path) -> None:
    """Lightning restores the position of loaders that have a state, and of no other, whatever the model is."""
    for package in NEEDED["lightning"]:
        pytest.importorskip(package, reason=f"{package} is not installed: pip install '.[lightning]'")
    whole = run("lightning", tmp_path / "whole", "--within", *options)
    killed = run("lightning", tmp_path / "killed", "--within", *options, "--die", "8")
    assert killed.returncode == -9, killed.stderr
    assert "step=8.ckpt" in {path.name for path in (tmp_path / "killed").iterdir()}
    resumed = run("lightning", tmp_path / "killed", "--within", *options)
    assert whole.returncode == resumed.returncode == 0, whole.stderr + resumed.stderr
    assert (resumed.stdout.split()[-1] == whole.stdout.split()[-1]) is same
