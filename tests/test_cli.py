"""The command line as a user calls it: real processes, exit codes, messages."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from rich.console import Console

import tangentlab
from tangentlab.demo import NO_REPLICATES, settings, summarize
from tangentlab.experiments import available, spec_of


def call(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from tangentlab.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_version() -> None:
    assert call("--version").stdout.strip() == f"tangentlab {tangentlab.__version__}"


def test_demo(tmp_path: Path) -> None:
    result = call("demo", "--kernel-only", "--out", str(tmp_path / "new" / "folder"))
    assert result.returncode == 0, result.stderr
    kernel = np.load(tmp_path / "new" / "folder" / "kernel.npy")
    assert np.array_equal(kernel, kernel.T)
    assert np.linalg.eigvalsh(kernel).min() > -1e-10 * kernel.diagonal().max()
    assert f"{kernel.shape}" in result.stdout
    picture = imread(tmp_path / "new" / "folder" / "kernel.png")
    assert picture.shape[0] > 400
    assert picture.std() > 0.05


@pytest.mark.parametrize("arguments", [("demo", "--out", "/proc/tangentlab"), ("dmeo",), ("demo", "--seed", "one")])
def test_bad_arguments(arguments: tuple[str, ...]) -> None:
    result = call(*arguments)
    assert result.returncode != 0
    assert "Traceback" not in result.stderr
    assert "rror" in result.stderr


def test_what_the_demo_runs() -> None:
    """Every experiment takes the demo's settings, and every one that can have replicates has them."""
    for experiment in available():
        spec = spec_of(experiment, "tiny", settings(experiment.id))
        assert (spec.seeds >= 3) == (experiment.id not in NO_REPLICATES)
    console = Console(record=True, width=100)
    summarize([], console)
    assert "What the papers said" in console.export_text()


def test_warnings_of_the_library_are_one_line_of_text() -> None:
    program = """
import warnings
from tangentlab import linalg
from tangentlab._warnings import show_plainly, shown_plainly
from tangentlab.engines import process_pool
from tangentlab.experiments._workers import Workers

if __name__ == "__main__":
    show_plainly()
    warnings.warn_explicit("The residual is large.", RuntimeWarning, linalg.__file__, 1)
    warnings.warn_explicit("Not ours.", UserWarning, "other.py", 1)
    for pool in (process_pool(1), Workers(2).executor(2)):
        with pool:
            print(pool.submit(shown_plainly).result())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.stderr.splitlines() == ["Warning: The residual is large.", "other.py:1: UserWarning: Not ours."]
    assert done.stdout.split() == ["True", "True"]
