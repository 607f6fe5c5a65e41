"""Which tests execute which statements: the choice of tests for a mutant.

Every test file is run once on the original, with a note before every statement in the body of a function. What it
executes is kept in a file of its own, under the digests of the test file and of the modules, so that only what has
changed is run again.
"""

import ast
import builtins
import hashlib
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from soak._forks import PATIENCE, ended, fork, wait
from soak._importing import Finder, module_name
from soak._mutants import Mutant

IMPORT = ""
"""The test that executes what runs at import."""


@dataclass
class Coverage:
    """The statements that each test executes, and the duration of each test.

    Attributes:
        seconds: Of processor time, by test.
        lines: By file, then by the first line of a statement: the tests that execute it (:data:`IMPORT` for an import).
        modules: Names of the modules that were imported on the way.
        failed: Tests that fail without any mutant.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[int, set[str]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(set)))
    modules: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def tests(self, path: Path, mutant: Mutant) -> list[str]:
        """Return the tests that execute a mutant, the quickest first; all tests if it is executed at import."""
        first, last = (mutant.statement, mutant.statement) if mutant.body else mutant.scope or (0, 0)
        chosen = self._executing(path, first, last)
        if not mutant.body:  # the arguments of a function concern those who call it
            chosen = chosen - {IMPORT} or set(self.seconds)
        if IMPORT in chosen:
            chosen = set(self.seconds)
        return sorted(chosen, key=lambda test: (self.seconds[test], test))

    def at_import(self, path: Path, mutant: Mutant) -> bool:
        """Return whether a mutant acts when its module is imported."""
        return not mutant.body or IMPORT in self._executing(path, *(mutant.scope or (0, 0)))

    def _executing(self, path: Path, first: int, last: int) -> set[str]:
        lines = self.lines.get(str(path), {})
        return set().union(*(tests for line, tests in lines.items() if first <= line <= last))

    def add(self, found: dict[str, Any]) -> None:
        """Add what one test file executes."""
        self.seconds |= found["seconds"]
        self.modules = list(dict.fromkeys(self.modules + found["modules"]))
        self.failed += found["failed"]
        for path, by_line in found["lines"].items():
            for line, tests in by_line.items():
                self.lines[path][int(line)] |= {found["tests"][test] for test in tests}


def identity(root: Path, test: str) -> str:
    """Return a digest of a test file and of the modules beside it that other tests share."""
    file = root / test
    beside = sorted(p for p in file.parent.rglob("*.py") if not p.name.startswith("test_"))
    parts = [test.encode(), *(p.read_bytes() for p in (file, *beside))]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def cover(root: Path, files: Sequence[str], paths: Iterable[Path], folder: Path, limit: float) -> Coverage:
    """Find which tests execute which lines.

    Args:
        root: The repository.
        files: Test files, below the root.
        paths: Modules.
        folder: Where the findings about each test file are kept.
        limit: Seconds of processor time for a test file that is not known yet.
    """
    result = Coverage()
    sources = {str(path): hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in paths}
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        kept = folder / f"{file.replace('/', '.')}.json"
        key = {"test": identity(root, file), "sources": sources}
        found = json.loads(kept.read_text()) if kept.exists() else {}
        if found.get("key") != key or found["failed"]:
            found = _execute(root, file, set(sources), limit) | {"key": key}
            temporary = kept.with_suffix(".part")
            temporary.write_text(json.dumps(found))
            temporary.replace(kept)
        result.add(found)
    return result


def _execute(root: Path, file: str, paths: set[str], limit: float) -> dict[str, Any]:
    running: dict[int, float] = {}
    with ended(running) as folder:
        report = folder / "report.json"
        pid = fork(partial(_covering, root, file, paths, report), folder / "files", limit)
        running[pid] = time.monotonic() + PATIENCE * limit
        _, code = wait(running)
        running.clear()
        if not report.exists():
            output = (folder / "files" / "output").read_text(errors="replace")[-3000:]
            raise SystemExit(f"{file} does not run on the original (exit code {code}):\n{output}")
        found: dict[str, Any] = json.loads(report.read_text())
        return found


def run_pytest(root: Path, files: Iterable[str], plugin: object, *options: str) -> int:
    """Run pytest in this process, without capture and with the same random numbers every time."""
    import hypothesis
    import pytest

    os.chdir(root)
    sys.path.insert(0, str(root))
    hypothesis.settings.register_profile("mutants", hypothesis.settings.default, database=None, derandomize=True)
    hypothesis.settings.load_profile("mutants")
    arguments = [str(root / file) for file in files]
    quiet = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(root), "--tb=no", "--no-summary"]
    return int(pytest.main([*quiet, *options, *arguments], plugins=[plugin]))


def _covering(root: Path, file: str, paths: set[str], report: Path) -> int:
    plugin = _Watch()
    changes = {module_name(root, path): (path, partial(_noted, str(path))) for path in map(Path, paths)}
    sys.meta_path.insert(0, Finder(changes))
    builtins.__dict__[_NOTE] = plugin.note
    run_pytest(root, [file], plugin)
    if not plugin.seconds:
        return 1
    tests = [IMPORT, *plugin.seconds]
    number = {test: i for i, test in enumerate(tests)}
    lines = {
        path: {line: sorted(number[test] for test in executing) for line, executing in by_line.items()}
        for path, by_line in plugin.lines.items()
    }
    found = {"seconds": plugin.seconds, "tests": tests, "lines": lines}
    report.write_text(json.dumps(found | {"modules": list(sys.modules), "failed": plugin.failed}))
    return 0


_NOTE = "__soak_note__"


def _noted(path: str, source: str) -> ast.Module:
    """Return a module that notes, before each statement in the body of a function, that it is executed."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for node in {below: None for function in functions for below in ast.walk(function)}:
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if isinstance(statements, list):
                setattr(node, name, [new for old in statements for new in (*_note(path, old), old)])
    return ast.fix_missing_locations(tree)


def _note(path: str, statement: ast.stmt) -> list[ast.stmt]:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return []  # a docstring has to come first
    arguments: list[ast.expr] = [ast.Constant(path), ast.Constant(statement.lineno)]
    return [ast.copy_location(ast.Expr(ast.Call(ast.Name(_NOTE, ast.Load()), arguments, [])), statement)]


class _Watch:
    """A pytest plugin that records which statements each test executes, in its set-up or its body."""

    def __init__(self) -> None:
        self.test = IMPORT
        self.seconds: dict[str, float] = {}
        self.lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.failed: list[str] = []
        self.start = 0.0

    def note(self, path: str, line: int) -> None:
        """Record that a statement is executed."""
        self.lines[path][line].add(self.test)

    def pytest_runtest_logstart(self, nodeid: str, location: object) -> None:
        self.test, self.start = nodeid, time.process_time()

    def pytest_runtest_logfinish(self, nodeid: str, location: object) -> None:
        self.seconds[nodeid] = time.process_time() - self.start
        self.test = IMPORT

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed.append(report.nodeid)
