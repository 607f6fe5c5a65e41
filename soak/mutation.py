"""Mutation testing: does a test notice if the code says something else?

    python -m soak.mutation --target rules
    python -m soak.mutation --target rules factors --sample 200 --workers 2

Every mutant (:mod:`soak._mutants`) is one small error. For each, the tests that execute its lines
(:mod:`soak._coverage`) run in a process of their own, the quickest first, until one fails or they have taken the time
that a mutant may take. A mutant is *killed* if a test fails or does not end; those that survive are printed as diffs,
to be looked at: an untested line, or a change without an effect on any result. Reviewed survivors are listed in
``soak/reviewed.toml`` with the reason. The table has the share killed of all mutants, and of those that are not
reviewed.

Mutants come in a random order, so that a run that is cut off has tried a random part of them. Verdicts are appended to
a file as they come, under the module's digest. A second run resumes where the first one ended; survivors are tried
again with the tests that are new or have changed, or with all of them where they may take more time than before.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch: one core a mutant
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import argparse
import json
import random
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from soak._coverage import Coverage, cover, identity
from soak._forks import in_own_process
from soak._importing import module_name
from soak._killing import Job, Outcome, preload, run
from soak._mutants import Mutant, digest, mutants
from soak._targets import TARGETS, Target

ROOT = Path(__file__).resolve().parents[1]
REVIEWED = Path(__file__).with_name("reviewed.toml")
_ROUND = 50
"""Mutants that are tried together. In a round, those that act at import come last."""


@dataclass(frozen=True)
class Verdict:
    """A line of the file of verdicts.

    Attributes:
        tests: Digests of the test files that were there.
        seconds: How long it took.
        killer: The test that failed.
        limit: How long the tests could have taken on the original.
    """

    module: str
    digest: str
    tests: list[str]
    id: str
    line: int
    verdict: str
    seconds: float
    killer: str
    limit: float

    @property
    def survived(self) -> bool:
        return self.verdict in ("survived", "unreached")


@dataclass
class Session:
    """One target's mutants and their known verdicts.

    Attributes:
        root: The repository.
        target: The target.
        file: Where verdicts are kept.
        sample: How many mutants to try; None for all.
        seed: Of the order of the mutants.
        seconds: How long the tests of a mutant may take on the original; others are left out.
    """

    root: Path
    target: Target
    file: Path
    sample: int | None = None
    seed: int = 0
    seconds: float = 60

    def __post_init__(self) -> None:
        paths = sorted({path for pattern in self.target.modules for path in self.root.glob(pattern)})
        self.sources = {path: path.read_text() for path in paths}
        found = sorted({test for pattern in self.target.tests for test in self.root.glob(pattern)})
        self.tests = {str(test.relative_to(self.root)): "" for test in found}
        self.tests = {test: identity(self.root, test) for test in self.tests}
        self.mutants = [(path, mutant) for path, source in self.sources.items() for mutant in mutants(source)]

        def place(job: tuple[Path, Mutant]) -> float:  # by what a mutant is, not by how many stand before it
            return random.Random(f"{self.seed} {self.name(job[0])} {job[1].id}").random()

        self.mutants = sorted(self.mutants, key=place)[: self.sample]
        self.digests = {path: digest(source) for path, source in self.sources.items()}

    def name(self, path: Path) -> str:
        """Return a module's name."""
        return module_name(self.root, path)

    def known(self) -> dict[tuple[str, str], Verdict]:
        """Return the verdicts that are still valid, by module and mutant; a reviewed survivor is not tried again."""
        why = reviewed()
        return {
            key: verdict
            for key, verdict in self._latest().items()
            if not verdict.survived or key in why or not self._untried(verdict)
        }

    def _untried(self, survivor: Verdict) -> set[str]:
        """Return the digests of the test files that a survivor has not been tried with for long enough."""
        return set(self.tests.values()) - (set(survivor.tests) if survivor.limit >= self.seconds else set())

    def _latest(self) -> dict[tuple[str, str], Verdict]:
        """Return what is known of the mutants of the modules as they are."""
        digests = {self.name(path): text for path, text in self.digests.items()}
        result: dict[tuple[str, str], Verdict] = {}
        if self.file.exists():
            for line in self.file.read_text().splitlines():
                verdict = Verdict(**json.loads(line))
                if verdict.digest == digests.get(verdict.module):
                    result[verdict.module, verdict.id] = verdict
        return result

    def listed(self) -> list[tuple[Path, Mutant]]:
        """Return the mutants in the order of modules and lines."""
        return sorted(self.mutants, key=lambda job: (job[0], job[1].line))

    def pending(self) -> list[tuple[Path, Mutant]]:
        """Return the mutants that have not been tried."""
        known = self.known()
        return [(path, mutant) for path, mutant in self.mutants if (self.name(path), mutant.id) not in known]

    def cover(self) -> Coverage:
        """Return which tests execute which lines of the packages that the target's modules are in."""
        packages = {self.root.joinpath(*path.relative_to(self.root).parts[:2]) for path in self.sources}
        paths = {path for package in packages for path in (package.rglob("*.py") if package.is_dir() else [package])}
        paths = {path for path in paths if path.name != "__init__.py"}
        return cover(self.root, list(self.tests), sorted(paths), self.file.parent / "coverage", limit=3600)

    def run(self, coverage: Coverage, workers: int, told: Callable[[Verdict], None]) -> None:
        """Try what is pending, and append each verdict to the file.

        Args:
            coverage: Which tests execute which lines.
            workers: Mutants at a time.
            told: Called with each verdict.
        """
        latest = self._latest()
        self.file.parent.mkdir(parents=True, exist_ok=True)
        jobs: list[Job] = []
        with self.file.open("a") as lines:

            def report(job: Job, outcome: Outcome) -> None:
                before = latest.get((job.module, job.mutant.id))
                if outcome.verdict == "unreached" and before is not None:  # by the new tests: the old ones did
                    outcome = Outcome(before.verdict, before.seconds, before.killer)
                tests = sorted(self.tests.values())
                where = job.module, self.digests[job.path], tests, job.mutant.id, job.mutant.line
                verdict = Verdict(*where, outcome.verdict, outcome.seconds, outcome.killer, self.seconds)
                lines.write(json.dumps(asdict(verdict)) + "\n")
                lines.flush()
                told(verdict)

            for path, mutant in self.pending():
                before = latest.get((self.name(path), mutant.id))
                files = set(self.tests.values()) if before is None else self._untried(before)
                chosen = [t for t in coverage.tests(path, mutant) if self.tests[t.partition("::")[0]] in files]
                tests = within({test: coverage.seconds[test] for test in chosen}, self.seconds)
                jobs.append(Job(path, self.name(path), mutant, tests, coverage.at_import(path, mutant)))
            for start in range(0, len(jobs), _ROUND):
                run(self.root, jobs[start : start + _ROUND], workers, report)


def within(tests: dict[str, float], limit: float) -> dict[str, float]:
    """Return tests that together stay within a time, at least one: half of it for the quickest case of every test
    function, the rest for the quickest others.

    Args:
        tests: Seconds by test, the quickest first.
        limit: Seconds.
    """
    functions: dict[str, str] = {}
    for test in tests:
        functions.setdefault(test.partition("[")[0], test)
    left, chosen = limit / 2, set[str]()
    for candidates in (functions.values(), tests):
        for test in candidates:
            if test not in chosen and (tests[test] <= left or not chosen):
                chosen.add(test)
                left -= tests[test]
        left += limit / 2
    return {test: seconds for test, seconds in tests.items() if test in chosen}


def reviewed() -> dict[tuple[str, str], str]:
    """Return why reviewed survivors need no test, by module and mutant."""
    if not REVIEWED.exists():
        return {}
    table: dict[str, dict[str, str]] = tomllib.loads(REVIEWED.read_text())
    return {(module, id): reason for module, by_id in table.items() for id, reason in by_id.items()}


def summary(session: Session, why: dict[tuple[str, str], str]) -> str:
    """Return a table with one line per module, and the sum."""
    known = session.known()
    counts: dict[str, Counter[str]] = {}
    for path, mutant in session.listed():
        name = session.name(path)
        verdict = known.get((name, mutant.id))
        kind = "pending" if verdict is None else "killed" if not verdict.survived else "survived"
        by_module = counts.setdefault(name, Counter())
        by_module[kind] += 1
        by_module["reviewed"] += kind == "survived" and (name, mutant.id) in why
    counts["total"] = sum(counts.values(), Counter())
    heads = f"{'mutants':>8} {'killed':>7} {'survived':>9} {'reviewed':>9} {'of all':>7} {'of the rest':>12}"
    lines = [f"{'module':40} {heads}"]
    for name, count in counts.items():
        tried = count["killed"] + count["survived"]
        shares = (_share(count["killed"], tried), _share(count["killed"], tried - count["reviewed"]))
        numbers = f"{tried:8} {count['killed']:7} {count['survived']:9} {count['reviewed']:9}"
        pending = f"  ({count['pending']} not tried)" if count["pending"] else ""
        lines.append(f"{name:40} {numbers} {shares[0]:>7} {shares[1]:>12}{pending}")
    return "\n".join(lines)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def survivors(session: Session, why: dict[tuple[str, str], str]) -> Iterator[str]:
    """Return the surviving mutants without a review, as diffs."""
    known = session.known()
    for path, mutant in session.listed():
        verdict = known.get((session.name(path), mutant.id))
        if verdict is not None and verdict.survived and (verdict.module, verdict.id) not in why:
            head = f"{path.relative_to(session.root)}:{mutant.line} {verdict.verdict}\n  {mutant.id}"
            yield f"{head}\n{mutant.diff(session.sources[path])}\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m soak.mutation", description="Mutation testing of the package.")
    parser.add_argument("--target", nargs="+", choices=TARGETS, default=list(TARGETS), help="what to mutate")
    parser.add_argument("--tests", nargs="+", help="test files to use instead of the target's own")
    parser.add_argument("--sample", type=int, help="try that many mutants of each target, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="mutants at a time")
    parser.add_argument("--out", type=Path, default=ROOT / "soak-out" / "mutation", help="where verdicts are kept")
    parser.add_argument("--seconds", type=float, default=60, help="of tests that a mutant has to survive")
    parser.add_argument("--show", action="store_true", help="run nothing: table and survivors of earlier runs")
    options = parser.parse_args(arguments)
    why, unseen = reviewed(), 0
    report: list[str] = []
    for name in options.target:
        target = replace(TARGETS[name], tests=tuple(options.tests or TARGETS[name].tests))
        seconds = 0 if options.show else options.seconds
        session = Session(ROOT, target, options.out / f"{name}.jsonl", options.sample, options.seed, seconds)
        if session.pending() and not options.show:
            in_own_process(partial(_try, name, session, options.workers))
        diffs = list(survivors(session, why))
        unseen += len(diffs)
        report += [*diffs, summary(session, why), ""]
    print("\n".join(report))
    return 1 if unseen else 0


def _try(name: str, session: Session, workers: int) -> None:
    count = len(session.pending())
    print(f"{name}: {count} mutants to try", flush=True)
    preload(["torch", "numpy", "scipy.sparse.linalg", "pytest", "hypothesis"])
    coverage = session.cover()
    if coverage.failed:
        raise SystemExit(f"these tests fail without any mutant: {coverage.failed}")
    preload(coverage.modules)

    def told(verdict: Verdict) -> None:
        done = count - len(session.pending())
        if done % 25 == 0 or done == count:
            print(f"  {done} of {count} tried", flush=True)

    session.run(coverage, workers, told)


if __name__ == "__main__":
    sys.exit(main())
