"""Products with the Jacobian of LeNet on shifted digits, from kept factors and by passes over the samples.

    python -m benchmarks.jacobian_products --data-dir DIR

The products are those of the solver of samarin2022, table 2, width x1: float64, one output, one vector. It prints the
time of J u and of J^T v, and how much the two ways differ.
"""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from tangentlab import data, models, tasks
from tangentlab.analysis._jacobian import NetworkJacobian, direction_of
from tangentlab.kernels.internal import Network, Options, Samples, keep_jacobian

BATCH = 64
"""Samples per pass, as in the experiment: the fastest of 16 to 1,024 with one thread."""


def timed(work: Callable[[], Tensor], calls: int) -> tuple[Tensor, float]:
    """Return a result and the time of the fastest of some calls."""
    best = float("inf")
    for _ in range(calls):
        begin = time.perf_counter()
        found = work()
        best = min(best, time.perf_counter() - begin)
    return found, best


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.jacobian_products", description=(__doc__ or "").split("\n\n")[0]
    )
    parser.add_argument("--data-dir", type=Path, help="folder of MNIST (default: the usual folders)")
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--samples", type=int, default=60_000)
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    images = tasks.shifted(data.load(options.dataset, options.data_dir), 7, canvas=tasks.SHIFTED_MNIST_CANVAS)
    task = tasks.binary(images, [0])
    count = min(options.samples, len(task.train))
    x = task.train.batch(torch.arange(count))[0].double()
    model = models.build("lenet", input_shape=task.train.input_shape, outputs=1, seed=0).eval().double()

    network = Network(model, 0)
    passes = NetworkJacobian(
        network, Samples(x, device=network.device, model=model), direction_of(network, 0, None), BATCH
    )
    passes.values()
    begin = time.perf_counter()
    kept = keep_jacobian(model, x, Options(0, progress=False))
    seconds = time.perf_counter() - begin
    if kept is None:
        print("The factors do not fit into a quarter of the free memory.")
        return 1
    print(f"{count:,} points, {kept.shape[1]:,} parameters, {options.threads} threads: factors in {seconds:.1f} s")
    generator = torch.Generator().manual_seed(0)
    u, v = (torch.randn(size, 1, generator=generator, dtype=torch.float64) for size in reversed(kept.shape))
    for name, one, two in (
        ("J u", lambda: passes @ u, lambda: kept @ u),
        ("J^T v", lambda: passes.rmatmul(v), lambda: kept.rmatmul(v)),
    ):
        (expected, slow), (found, fast) = timed(one, 1), timed(two, options.calls)
        gap = float((found - expected).norm() / expected.norm())
        print(f"{name}: passes {slow:.1f} s, kept factors {fast:.2f} s, {slow / fast:.0f} times; difference {gap:.1e}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
