"""The peers' environments: ``.bench-<peer>`` next to the package, made by pip on first use."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import ROOT
from benchmarks.peers import Peer


class NotAvailable(Exception):
    """An environment that could not be made, with the reason."""


def interpreter(peer: Peer, say: Callable[[str], None]) -> Path:
    """Return the Python interpreter of a peer; its environment is made if it is absent or its requirements changed.

    Raises:
        NotAvailable: pip or venv failed; the message is its last complaint.
    """
    return Path(sys.executable) if peer.requirements is None else environment(peer.name, peer.requirements, say)


def environment(name: str, file: str, say: Callable[[str], None]) -> Path:
    """Return the interpreter of the environment of a name, made from a file of requirements in ``benchmarks/``.

    Raises:
        NotAvailable: pip or venv failed; the message is its last complaint.
    """
    requirements = ROOT / "benchmarks" / file
    folder = ROOT / f".bench-{name}"
    python = folder / "bin" / "python"
    stamp = folder / "requirements.sha256"
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    say(f"making the environment {folder.name} from benchmarks/{requirements.name} (once, some minutes)")
    _command(sys.executable, "-m", "venv", "--clear", str(folder))
    _command(str(python), "-m", "pip", "install", "--quiet", "--requirement", str(requirements))
    stamp.write_text(wanted)
    return python


def versions(python: Path, packages: tuple[str, ...]) -> dict[str, str]:
    """Return the installed versions of some packages in that interpreter."""
    code = (
        "import sys, importlib.metadata as m\n"
        "for name in sys.argv[1:]:\n"
        "    try: print(name, m.version(name))\n"
        "    except m.PackageNotFoundError: pass\n"
    )
    done = subprocess.run([str(python), "-c", code, *packages], capture_output=True, text=True, check=False)
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


def _command(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines or ["no message"]
        raise NotAvailable(errors[-1].strip()[:200])
