"""Running tests against mutants: one forked process per mutant, with everything but this package imported beforehand.

A mutant is installed by an import hook that compiles its syntax tree in place of the file, so no file is written and
several mutants can be tried at the same time. Tests that start processes of their own see the original.
"""

import gc
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

from soak._mutants import Mutant

_OWN = ("tangentlab", "tests", "benchmarks", "docs", "soak", "conftest", "__main__", "__mp_main__")
"""Packages that are imported anew for every mutant."""
_MEMORY = 4 << 30
"""Bytes that a mutant may take beyond what is there when it starts."""
_ALLOWANCE = 20
"""Seconds of processor time that a mutant may take beyond four times those of its tests."""
_PATIENCE = 20
"""Wall-clock seconds for a second of a mutant's allowance of processor time: others may be using the machine."""


@dataclass
class Coverage:
    """The functions that each test calls, and the duration of each test.

    Attributes:
        seconds: Of processor time, by test.
        calls: By file, then by the first line of a function: the tests that call it ("" for an import).
        modules: Names of the modules that were imported on the way.
        failed: Tests that fail without any mutant.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    calls: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    modules: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def tests(self, path: Path, mutant: Mutant) -> list[str]:
        """Return the tests that can notice a mutant, the quickest first."""
        chosen = set(self.seconds)
        if mutant.scope is not None:
            first, last = mutant.scope
            called = self.calls.get(str(path), {})
            chosen = {test for line, tests in called.items() if first <= int(line) <= last for test in tests}
            if "" in chosen:  # called at import
                chosen = set(self.seconds)
        return sorted(chosen, key=lambda test: (self.seconds[test], test))


@dataclass
class Outcome:
    """The outcome of a mutant: "killed", "timeout", "survived", or "unreached" if no test calls its function."""

    verdict: str
    seconds: float = 0.0
    killer: str = ""


def cover(root: Path, files: Sequence[str], paths: Iterable[Path], limit: float) -> Coverage:
    """Run some test files on the original, and record which of them call functions in which of ``paths``."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        pid = _fork(partial(_covering, root, files, {str(p) for p in paths}, report), Path(folder) / "output", limit)
        code = _wait({pid: time.monotonic() + _PATIENCE * limit})[1]
        if not report.exists():
            output = (Path(folder) / "output").read_text(errors="replace")[-3000:]
            raise SystemExit(f"the tests do not run on the original (exit code {code}):\n{output}")
        return Coverage(**json.loads(report.read_text()))


def preload(modules: Iterable[str]) -> None:
    """Import what tests need and is not the package itself, so that no mutant has to."""
    for name in modules:
        if name.partition(".")[0] not in _OWN:
            with suppress(Exception):
                importlib.import_module(name)
    loaded = [name for name in sys.modules if name.partition(".")[0] == "tangentlab"]
    if loaded:
        raise SystemExit(f"{loaded[0]} was imported before its mutants: start in a fresh process.")
    gc.collect()
    gc.freeze()


def run(
    root: Path, jobs: Iterable[tuple[Path, str, Mutant, list[str]]], coverage: Coverage, workers: int
) -> Iterator[tuple[Path, Mutant, Outcome]]:
    """Try mutants, some at a time.

    Args:
        root: The repository.
        jobs: For each mutant the module's file and name, and the tests to run.
        coverage: How long each test takes.
        workers: Mutants at a time.
    """
    running: dict[int, tuple[Path, Mutant, float, Path]] = {}
    deadlines: dict[int, float] = {}

    def reap() -> tuple[Path, Mutant, Outcome]:
        pid, code = _wait(deadlines)
        path, mutant, start, out = running.pop(pid)
        del deadlines[pid]
        killer = out.with_suffix(".killer")
        verdict = "survived" if code == 0 else "timeout" if code == -signal.SIGXCPU else "killed"
        text = killer.read_text() if killer.exists() else "" if code == 0 else f"exit code {code}"
        for file in (out, killer):
            file.unlink(missing_ok=True)
        return path, mutant, Outcome(verdict, round(time.monotonic() - start, 2), text)

    with tempfile.TemporaryDirectory() as folder, _ended(running):
        for number, (path, module, mutant, tests) in enumerate(jobs):
            if not tests:
                yield path, mutant, Outcome("unreached")
                continue
            out = Path(folder) / f"{number}.output"
            start, limit = time.monotonic(), _ALLOWANCE + 4 * sum(coverage.seconds[test] for test in tests)
            work = partial(_trying, root, path, module, mutant, tests, out.with_suffix(".killer"))
            pid = _fork(work, out, limit)
            running[pid] = (path, mutant, start, out)
            deadlines[pid] = start + _PATIENCE * limit
            if len(running) >= workers:
                yield reap()
        while running:
            yield reap()


@contextmanager
def _ended(processes: Mapping[int, object]) -> Iterator[None]:
    """End the processes that are left when the context exits."""
    try:
        yield
    finally:
        for pid in processes:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _wait(deadlines: dict[int, float]) -> tuple[int, int]:
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


def _fork(work: Callable[[], int], output: Path, limit: float) -> int:
    """Start a process, in its own group, that works for at most ``limit`` seconds and reports to a file only."""
    pid = os.fork()
    if pid:
        with suppress(OSError):  # the process may be there first
            os.setpgid(pid, pid)
        return pid
    code = 70
    try:
        with suppress(OSError):
            os.setpgid(0, 0)
        handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(handle, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
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


def _pytest(root: Path, files: Iterable[str], plugin: object, *options: str) -> int:
    import hypothesis
    import pytest

    os.chdir(root)
    sys.path.insert(0, str(root))
    hypothesis.settings.register_profile("mutants", hypothesis.settings.default, database=None, derandomize=True)
    hypothesis.settings.load_profile("mutants")
    arguments = [str(root / file) for file in files]
    quiet = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(root), "--tb=no", "--no-summary"]
    return int(pytest.main([*quiet, *options, *arguments], plugins=[plugin]))


def _covering(root: Path, files: Sequence[str], paths: set[str], report: Path) -> int:
    plugin = _Watch(paths)
    _pytest(root, files, plugin)
    if not plugin.seconds:
        return 1
    calls = {p: {str(line): sorted(tests) for line, tests in by_line.items()} for p, by_line in plugin.calls.items()}
    report.write_text(
        json.dumps({"seconds": plugin.seconds, "calls": calls, "modules": list(sys.modules), "failed": plugin.failed})
    )
    return 0


class _Watch:
    """A pytest plugin that records which functions of some files each test calls, in its set-up or its body."""

    def __init__(self, paths: set[str]) -> None:
        self.paths, self.test = paths, ""
        self.seconds: dict[str, float] = {}
        self.calls: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.failed: list[str] = []
        self.known: dict[CodeType, bool] = {}
        self.start = 0.0

    def _trace(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if code not in self.known:
            self.known[code] = code.co_filename in self.paths
        if self.known[code]:
            self.calls[code.co_filename][code.co_firstlineno].add(self.test)

    def pytest_collection(self) -> None:
        sys.settrace(self._trace)

    def pytest_collection_finish(self) -> None:
        sys.settrace(None)

    def pytest_runtest_logstart(self, nodeid: str, location: object) -> None:
        self.test, self.start = nodeid, time.process_time()
        sys.settrace(self._trace)

    def pytest_runtest_logfinish(self, nodeid: str, location: object) -> None:
        sys.settrace(None)
        self.seconds[nodeid] = time.process_time() - self.start

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


def _trying(root: Path, path: Path, module: str, mutant: Mutant, tests: list[str], killer: Path) -> int:
    sys.meta_path.insert(0, _Finder(module, path, mutant))
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    return _pytest(root, files, _Chosen(tests, killer), "-x")


class _Chosen:
    """A pytest plugin that runs only the chosen tests, in their order, and records the first that fails."""

    def __init__(self, tests: list[str], killer: Path) -> None:
        self.order = {test: i for i, test in enumerate(tests)}
        self.killer = killer

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.order), key=lambda item: self.order[item.nodeid])
        if len(items) < len(self.order):
            self.killer.write_text("fewer tests are collected")
            os._exit(1)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.killer.exists():
            self.killer.write_text(report.nodeid)


class _Finder(importlib.abc.MetaPathFinder):
    """A finder that returns a mutant in place of its module."""

    def __init__(self, module: str, path: Path, mutant: Mutant) -> None:
        self.module, self.path, self.mutant = module, path, mutant

    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> Any:
        if fullname != self.module:
            return None
        loader = _Loader(fullname, str(self.path))
        loader.mutant = self.mutant
        return importlib.util.spec_from_file_location(fullname, self.path, loader=loader)


class _Loader(importlib.machinery.SourceFileLoader):
    """A loader that compiles a mutant."""

    mutant: Mutant

    def get_code(self, fullname: str) -> Any:
        return compile(self.mutant.apply(Path(self.path).read_text()), self.path, "exec", dont_inherit=True)
