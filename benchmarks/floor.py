"""``python -m benchmarks.floor``: the least time that an exact kernel by backward passes can take on this machine.

Whatever contracts gradients needs, for every sample, one forward pass and, for every scalar that is read out, one
backward pass to the output of each layer with parameters. Measured is that alone: no gradient of a parameter is
computed, nothing is stored, and nothing is contracted, so that no tool can reach it. A peer's time over this floor is
the largest ratio that is possible.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import torch

from benchmarks.cases import CASES, Case
from benchmarks.least_time import fastest_passes, network_and_inputs
from benchmarks.report import table


def floor(case: Case, repeats: int) -> tuple[float, int]:
    """Return the floor of a case in seconds, and the batch size that gave it."""
    return fastest_passes(*network_and_inputs(case), case, repeats)


def main(arguments: list[str] | None = None) -> int:
    """Measure every case and print a table; with the record of ``python -m benchmarks``, the ratios that are
    possible."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.floor", description=__doc__.split("\n\n")[1])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="few samples: a check of the harness, not a result")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--peers", type=Path, metavar="FILE", help="record of `python -m benchmarks --json FILE`")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    known = json.loads(options.peers.read_text())["comparisons"] if options.peers else []
    records = {record["case"]["name"]: record for record in known}
    rows = []
    for name in options.cases:
        case = CASES[name]
        case = case.with_samples(case.quick_samples) if options.quick else case
        seconds, batch = floor(case, options.repeats)
        row = [case.title, f"{seconds:.3f}", str(batch)]
        if name in records:
            best = {peer: min(final["seconds"]) for peer, final in records[name]["finals"].items()}
            ours = best.pop("tangentlab")
            peer = min(best.values())
            required = "-" if case.required is None else f"{case.required:g}"
            row += [f"{ours / seconds:.1f}", f"{peer / ours:.1f}", f"{peer / seconds:.1f}", required]
        elif records:
            row += ["-"] * 4
        rows.append(row)
    head = ["case", "floor, seconds", "batch"]
    if records:
        head += ["ours / floor", "best peer / ours", "best peer / floor", "required"]
    print(table(head, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
