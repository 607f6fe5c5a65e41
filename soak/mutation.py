"""Mutation testing: does a test notice if the code says something else?

    python -m soak.mutation --target rules
    python -m soak.mutation --target rules factors --sample 200 --workers 2

Every mutant (:mod:`soak._mutants`) is one small error. A mutant is *killed* if one of the target's tests fails or does
not end; those that survive are printed as diffs, to be looked at: an untested line, or a change without an effect on
any result. Reviewed survivors are listed in ``soak/reviewed.toml`` with the reason, and are counted separately.

Verdicts are appended to a file as they come, under the module's digest. A second run resumes where the first one
ended; survivors are tried again when their tests have changed.
"""

import os

os.environ["OMP_NUM_THREADS"] = "1"  # before torch: one core a mutant
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

import argparse
import hashlib
import json
import random
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from soak._killing import Coverage, Outcome, cover, preload, run
from soak._mutants import Mutant, digest, mutants

ROOT = Path(__file__).resolve().parents[1]
REVIEWED = Path(__file__).with_name("reviewed.toml")


@dataclass(frozen=True)
class Target:
    """Some modules, and the tests that should notice every error in them.

    Attributes:
        modules: Patterns of files below the root.
        tests: Test files. Those that start other processes would not see a mutant.
    """

    modules: tuple[str, ...]
    tests: tuple[str, ...]


def _tests(folder: str, names: str) -> tuple[str, ...]:
    return tuple(f"tests/{folder}/test_{name}.py" for name in names.split())


TARGETS = {
    "rules": Target(
        ("tangentlab/kernels/rules/_[a-z]*.py",), _tests("kernels", "rules correlate rules_table factors costs")
    ),
    "factors": Target(
        ("tangentlab/kernels/factors/_[a-z]*.py",), _tests("kernels", "factors totals contract long_sums projection")
    ),
    "record": Target(
        tuple(f"tangentlab/kernels/_{name}.py" for name in "record isometries probe_record".split()),
        _tests("kernels", "recording content refusals rules"),
    ),
    "probe": Target(
        tuple(f"tangentlab/kernels/_{name}.py" for name in "probe findings verify".split()),
        _tests("kernels", "recording refusals content options"),
    ),
    "contraction": Target(("tangentlab/kernels/_contract.py",), _tests("kernels", "contract options")),
    "claims": Target(
        ("tangentlab/experiments/_verdicts.py", "tangentlab/experiments/_judge.py"),
        _tests("experiments", "claims claim_records"),
    ),
    "solvers": Target(
        tuple(f"tangentlab/linalg/_{name}.py" for name in "cholesky cg regress solvers krylov ridge_path".split()),
        _tests("linalg", "cg cholesky methods regress ridge_path eigen extremes doubtful_kernels scales"),
    ),
}


@dataclass(frozen=True)
class Verdict:
    """A line of the file of verdicts."""

    module: str
    digest: str
    tests: str
    id: str
    line: int
    verdict: str
    seconds: float
    killer: str

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
        sample: How many mutants to try, drawn by ``seed``; None for all.
    """

    root: Path
    target: Target
    file: Path
    sample: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        paths = sorted({path for pattern in self.target.modules for path in self.root.glob(pattern)})
        self.sources = {path: path.read_text() for path in paths}
        self.files = [test for test in self.target.tests if (self.root / test).exists()]
        folders = {folder for test in self.files for folder in (self.root / test).parents if folder != self.root.parent}
        folders -= set(self.root.parents) | {self.root}
        texts = sorted({p for folder in folders for p in folder.glob("*.py")})
        contents = [" ".join(self.files).encode(), *(p.read_bytes() for p in texts)]
        self.tests = hashlib.sha256(b"\0".join(contents)).hexdigest()[:16]
        self.mutants = [(path, mutant) for path, source in self.sources.items() for mutant in mutants(source)]
        if self.sample is not None and self.sample < len(self.mutants):

            def place(job: tuple[Path, Mutant]) -> float:  # by what a mutant is, not by how many stand before it
                return random.Random(f"{self.seed} {self.name(job[0])} {job[1].id}").random()

            chosen = set(map(id, sorted(self.mutants, key=place)[: self.sample]))
            self.mutants = [job for job in self.mutants if id(job) in chosen]
        self.digests = {path: digest(source) for path, source in self.sources.items()}

    def name(self, path: Path) -> str:
        """Return a module's name."""
        return ".".join(path.relative_to(self.root).with_suffix("").parts)

    def known(self) -> dict[tuple[str, str], Verdict]:
        """Return the verdicts that are still valid, by module and mutant; a reviewed survivor is not tried again."""
        why = reviewed()
        digests = {self.name(path): text for path, text in self.digests.items()}
        result: dict[tuple[str, str], Verdict] = {}
        if self.file.exists():
            for line in self.file.read_text().splitlines():
                verdict = Verdict(**json.loads(line))
                key = verdict.module, verdict.id
                same = verdict.tests == self.tests or key in why
                holds = not verdict.survived or (same and key not in result)
                if verdict.digest == digests.get(verdict.module) and holds:
                    result[key] = verdict
        return result

    def pending(self) -> list[tuple[Path, Mutant]]:
        """Return the mutants that have not been tried."""
        known = self.known()
        return [(path, mutant) for path, mutant in self.mutants if (self.name(path), mutant.id) not in known]

    def run(self, coverage: Coverage, workers: int) -> Iterator[Verdict]:
        """Try what is pending, and append each verdict to the file."""
        pending = self.pending()
        jobs = ((path, self.name(path), mutant, coverage.tests(path, mutant)) for path, mutant in pending)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a") as lines:
            for path, mutant, outcome in run(self.root, jobs, coverage, workers):
                verdict = self._verdict(path, mutant, outcome)
                lines.write(json.dumps(asdict(verdict)) + "\n")
                lines.flush()
                yield verdict

    def _verdict(self, path: Path, mutant: Mutant, outcome: Outcome) -> Verdict:
        identity = self.name(path), self.digests[path], self.tests, mutant.id, mutant.line
        return Verdict(*identity, outcome.verdict, outcome.seconds, outcome.killer)


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
    for path, mutant in session.mutants:
        name = session.name(path)
        verdict = known.get((name, mutant.id))
        kind = "pending" if verdict is None else "killed" if not verdict.survived else "survived"
        by_module = counts.setdefault(name, Counter())
        by_module[kind] += 1
        by_module["reviewed"] += kind == "survived" and (name, mutant.id) in why
    counts["total"] = sum(counts.values(), Counter())
    lines = [f"{'module':46} {'mutants':>8} {'killed':>7} {'survived':>9} {'reviewed':>9} {'share killed':>13}"]
    for name, count in counts.items():
        tried = count["killed"] + count["survived"]
        share = f"{count['killed'] / tried:.1%}" if tried else "-"
        numbers = f"{tried:8} {count['killed']:7} {count['survived']:9} {count['reviewed']:9} {share:>13}"
        lines.append(f"{name:46} {numbers}" + (f"  ({count['pending']} not tried)" if count["pending"] else ""))
    return "\n".join(lines)


def survivors(session: Session, why: dict[tuple[str, str], str]) -> Iterator[str]:
    """Return the surviving mutants without a review, as diffs."""
    known = session.known()
    for path, mutant in session.mutants:
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
    parser.add_argument("--minutes", type=float, help="begin no mutant after that time")
    parser.add_argument("--show", action="store_true", help="run nothing: table and survivors of earlier runs")
    options = parser.parse_args(arguments)
    why, unseen, end = reviewed(), 0, time.monotonic() + 60 * (options.minutes or 1e9)
    report: list[str] = []
    for name in options.target:
        target = replace(TARGETS[name], tests=tuple(options.tests or TARGETS[name].tests))
        session = Session(ROOT, target, options.out / f"{name}.jsonl", options.sample, options.seed)
        pending = session.pending()
        if pending and not options.show:
            print(f"{name}: {len(pending)} mutants to try", flush=True)
            coverage = cover(ROOT, session.files, session.sources, limit=3600)
            if coverage.failed:
                raise SystemExit(f"these tests fail without any mutant: {coverage.failed}")
            preload(coverage.modules)
            _try(session, coverage, options.workers, end, len(pending))
        diffs = list(survivors(session, why))
        unseen += len(diffs)
        report += [*diffs, summary(session, why), ""]
    print("\n".join(report))
    return 1 if unseen else 0


def _try(session: Session, coverage: Coverage, workers: int, end: float, count: int) -> None:
    tally: Counter[str] = Counter()
    for number, verdict in enumerate(session.run(coverage, workers), 1):
        tally[verdict.verdict] += 1
        if number % 25 == 0 or number == count:
            told = ", ".join(f"{kind} {n}" for kind, n in sorted(tally.items()))
            print(f"  {number} of {count}: {told}", flush=True)
        if time.monotonic() > end:
            break


if __name__ == "__main__":
    sys.exit(main())
