"""Running tests against mutants: one forked process per mutant.

Nothing is written to a file, so several mutants can be tried at the same time. Tests that start processes of their own
see the original. There are two ways:

- A mutant in the body of a function is put into the function objects of a process that has collected the tests already.
  Nothing is imported again.
- A mutant that acts at import (a constant, a default, a decorator) is installed by an import hook that compiles its
  syntax tree in place of the file, in a process that has imported everything but this package.
"""

import gc
import importlib
import os
import shutil
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from soak._coverage import run_pytest
from soak._forks import PATIENCE, ended, fork, in_own_process, wait
from soak._importing import Finder
from soak._mutants import Mutant

_OWN = ("tangentlab", "tests", "benchmarks", "docs", "soak", "conftest", "__main__", "__mp_main__")
"""Packages that are imported anew for a mutant that acts at import."""
_ALLOWANCE = 4
"""Seconds of processor time that a test of a mutant may take beyond four times what it takes on the original."""
_START = 20
"""Seconds of processor time for everything before the first test."""


@dataclass(frozen=True)
class Job:
    """A mutant and the tests to run against it.

    Attributes:
        path: The module's file.
        module: Its name.
        mutant: The mutant.
        tests: The tests, in their order, with their processor time on the original in seconds.
        at_import: Whether the mutant acts when the module is imported.
    """

    path: Path
    module: str
    mutant: Mutant
    tests: dict[str, float]
    at_import: bool


@dataclass(frozen=True)
class Outcome:
    """The outcome of a mutant: "killed", "timeout", "survived", or "unreached" if no test executes it."""

    verdict: str
    seconds: float = 0.0
    killer: str = ""


Report = Callable[[Job, Outcome], None]


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


def run(root: Path, jobs: Iterable[Job], workers: int, report: Report) -> None:
    """Try mutants, some at a time.

    Args:
        root: The repository.
        jobs: The mutants.
        workers: Mutants at a time.
        report: Called with each mutant and its outcome as it ends.
    """
    jobs = list(jobs)
    quick = [job for job in jobs if job.tests and not job.at_import and _replaceable(job)]
    if quick:
        files = sorted({test.partition("::")[0] for job in quick for test in job.tests})
        in_own_process(
            lambda: run_pytest(root, files, _Collected(lambda items: _in_place(quick, items, workers, report)))
        )
    done = set(map(id, quick))
    _each((job for job in jobs if id(job) not in done), workers, report, partial(_trying_import, root))


def _in_place(jobs: list[Job], items: list[Any], workers: int, report: Report) -> None:
    by_name = {item.nodeid: item for item in items}
    functions = _functions({str(job.path) for job in jobs})

    def trying(job: Job, killer: Path) -> int:
        for key, code in _codes(compile(job.mutant.apply(job.path.read_text()), str(job.path), "exec")):
            for function in functions.get((str(job.path), *key), ()):
                if function.__code__ != code:
                    function.__code__ = code
        return _protocol(by_name, job.tests, killer)

    gc.freeze()
    _each(jobs, workers, report, trying)


def _each(jobs: Iterable[Job], workers: int, report: Report, trying: Callable[[Job, Path], int]) -> None:
    running: dict[int, tuple[Job, float, Path]] = {}
    deadlines: dict[int, float] = {}

    def reap() -> None:
        pid, code = wait(deadlines)
        job, start, folder = running.pop(pid)
        del deadlines[pid]
        killer = folder / "killer"
        late = code in (-signal.SIGXCPU, -signal.SIGPROF)
        verdict = "survived" if code == 0 else "timeout" if late else "killed"
        text = killer.read_text() if killer.exists() else "" if code == 0 else f"exit code {code}"
        shutil.rmtree(folder, ignore_errors=True)
        report(job, Outcome(verdict, round(time.monotonic() - start, 2), text))

    with ended(running) as folder:
        for number, job in enumerate(jobs):
            if not job.tests:
                report(job, Outcome("unreached"))
                continue
            own = folder / str(number)
            start, limit = time.monotonic(), _START + sum(map(_allowed, job.tests.values()))
            pid = fork(partial(trying, job, own / "killer"), own, limit)
            running[pid] = (job, start, own)
            deadlines[pid] = start + PATIENCE * limit
            if len(running) >= workers:
                reap()
        while running:
            reap()


def _allowed(seconds: float) -> float:
    return _ALLOWANCE + 4 * seconds


def _protocol(by_name: dict[str, Any], tests: dict[str, float], killer: Path) -> int:
    """Run tests until one fails; one that takes too much processor time ends the process."""
    items = [by_name[test] for test in tests]
    failed: list[str] = []
    items[0].config.pluginmanager.register(_Failures(failed))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    for item, following in zip(items, [*items[1:], None], strict=True):
        signal.setitimer(signal.ITIMER_PROF, _allowed(tests[item.nodeid]))
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if failed:
            killer.write_text(failed[0])
            return 1
    return 0


class _Failures:
    """A pytest plugin that records the tests that fail."""

    def __init__(self, failed: list[str]) -> None:
        self.failed = failed

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


class _Collected:
    """A pytest plugin that hands over the collected tests in place of running them."""

    def __init__(self, run: Callable[[list[Any]], None]) -> None:
        self.run = run

    def pytest_runtestloop(self, session: Any) -> bool:
        self.run(session.items)
        return True


def _trying_import(root: Path, job: Job, killer: Path) -> int:
    sys.meta_path.insert(0, Finder({job.module: (job.path, job.mutant.apply)}))
    files = list(dict.fromkeys(test.partition("::")[0] for test in job.tests))

    def chosen(items: list[Any]) -> None:
        by_name = {item.nodeid: item for item in items}
        if set(job.tests) - set(by_name):
            killer.write_text("fewer tests are collected")
            os._exit(1)
        os._exit(_protocol(by_name, job.tests, killer))

    return run_pytest(root, files, _Collected(chosen)) or 1


Key = tuple[str, int]
"""A function's qualified name and its first line."""


def _codes(code: CodeType) -> Iterator[tuple[Key, CodeType]]:
    """Yield the code of every function below some code."""
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield (const.co_qualname, const.co_firstlineno), const
            yield from _codes(const)


def _functions(paths: set[str]) -> dict[tuple[str, str, int], list[FunctionType]]:
    """Return the functions of some files, by their code's file and key."""
    found = defaultdict(list)
    gc.unfreeze()
    for thing in gc.get_objects():
        if type(thing) is FunctionType and thing.__code__.co_filename in paths:
            code = thing.__code__
            found[code.co_filename, code.co_qualname, code.co_firstlineno].append(thing)
    return dict(found)


def _replaceable(job: Job) -> bool:
    """Return whether a mutant can be put into function objects: no two functions of one key, the same closures."""
    source = job.path.read_text()
    before = list(_codes(compile(source, str(job.path), "exec")))
    after = list(_codes(compile(job.mutant.apply(source), str(job.path), "exec")))
    closures = [(key, code.co_freevars) for key, code in before] == [(key, code.co_freevars) for key, code in after]
    changed = {key for (key, code), (_, other) in zip(before, after, strict=False) if code != other}
    counts = Counter(key for key, _ in before)
    return closures and all(counts[key] == 1 or "comp>" in key[0] or "genexpr>" in key[0] for key in changed)
