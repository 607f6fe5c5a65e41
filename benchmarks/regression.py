"""``python -m benchmarks.regression --data-dir DIR``: kernel regression on 50,000 points in float64.

The kernel of an MLP on CIFAR-10 is computed panel by panel in float32 and factorized in float64 in place on one
triangle; ten right-hand sides (one-hot labels) are solved. Reported: the rate of the factorization and solution
(n^3 / 3 operations) as a share of the machine's own float64 matrix product measured in the same run, computing the
kernel not counted; the peak memory of the process; and the residual on rows of the kernel that were kept.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import torch
from torch import Tensor

from benchmarks import memory
from benchmarks.kernels_of_data import GeneratedKernel, images, network
from tangentlab._progress import progress_bar
from tangentlab.linalg import PackedCholesky, as_source

SHARE, PEAK = 0.5, 18 * memory.GIB


def gemm_rate(size: int, repeats: int = 3) -> float:
    """Measure the operations per second of a square float64 matrix product, the best of some."""
    a, b, c = (torch.randn(size, size, dtype=torch.float64) for _ in range(3))
    best = float("inf")
    for _ in range(repeats + 1):
        start = time.perf_counter()
        torch.mm(a, b, out=c)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def one_hot(labels: Tensor) -> Tensor:
    """Return (N, 10) targets of zero mean."""
    return torch.nn.functional.one_hot(labels, 10).double() - 0.1


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; return 1 if a requirement is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.regression", description=__doc__.split("\n\n")[1])
    parser.add_argument("--data-dir", type=Path, required=True, help="folder with CIFAR-10")
    parser.add_argument("--samples", type=int, default=50_000)
    parser.add_argument("--tile", type=int, default=2048)
    parser.add_argument("--ridge", type=float, default=1e-2, help="as a fraction of the mean of the diagonal")
    parser.add_argument("--gemm", type=int, default=4096, help="size of the matrix product to compare with")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number there")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    memory.start_watch()
    rates = [gemm_rate(options.gemm)]
    x, labels = images(options.data_dir, options.samples)
    kernel = GeneratedKernel(network("mlp"), x, "2GiB")
    ridge = options.ridge * float(kernel.diagonal().double().mean())
    right = one_hot(labels)
    start = time.perf_counter()
    with progress_bar("Cholesky", (-(-len(x) // options.tile)) ** 2) as tick:
        factor = PackedCholesky(as_source(kernel), ridge, tile=options.tile, tick=tick)
    if factor.failed is not None:
        print(f"not positive definite at row {factor.failed}: use a larger --ridge")
        return 1
    factored = time.perf_counter() - start - kernel.seconds
    begin = time.perf_counter()
    solution = factor.solve(right)
    solved = time.perf_counter() - begin
    rates.append(gemm_rate(options.gemm))
    rows = kernel.last.double()
    count = len(rows)
    gap = rows @ solution + ridge * solution[-count:] - right[-count:]
    residual = float(gap.norm() / right[-count:].norm())
    rate = len(x) ** 3 / 3 / (factored + solved)
    share, peak = rate / max(rates), memory.peak()
    met = share >= SHARE and peak <= PEAK and residual < 1e-8
    print(f"{len(x):,} points, ridge {ridge:.3g}: kernel {kernel.seconds:.1f} s, factor {factored:.1f} s, ", end="")
    print(f"10 right-hand sides {solved:.1f} s")
    print(f"{rate / 1e9:.1f} of {max(rates) / 1e9:.1f} GFLOP/s: {share:.0%} (required {SHARE:.0%})")
    print(f"peak memory {peak / memory.GIB:.1f} GiB (allowed {PEAK / memory.GIB:.0f}), residual {residual:.1e}")
    print("met" if met else "MISSED")
    if options.json:
        record = {"samples": len(x), "kernel": kernel.seconds, "factor": factored, "solve": solved}
        record |= {"rate": rate, "gemm": rates, "share": share, "peak": peak, "residual": residual, "met": met}
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
