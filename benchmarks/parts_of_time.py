"""``python -m benchmarks.parts_of_time``: where the time of a kernel goes, beside the limit of the machine.

The parts of the fastest of some calls: the probe (which computes the first batch of factors), the factors of the other
samples, contraction, the last check, and the rest. Beside them is what the limit consists of, see
:mod:`benchmarks.least_time`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.cases import CASES, Case
from benchmarks.least_time import fastest_passes, gemm_rate, network_and_inputs, pair_operations
from benchmarks.report import table

PARTS = ("probe", "factors", "contraction", "check")


@contextmanager
def watched() -> Iterator[dict[str, float]]:
    """Yield the seconds of each part, which grow while the engine computes."""
    from tangentlab.kernels import _blocks, _plan
    from tangentlab.kernels._factorize import Factorizer

    spent = dict.fromkeys(PARTS, 0.0)

    def timed(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                spent[part] += time.perf_counter() - start

        return call

    with ExitStack() as stack:
        for part, owner, name in (
            ("probe", _plan, "probe"),
            ("factors", Factorizer, "__call__"),
            ("contraction", _blocks, "add_contracted"),
            ("check", _blocks, "verify_kernels"),
        ):
            stack.enter_context(patch.object(owner, name, timed(part, getattr(owner, name))))
        yield spent


def parts(case: Case, repeats: int) -> list[float]:
    """Return the seconds of the fastest call and of its parts, and those of the passes and products of the limit."""
    import tangentlab

    model, x = network_and_inputs(case)
    best: list[float] = [float("inf")]
    with watched() as spent:
        for _ in range(repeats + 1):
            spent.update(dict.fromkeys(PARTS, 0.0))
            start = time.perf_counter()
            tangentlab.ntk(model, x, readout=case.readout, progress=False)
            seconds = time.perf_counter() - start
            best = min(best, [seconds, *spent.values(), seconds - sum(spent.values())])
    pairs = case.samples * (case.samples + 1) // 2
    products = pairs * pair_operations(model, case.readouts, x[:1]) / gemm_rate(repeats)
    return [*best, fastest_passes(model, x, case, repeats)[0], products]


def main(arguments: list[str] | None = None) -> int:
    """Measure every case and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parts_of_time", description=__doc__.split("\n\n")[1])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="few samples: a check of the harness, not a result")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    rows = []
    for name in options.cases:
        case = CASES[name]
        case = case.with_samples(case.quick_samples) if options.quick else case
        found = parts(case, options.repeats)
        over = found[0] / (found[-1] + found[-2])
        rows.append([case.title, *(f"{seconds:.3f}" for seconds in found), f"{over:.1f}"])
    limit = ["limit: passes", "limit: products", "time over limit"]
    print(table(["seconds", "whole", *PARTS, "rest", *limit], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
