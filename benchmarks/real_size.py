"""``python -m benchmarks.real_size``: kernels of networks of real size, in plain training steps.

Every measurement runs in a process of its own. In it, the same samples go through a plain training step (forward and
backward, at the fastest of several batch sizes), through ``tangentlab.ntk`` within a memory budget, and, where asked,
through what a user would write: a loop of one ``autograd.grad`` per sample with rows stacked and one product, and
``torch.func`` (vmap of grad). Times are given in steps, so that they can be compared between machines. ``plain`` is the
least that is possible with the checks: a step on all samples, and the passes of the samples that are compared.

A suite takes up to an hour. With ``--json`` every result is written as soon as it is there, and a case that is in the
file is not measured again, so a suite can be run in pieces: ``--list`` shows the names of its cases and what is left,
``--only`` chooses some of them, ``--most`` bounds how many are measured in one go.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch

from benchmarks import memory
from benchmarks.measure import ROOT
from benchmarks.real_measure import RealCase, measure
from benchmarks.real_networks import NETWORKS
from tangentlab._memory import parse_bytes

TARGETS = [
    RealCase("gpt2", 64, budget="8GiB", steps=3, entries=20),
    RealCase("gpt2", 256, budget="16GiB", steps=4.5, entries=20),
    RealCase("gpt2", 256, budget="6GiB", steps=7, entries=20),
    RealCase("llama", 64, budget="8GiB", steps=3, entries=20),
    RealCase("llama", 256, budget="16GiB", steps=4.5, entries=20),
    RealCase("llama", 256, budget="6GiB", steps=7, entries=20),
    RealCase("vit", 64, budget="12GiB", steps=4.5, entries=20),
    RealCase("bert", 64, "full", budget="12GiB", steps=6, entries=20),
    RealCase("resnet50", 256, budget="8GiB", steps=4, entries=20),
    RealCase("efficientnet", 600, budget="8GiB", steps=5, entries=20),
]
EXACT = [replace(case, budget="12GiB", steps=None, double=True) for case in TARGETS if case.budget != "6GiB"]
SWEEP = [
    RealCase(network, samples, budget="12GiB", peers=True)
    for network in NETWORKS
    if network not in ("gpt2-short", "gpt2-lm", "gpt2-lm-small")
    for samples in (2, 4, 8, 16, 32)
]
TIED = [
    RealCase("gpt2-lm-small", 32, "next_token", budget="2GiB", entries=10),
    RealCase("gpt2-lm-small", 32, "pntk", budget="2GiB", entries=10),
    RealCase("gpt2-lm", 32, "next_token", budget="8GiB", entries=4),
]
GROWTH = [RealCase("gpt2-short", samples, budget="12GiB") for samples in (125, 250, 500, 1000)]
SUITES = {"targets": TARGETS, "exact": EXACT, "sweep": SWEEP, "growth": GROWTH, "tied": TIED}

DOUBLED = {"contraction": 4.2, "passes": 2.1}
"""How many times the seconds of a part may grow when N doubles."""
OVER_BUDGET = 1.1
"""How many times the budget the peak above the model may be."""


def show(value: Any) -> str:
    """Return a number or a reason as a cell of a table."""
    return "-" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


PARTS = ("contraction", "passes", "peak", "probe", "plain", "loop", "torch.func")
HEAD = ("case", "readout", "step (s)", "ours", "target", "contraction", "passes", "peak GiB", *PARTS[3:], "error")


def row(case: RealCase, found: dict[str, Any]) -> str:
    """Return the row of a case in the table."""
    if "failed" in found:
        return f"| {case.name} | {case.readout} | failed: {found['failed']} |"
    error = f"{found['error']:.1e}" if "error" in found else "-"
    cells = [case.name, case.readout, found["step"], found["ours"], case.steps, *map(found.get, PARTS)]
    note = " (fallback)" if found["fallback"] else ""
    return "| " + " | ".join(map(show, cells)) + f" | {error}{note} |"


def growth(measured: Sequence[tuple[RealCase, dict[str, Any]]]) -> Iterator[str]:
    """Yield how seconds grow from each N to its double, and what share of the budget each peak is, with the limits."""
    seconds = {
        (case.network, case.samples): {part: found[part] * found["step"] for part in DOUBLED}
        for case, found in measured
        if "failed" not in found
    }
    for (network, samples), own in seconds.items():
        half = seconds.get((network, samples // 2))
        if half is not None and samples % 2 == 0:
            grown = (f"{part} {own[part] / half[part]:.2f} (at most {most})" for part, most in DOUBLED.items())
            yield f"{network}, N {samples // 2} to {samples}: {', '.join(grown)} times"
    for case, found in measured:
        if "failed" not in found:
            share = found["peak"] * memory.GIB / parse_bytes(case.budget)
            yield f"{case.name}: peak {share:.2f} of the budget (at most {OVER_BUDGET})"


def run(case: RealCase, device: str) -> dict[str, Any]:
    """Measure one case in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.real_size", "--device", device, "--one", json.dumps(asdict(case))]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode:
        return {"failed": (done.stderr.splitlines() or [f"ended with {done.returncode}"])[-1][:80]}
    return json.loads(done.stdout.splitlines()[-1])


def chosen(cases: Sequence[RealCase], only: Sequence[str] | None) -> list[RealCase]:
    """Return the cases that are named, by their network or their name, in which * and ? stand for anything."""

    def matches(case: RealCase, pattern: str) -> bool:
        return pattern == case.network or fnmatchcase(case.name, pattern)

    for pattern in only or ():
        if not any(matches(case, pattern) for case in cases):
            names = ", ".join(case.name for case in cases)
            raise SystemExit(f"No case of this suite is called {pattern}. Its cases: {names}.")
    return [case for case in cases if not only or any(matches(case, pattern) for pattern in only)]


def main(given: Sequence[str] | None = None) -> None:
    """Run the cases that are asked for, each in a process of its own, and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.real_size", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--suite", choices=SUITES, default="targets")
    parser.add_argument("--only", nargs="*", metavar="CASE", help="Cases to measure: a network, or names with * and ?.")
    parser.add_argument("--most", type=int, metavar="COUNT", help="Measure at most this many cases.")
    parser.add_argument("--list", action="store_true", help="List the cases instead, and say which are in the file.")
    parser.add_argument("--device", default="cpu", help="Where to compute: cpu or cuda.")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="Results; cases that are in it are not measured again."
    )
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args(given)
    if arguments.one:
        print(json.dumps(measure(RealCase(**json.loads(arguments.one)), arguments.device)))
        return
    file: Path | None = arguments.json
    known = json.loads(file.read_text()) if file is not None and file.exists() else {}
    cases = [
        (case, json.dumps(asdict(case) | {"device": arguments.device}, sort_keys=True))
        for case in chosen(SUITES[arguments.suite], arguments.only)
    ]
    if arguments.list:
        for case, key in cases:
            print(f"{case.name}{', measured' if key in known else ''}")
        return
    where = f"{arguments.device}, {torch.get_num_threads()} threads"
    print(f"torch {torch.__version__}, {where}; times in plain training steps (suite exact: float64, in seconds)\n")
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}", flush=True)
    left, measured = arguments.most, []
    for case, key in cases:
        if key not in known:
            if left == 0:
                continue
            left = None if left is None else left - 1
            known[key] = run(case, arguments.device)
            if file is not None and "failed" not in known[key]:
                file.with_suffix(".part").write_text(json.dumps(known, indent=1))
                file.with_suffix(".part").replace(file)
        print(row(case, known[key]), flush=True)
        measured.append((case, known[key]))
    if arguments.suite == "growth":
        print("", *growth(measured), sep="\n")


if __name__ == "__main__":
    main()
