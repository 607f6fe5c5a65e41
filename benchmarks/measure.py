"""One measurement in its own process.

:func:`run` starts ``python -m benchmarks.measure SPEC`` with the interpreter of the peer's environment and reads
what it left behind. The child times the kernel after a warm-up on the full problem, watches its own peak memory
from the moment that network and inputs exist, and saves the kernel for comparison.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import memory
from benchmarks.cases import Case, Problem
from benchmarks.peers import PEERS, Setting, Unsuitable

ROOT = Path(__file__).resolve().parent.parent
PREPARE_LIMIT = 600.0
SLOW = 30.0
_OUT_OF_MEMORY = ("can't allocate memory", "bad_alloc", "RESOURCE_EXHAUSTED", "Out of memory", "MemoryError")


@dataclass
class Outcome:
    """The outcome of one setting of one tool on one case.

    Attributes:
        status: ``"ok"``, ``"out of memory"``, ``"stopped"`` (took longer than allowed) or ``"failed"``.
        seconds: each timed call, the warm-up not among them (unless the warm-up alone was slow: then it counts).
        peak: bytes above what network and inputs take.
        first: seconds of the first call in a process, compiling included; import and building are not.
        prepare: seconds to import, build and compile.
        note: the reason where ``status`` is not ``"ok"``.
        error: relative Frobenius error against the reference kernel, once compared.
    """

    peer: str
    setting: dict[str, Any]
    status: str = "failed"
    seconds: list[float] = field(default_factory=list)
    peak: int | None = None
    first: float | None = None
    prepare: float | None = None
    note: str = ""
    error: float | None = None

    @property
    def best(self) -> float:
        """The fastest call; infinite where there is none."""
        return min(self.seconds, default=float("inf")) if self.status == "ok" else float("inf")


@dataclass(frozen=True)
class Options:
    """The options of a measurement.

    Attributes:
        repeats: timed calls after the warm-up; the best counts.
        threads: cores every tool may use.
        limit: seconds after which a single call is given up.
        memory: bytes the process may use beyond what is mapped after its imports.
        enough: seconds of timed calls after which no further one is made.
        device: ``"cpu"`` or ``"cuda"``; on a GPU no peak memory is measured.
    """

    repeats: int
    threads: int
    limit: float
    memory: int
    enough: float = 60.0
    device: str = "cpu"


def run(
    python: Path, peer: str, setting: Setting, case: Case, problem: Path, kernel: Path, options: Options
) -> Outcome:
    """Measure one setting in a fresh process and return its outcome; the kernel is written to ``kernel``."""
    kernel.unlink(missing_ok=True)
    report = kernel.with_suffix(".json")
    log = kernel.with_suffix(".log")
    report.unlink(missing_ok=True)
    spec = {
        "peer": peer,
        "setting": dict(setting),
        "case": asdict(case),
        "problem": str(problem),
        "kernel": str(kernel),
        "report": str(report),
        "options": asdict(options),
    }
    threads = str(options.threads)
    environment = os.environ | {
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "JAX_PLATFORMS": options.device,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONPATH": str(ROOT),
    }
    with log.open("w") as stream:
        command = [str(python), "-m", "benchmarks.measure", json.dumps(spec)]
        code = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=stream, stderr=subprocess.STDOUT, check=False
        ).returncode
    outcome = Outcome(peer, dict(setting))
    if report.exists():
        outcome = Outcome(**json.loads(report.read_text()))
    if outcome.status == "ok" or (code == 0 and outcome.note):
        return outcome
    return _explain(outcome, code, log.read_text(errors="replace"), options)


def stop_cleanly() -> None:
    """Let a termination end the measuring child too and remove temporary files, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def _explain(outcome: Outcome, code: int, log: str, options: Options) -> Outcome:
    """Explain why a child process did not finish."""
    if code == -signal.SIGALRM:
        outcome.status = "stopped"
        if outcome.prepare is None:
            outcome.note = f"not compiled after {PREPARE_LIMIT:.0f} s"
        else:
            outcome.note = f"slower than {options.limit:.0f} s"
    elif code == -signal.SIGKILL or any(phrase in log for phrase in _OUT_OF_MEMORY):
        outcome.status = "out of memory"
        outcome.note = f"more than {options.memory / memory.GIB:.1f} GiB"
    else:
        lines = [line for line in log.splitlines() if line.strip()]
        outcome.note = lines[-1].strip()[:200] if lines else f"exit code {code}"
    return outcome


def _call(function: Callable[[], Any], limit: float) -> tuple[Any, float]:
    """Call a function; the alarm's default action ends it after ``limit``, because compiled code ignores Python
    handlers."""
    signal.setitimer(signal.ITIMER_REAL, limit)
    start = time.perf_counter()
    result = function()
    seconds = time.perf_counter() - start
    signal.setitimer(signal.ITIMER_REAL, 0)
    return result, seconds


def _finished(function: Callable[[], Any], device: str) -> Callable[[], Any]:
    """Return a function that waits for the device; neural-tangents waits by itself, in an environment without torch."""
    try:
        import torch
    except ImportError:
        return function

    def waiting() -> Any:
        result = function()
        torch.cuda.synchronize(device)
        return result

    return waiting


def _child(spec: dict[str, Any]) -> None:
    options = Options(**spec["options"])
    report = Path(spec["report"])
    outcome = Outcome(spec["peer"], spec["setting"])
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    peer = PEERS[spec["peer"]]
    problem = Problem.load(Path(spec["problem"]), Case(**spec["case"]), options.device)

    try:
        function, outcome.prepare = _call(lambda: peer.prepare(problem, spec["setting"], options.memory), PREPARE_LIMIT)
    except Unsuitable as reason:
        outcome.status, outcome.note = "out of memory", str(reason)
        report.write_text(json.dumps(asdict(outcome)))
        return
    report.write_text(json.dumps(asdict(outcome)))

    compiling = getattr(function, "compiling", 0.0)
    if options.device == "cpu":
        memory.limit(options.memory)
    else:
        function = _finished(function, options.device)
    before = memory.start_watch()
    kernel, seconds = _call(function, options.limit)
    outcome.first = seconds + compiling
    if seconds > SLOW:
        outcome.seconds.append(seconds)  # warming up is nothing against this
    else:
        for _ in range(options.repeats):
            del kernel
            kernel, seconds = _call(function, options.limit)
            outcome.seconds.append(seconds)
            if sum(outcome.seconds) > options.enough:
                break
    outcome.peak = memory.peak() - before if options.device == "cpu" else None
    np.save(spec["kernel"], peer.canonical(problem, kernel))
    outcome.status = "ok"
    report.write_text(json.dumps(asdict(outcome)))


if __name__ == "__main__":
    _child(json.loads(sys.argv[1]))
