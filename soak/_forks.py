"""Forked processes with limits: processor time, memory, wall-clock time, and a folder of their own."""

import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

_MEMORY = 4 << 30
"""Bytes that a process may take beyond what is there when it starts."""
PATIENCE = 20
"""Wall-clock seconds for a second of a process's allowance of processor time: others may be using the machine."""


def fork(work: Callable[[], int], folder: Path, limit: float) -> int:
    """Start a process, in its own group, that works for at most ``limit`` seconds of processor time.

    Args:
        work: What it does; the result is its exit code.
        folder: For its output (``output``) and its temporary files.
        limit: Seconds.
    """
    pid = os.fork()
    if pid:
        with suppress(OSError):  # the process may be there first
            os.setpgid(pid, pid)
        return pid
    code = 70
    try:
        with suppress(OSError):
            os.setpgid(0, 0)
        folder.mkdir(exist_ok=True)
        handle = os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(handle, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ["TMPDIR"] = os.environ["PYTEST_DEBUG_TEMPROOT"] = tempfile.tempdir = str(folder)
        used = resource.getrusage(resource.RUSAGE_SELF)
        _lower(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime + limit) + 1)
        pages = Path("/proc/self/statm")
        if pages.exists():
            _lower(resource.RLIMIT_AS, int(pages.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE") + _MEMORY)
        code = work()
    except BaseException as error:  # a mutant may raise anything, at any time
        with suppress(BaseException):
            print(repr(error), file=sys.stderr, flush=True)
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(int(code))


def _lower(what: int, limit: int) -> None:
    resource.setrlimit(what, (limit, resource.getrlimit(what)[1]))


def wait(deadlines: Mapping[int, float]) -> tuple[int, int]:
    """Wait for the first of some processes to end and return its exit code; one past its deadline is ended, with
    -SIGXCPU."""
    while True:
        for pid, deadline in deadlines.items():
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return pid, os.waitstatus_to_exitcode(status)
            if time.monotonic() > deadline:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return pid, -signal.SIGXCPU
        time.sleep(0.02)


@contextmanager
def ended(processes: Mapping[int, object]) -> Iterator[Path]:
    """Make a folder for the files of some processes; end those that are left when the context exits."""
    folder = Path(tempfile.mkdtemp())
    try:
        yield folder
    finally:
        for pid in processes:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        shutil.rmtree(folder, ignore_errors=True)


def in_own_process(work: Callable[[], object]) -> None:
    """Run something that leaves its process full of modules."""
    pid = os.fork()
    if pid:
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
            raise SystemExit(1)
        return
    code = 1
    try:
        work()
        code = 0
    except (Exception, SystemExit) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        sys.stdout.flush()
        os._exit(code)
