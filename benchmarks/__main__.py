"""``python -m benchmarks``: tangentlab and its peers on the same weights and inputs, in one run."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from benchmarks import memory, report
from benchmarks.cases import CASES
from benchmarks.compare import AGREEMENT, Comparison, compare
from benchmarks.environments import NotAvailable, interpreter, versions
from benchmarks.measure import Options, stop_cleanly
from benchmarks.peers import OURS, PEERS
from benchmarks.peers._peer import describe

PACKAGES = ("tangentlab", "torch", "nngeometry", "neural-tangents", "jax", "jaxlib", "numpy")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    result = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Exact neural tangent kernels by tangentlab and by its peers: time, peak memory, agreement.",
        epilog="Exit code: 0; 1 if kernels disagree, if tangentlab fails or (--strict) if a ratio is missed.",
    )
    result.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE",
                        help=f"from {', '.join(CASES)} (default: all)")  # fmt: skip
    result.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS), metavar="PEER",
                        help=f"from {', '.join(PEERS)} (default: all)")  # fmt: skip
    result.add_argument("--repeats", type=int, default=5, help="timed calls, of which the best counts")
    result.add_argument("--quick", action="store_true", help="few samples: a check of the harness, not a result")
    result.add_argument("--samples", type=int, help="this many samples in every case instead of the case's own")
    result.add_argument("--json", type=Path, metavar="FILE", help="write every measurement there")
    result.add_argument("--threads", type=int, default=os.cpu_count(), help="cores for every tool (default: all)")
    result.add_argument("--limit", type=float, default=300.0, help="seconds after which one call is given up")
    result.add_argument("--seed", type=int, default=0, help="of weights and inputs")
    result.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="where every tool computes")
    result.add_argument("--strict", action="store_true", help="a missed ratio is a failure too")
    return result


def say(line: str) -> None:
    """Print progress on standard error, so that standard output contains only the tables."""
    print(line, file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark and return the exit code."""
    options = parser().parse_args(arguments)
    peers = list(dict.fromkeys(options.peers))
    interpreters: dict[str, Path | str] = {}
    for name in sorted(peers, key=lambda name: name != OURS):  # ours first: its kernel is the reference
        try:
            interpreters[name] = interpreter(PEERS[name], say)
        except NotAvailable as reason:
            interpreters[name] = str(reason)
            say(f"{name} is not available: {reason}")
    about = report.machine(options.threads)
    if about["load_average"] > 0.5:
        say(f"the machine is busy (load {about['load_average']:.1f}): do not trust the times of this run")

    measuring = Options(options.repeats, options.threads, options.limit, memory.available(), device=options.device)
    comparisons: list[Comparison] = []
    for name in dict.fromkeys(options.cases):
        case = CASES[name]
        samples = options.samples or (case.quick_samples if options.quick else case.samples)
        case = case.with_samples(samples)
        say(case.title)
        comparisons.append(compare(case, interpreters, measuring, options.seed, say))

    print(report.summary(comparisons, list(interpreters)), report.details(comparisons), sep="\n\n")
    if options.json:
        installed = {
            name: versions(python, PACKAGES) for name, python in interpreters.items() if isinstance(python, Path)
        }
        results = [report.record(comparison) for comparison in comparisons]
        content = {"machine": about, "versions": installed, "comparisons": results}
        options.json.write_text(json.dumps(content, indent=1) + "\n")
    return verdict(comparisons, strict=options.strict)


def verdict(comparisons: list[Comparison], *, strict: bool) -> int:
    """Return the exit code, and print each failure."""
    failures = []
    for comparison in comparisons:
        title = comparison.case.title
        for outcome in comparison.disagreements:
            where = f"{outcome.peer} ({describe(outcome.setting)})"
            failures.append(f"{title}: {where} differs by {outcome.error:.1e}, more than {AGREEMENT:g}")
        for trial in comparison.trials:
            if trial.peer == OURS and trial.status != "ok":
                failures.append(f"{title}: {OURS} {trial.status}: {trial.note}")
        ratio, required = comparison.ratio, comparison.case.required
        if strict and ratio is not None and required is not None and ratio < required:
            failures.append(f"{title}: ratio {ratio:.1f}, required {required:g}")
    for failure in failures:
        print(f"FAILED {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    stop_cleanly()
    sys.exit(main())
