"""``python -m benchmarks.dask_solvers``: linear algebra of a stored kernel in a Dask cluster on this machine.

- agreement: regression over 4 workers against ``linalg.regress`` in this process, float64, N 4,000: the relative
  difference of the coefficients (at most 1e-10), for every method, and of the 20 largest eigenvalues;
- scaling: one worker of one thread over two of them, in one run, in turn, after a first product that lets the workers
  read their blocks: Cholesky and eigenpairs (at least 1.6). Beside them is what two processes of one thread gain over
  one on plain float64 products of the size of a block, the most that these cores allow.

The kernel is that of a small network on random inputs, which is computed first and not timed.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.limits import Check
from benchmarks.report import machine, table
from tangentlab import engines, linalg, solvers, store

RIDGE = 1.0


def stored(samples: int, tile: int, folder: Path) -> store.StoredKernel:
    """Compute the kernel, in float64."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)).double().eval()
    x = torch.randn(samples, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return store.compute(model, x, folder / f"{samples}.zarr", tile=tile, progress=False)


def targets(samples: int) -> Tensor:
    """Return two columns of targets."""
    return torch.randn(samples, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def agreement(samples: int, tile: int, folder: Path) -> list[Check]:
    """Compare four workers with this process."""
    kernel, y = stored(samples, tile, folder), targets(samples)
    expected = linalg.regress(kernel, y, ridge=RIDGE).coefficients
    checks = []
    with engines.Dask(4) as cluster:
        spread = solvers.DaskKernel(kernel, cluster)
        methods: dict[str, dict[str, Any]] = {
            "cholesky": {"method": "cholesky"},
            "mixed": {"method": "mixed", "tolerance": 1e-12},
            "cg": {"method": "cg", "tolerance": 1e-12, "rank": samples // 4},
        }
        for name, options in methods.items():
            start = time.perf_counter()
            fit = linalg.regress(spread, y, ridge=RIDGE, **options)
            seconds = time.perf_counter() - start
            gap = float((fit.coefficients - expected).norm() / expected.norm())
            detail = f"{seconds:.1f} s, {fit!r}"
            checks.append(Check("difference of coefficients", f"{name}, N {samples}", gap, 1e-10, True, detail))
        found, own = linalg.eigh(spread, 20), linalg.eigh(kernel, 20)
        gap = float((found.values / own.values - 1).abs().max())
        checks.append(Check("difference of eigenvalues", f"20 pairs, N {samples}", gap, 1e-10, True, repr(found)))
    return checks


def products(size: int, count: int = 40) -> float:
    """Return the seconds of some square products on one thread."""
    torch.set_num_threads(1)
    one = torch.randn(size, size, dtype=torch.float64)
    one @ one
    start = time.perf_counter()
    for _ in range(count):
        one @ one
    return time.perf_counter() - start


def machine_gain(size: int) -> float:
    """Return how many times the products per second of one process two processes at once have."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        list(pool.map(products, [size] * 2, [1] * 2))  # both have started
        alone = pool.submit(products, size).result()
        return 2 * alone / max(pool.map(products, [size] * 2))


def scaling(samples: int, tile: int, folder: Path, repeats: int) -> list[Check]:
    """Measure one worker over two."""
    kernel, y = stored(samples, tile, folder), targets(samples)
    work: dict[str, Callable[[Any], Any]] = {
        "cholesky": lambda spread: linalg.regress(spread, y, ridge=RIDGE, method="cholesky"),
        "100 eigenpairs": lambda spread: linalg.eigh(spread, 100, tolerance=1e-6),
    }
    times: dict[str, dict[int, list[float]]] = {name: {1: [], 2: []} for name in work}
    os.environ["OMP_NUM_THREADS"] = "1"  # of the workers that start now
    for _ in range(repeats):
        for workers in (1, 2):
            with engines.Dask(workers) as cluster:
                cluster.client.wait_for_workers(workers)
                spread = solvers.DaskKernel(kernel, cluster, keep=True)
                spread.product(y)
                for name, call in work.items():
                    start = time.perf_counter()
                    call(spread)
                    times[name][workers].append(time.perf_counter() - start)
    checks = []
    most = machine_gain(tile)
    for name, found in times.items():
        shown = "; ".join(
            f"{workers} worker{'s' * (workers > 1)} {', '.join(f'{value:.1f}' for value in values)} s"
            for workers, values in found.items()
        )
        shown += f"; plain products {most:.2f} times"
        ratio = min(found[1]) / min(found[2])
        checks.append(Check("one worker / two", f"{name}, N {samples}, tile {tile}", ratio, 1.6, False, shown))
    return checks


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, return 1 if a limit is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dask_solvers", description=__doc__)
    parser.add_argument("what", choices=("agreement", "scaling"))
    parser.add_argument("--samples", type=int, help="default: 4,000, and 20,000 for scaling")
    parser.add_argument("--tile", type=int, help="default: 500, and 1,024 for scaling")
    parser.add_argument("--repeats", type=int, default=1, help="of scaling")
    parser.add_argument("--out", type=Path, help="a folder for the stored kernel, to be kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number there")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="tangentlab-dask-", dir=os.getcwd()) as name:
        folder = options.out or Path(name)
        if options.what == "agreement":
            checks = agreement(options.samples or 4_000, options.tile or 500, folder)
        else:
            checks = scaling(options.samples or 20_000, options.tile or 1_024, folder, options.repeats)
    rows = [
        [
            c.limit,
            c.subject,
            f"{c.found:.3g}",
            f"at {'most' if c.at_most else 'least'} {c.bound:.3g}",
            "met" if c.met else "MISSED",
            c.detail,
        ]
        for c in checks
    ]
    print(table(["limit", "case", "measured", "target", "verdict", "detail"], rows))
    if options.json:
        content = {"machine": machine(torch.get_num_threads()), "checks": [asdict(c) | {"met": c.met} for c in checks]}
        options.json.write_text(json.dumps(content, indent=1) + "\n")
    return 0 if all(check.met for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
