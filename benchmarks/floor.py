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
from torch import Tensor, nn

from benchmarks.cases import CASES, Case
from benchmarks.limits import best_of, network_and_inputs
from benchmarks.report import table

LAYERS = (nn.Linear, nn.Conv2d, nn.BatchNorm2d)
BATCHES = (32, 64, 200, 1000)
"""Samples of a pass; the fastest counts."""


def passes(model: nn.Module, x: Tensor, case: Case, batch: int) -> None:
    """Run a forward pass, and a backward pass to the outputs of all layers for each scalar of the readout."""
    for part in x.split(batch):
        found: list[Tensor] = []

        def watch(_: nn.Module, __: object, output: Tensor, found: list[Tensor] = found) -> None:
            found.append(output)

        hooks = [module.register_forward_hook(watch) for module in model.modules() if isinstance(module, LAYERS)]
        sums = model(part).sum(0)
        for hook in hooks:
            hook.remove()
        for scalar in sums if case.readout == "full" else [sums.sum()]:
            torch.autograd.grad(scalar, found, retain_graph=True)


def floor(case: Case, repeats: int) -> tuple[float, int]:
    """Return the floor of a case in seconds, and the batch size that gave it."""
    model, x = network_and_inputs(case)
    batches = sorted({min(batch, case.samples) for batch in BATCHES})
    times = best_of(repeats, *(lambda b=batch: passes(model, x, case, b) for batch in batches))
    return min(zip(times, batches, strict=True))


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
