"""An empty environment with tangentlab installed from a built file, and what that takes."""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TIMEOUT = 3600
SMOKE = Path(__file__).with_name("smoke.py")


class Failure(Exception):
    """A step that did not work, with the end of its output."""


@dataclass(frozen=True)
class Case:
    """What is installed where.

    Attributes:
        name: Name of the environment.
        kind: ``"whl"`` or ``"tar.gz"``.
        extras: The extras to install.
        constraints: Versions, as pip's constraints.
    """

    name: str
    kind: str
    extras: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()


@dataclass
class Outcome:
    """What a case took.

    Attributes:
        case: The case.
        packages: The number of installed packages, tangentlab included.
        downloaded: Bytes of the files that were installed.
        installed: Bytes of the installed packages.
        seconds: Of each step.
        versions: Of the installed packages.
        checked: What the checks inside the environment report.
    """

    case: Case
    packages: int = 0
    downloaded: int = 0
    installed: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    checked: dict[str, Any] = field(default_factory=dict)


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a command outside of the checkout's influence, and return its output.

    Raises:
        Failure: Its exit code is not 0.
    """
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")}
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=TIMEOUT, cwd=cwd, env=environment
    )
    if done.returncode:
        output = (done.stdout + done.stderr).strip().splitlines()
        raise Failure("\n".join([" ".join(map(str, command)), *output[-25:]]))
    return done.stdout


def check(case: Case, dist: Path, out: Path) -> Outcome:
    """Download, install and check one case in a new environment below ``out``.

    Args:
        case: What to install.
        dist: Folder of the built files.
        out: Folder for the environment.

    Raises:
        Failure: pip or a check failed.
    """
    outcome = Outcome(case)
    folder = out / case.name
    folder.mkdir(parents=True)
    built = next(dist.glob(f"*.{case.kind}"))
    wanted = f"{built}[{','.join(case.extras)}]" if case.extras else str(built)
    limits = folder / "constraints.txt"
    limits.write_text("\n".join(case.constraints) + "\n")
    environment, files = folder / "environment", folder / "files"
    _timed(outcome, "create", lambda: run(sys.executable, "-m", "venv", environment))
    python = environment / "bin" / "python"
    pip = (python, "-m", "pip", "--disable-pip-version-check", "--quiet")
    _timed(outcome, "download", lambda: run(*pip, "download", "-c", limits, "-d", files, wanted))
    outcome.downloaded = sum(path.stat().st_size for path in files.iterdir())
    before = _size(python)
    # A source distribution is built here, for which pip gets the build backend from the index.
    offline = ("--no-index",) if case.kind == "whl" else ()
    _timed(outcome, "install", lambda: run(*pip, "install", *offline, "--find-links", files, "-c", limits, wanted))
    outcome.installed = _size(python) - before
    run(*pip, "check")
    listed = json.loads(run(*pip[:-1], "list", "--format", "json"))  # which --quiet would silence
    outcome.versions = {entry["name"].lower(): entry["version"] for entry in listed}
    outcome.packages = len(outcome.versions.keys() - {"pip", "setuptools"})
    home = folder / "home"
    home.mkdir()
    report = _timed(outcome, "checks", lambda: run(python, SMOKE, *case.extras, cwd=home))
    outcome.checked = json.loads(report.strip().splitlines()[-1])
    return outcome


def _timed(outcome: Outcome, name: str, step: Any) -> Any:
    begin = time.perf_counter()
    result = step()
    outcome.seconds[name] = time.perf_counter() - begin
    return result


def _size(python: Path) -> int:
    """Return the bytes of the packages of an environment, without compiled files, which depend on what was imported."""
    folder = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc")
