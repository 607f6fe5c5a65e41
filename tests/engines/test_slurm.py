"""What Slurm's commands say becomes an error with a remedy that fits."""

import os
from pathlib import Path

import pytest

from tangentlab import TangentError
from tangentlab.engines._slurm import slurm_queue


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", "login node"),
        ("squeue: fatal: Could not establish a configuration source", "login node"),
        ("squeue: error: Invalid time limit specification", "Change the request"),
        ("", "Change the request"),
    ],
)
def test_a_failed_command(said: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "squeue"
    command.write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(TangentError, match=remedy) as caught:
        slurm_queue("kernel")
    assert said in str(caught.value)
