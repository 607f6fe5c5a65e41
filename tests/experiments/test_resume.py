"""A real process of ``reproduce`` is killed; the next one repeats nothing that was finished."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

NAMES = ("ortiz2021/fig12", "samarin2022/figA3")


def start(out: Path) -> subprocess.Popen[str]:
    code = "from tangentlab.cli import main; main()"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    arguments = ["reproduce", *NAMES, "--out", str(out), "--json"]
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def stamps(out: Path) -> dict[str, int]:
    """When each finished unit of work was written."""
    return {path.name: path.stat().st_mtime_ns for path in (out / "work").glob("*.pt")}


def test_killed_and_run_again(tmp_path: Path) -> None:
    process = start(tmp_path)
    deadline = time.monotonic() + 120
    while len(stamps(tmp_path)) < 3 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    finished = stamps(tmp_path)
    assert len(finished) >= 3
    done = [name for name in NAMES if (tmp_path / name / "record.json").exists()]
    assert len(done) < len(NAMES), "it was killed too late to show anything"

    second = start(tmp_path)
    output, errors = second.communicate(timeout=120)
    assert second.returncode == 0, errors
    records = {record["id"]: record for record in json.loads(output)}
    assert set(records) == set(NAMES)
    after = stamps(tmp_path)
    assert {name: after[name] for name in finished} == finished  # untouched
    computed = sum(records[name]["work"]["computed"] for name in NAMES if name not in done)
    assert computed == len(after) - len(finished)
    assert not list((tmp_path / "work").glob("*.run")), "checkpoints of finished runs are left"

    third = start(tmp_path)
    output, _ = third.communicate(timeout=120)
    assert {record["id"]: record for record in json.loads(output)} == records  # found as they are
    assert stamps(tmp_path) == after
