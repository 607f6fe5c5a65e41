"""Everything runs on one device: the tests of tests/devices, in a process of their own."""

import os
import subprocess
import sys
from pathlib import Path


def test_no_tensor_of_another_device_slips_in() -> None:
    folder = Path(__file__).parent / "devices"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(folder)]
    environment = os.environ | {"TANGENTLAB_PRETENDED_DEVICE": "1"}
    done = subprocess.run(command, cwd=folder.parents[1], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
