"""``python -m benchmarks.store``: what storing a kernel costs, and the papers' full-size kernels.

- overhead: time of a store over the same kernel in memory, N = 20,000, LeNet (at most 1.15);
- dask: two workers with one thread each over one process with two threads (at most 1.20), and the least possible;
- estimate: the estimate before the start over what the run takes (0.7 to 1.3);
- bucket: a store in an S3 service on loopback (moto, in a process of its own) over one in a folder, N = 10,000, LeNet
  (at most 1.30);
- full: the kernel of all 60,000 samples of CIFAR-10 for the LeNet or the MLP of ortiz2021 within 12 GiB. It needs
  ``--data-dir`` and ``--out``; rerun the command to resume after an interruption.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.least_time import gemm_rate, pair_operations
from benchmarks.limits import Check
from benchmarks.report import machine, table
from tangentlab import data, engines, models, ntk, store

AUTHORS_MINUTES = {"lenet": 20, "mlp": 3}
"""What ortiz2021 state for the 60,000 x 60,000 Gram matrix on 4 V100."""


def network(name: str) -> nn.Module:
    """Return the network of ortiz2021, with one output and the authors' initialization."""
    options: dict[str, Any] = {"variant": "ortiz2021"} if name == "lenet" else {}
    return models.build(name, input_shape=(3, 32, 32), outputs=1, init="lecun", seed=0, **options).eval()


def inputs(samples: int) -> Tensor:
    """Return inputs of CIFAR-10's shape."""
    return torch.randn(samples, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def overhead(samples: int, folder: Path, repeats: int) -> list[Check]:
    """Measure a store over the kernel in memory, in turn, and the estimate over the store."""
    model, x = network("lenet"), inputs(samples)
    best = {"memory": float("inf"), "store": float("inf")}
    estimate = store.estimate(model, x, folder / "kernel.zarr")
    for _ in range(repeats):
        start = time.perf_counter()
        kernel = ntk(model, x, readout="pntk", progress=False)
        best["memory"] = min(best["memory"], time.perf_counter() - start)
        del kernel
        path = folder / "kernel.zarr"
        start = time.perf_counter()
        store.compute(model, x, path, progress=False)
        best["store"] = min(best["store"], time.perf_counter() - start)
        shutil.rmtree(path)
    ratio = best["store"] / best["memory"]
    subject = f"LeNet, N {samples}"
    detail = f"memory {best['memory']:.1f} s, store {best['store']:.1f} s"
    guess = estimate.seconds / best["store"]
    return [
        Check("store / memory", subject, ratio, 1.15, True, detail),
        Check("estimate / run", subject, max(guess, 1 / guess), 1.3, True, f"estimated {estimate.seconds:.1f} s"),
    ]


def two_workers(samples: int, folder: Path, repeats: int, workers: int = 2) -> list[Check]:
    """Measure Dask workers with one thread each over one process with all threads, in a running cluster.

    Beside it, what no design can do away with: the cluster's start, if it is started for this kernel, and the rate of
    all one-threaded matrix products at a time, from which the least possible ratio follows.
    """
    model, x, threads = network("lenet"), inputs(samples), torch.get_num_threads()
    times: dict[str, list[float]] = {"one": [], "two": []}
    start = time.perf_counter()
    with engines.Dask(workers) as cluster:
        cluster.client.wait_for_workers(workers)
        cluster.client.run(_warm_up)
        starting = time.perf_counter() - start
        own, theirs = gemm_rate(3), sum(cluster.client.run(gemm_rate, 3).values())
        for _ in range(repeats):
            for name, engine in (("one", None), ("two", cluster)):
                shutil.rmtree(folder / name, ignore_errors=True)
                start = time.perf_counter()
                store.compute(model, x, folder / name, engine=engine, progress=False)
                times[name].append(time.perf_counter() - start)
    tiles = [f"c/{i}/{j}" for i, j in store.open(folder / "one").plan.tiles()]
    same = all((folder / "two" / tile).read_bytes() == (folder / "one" / tile).read_bytes() for tile in tiles)
    here, there = min(times["one"]), min(times["two"])
    seconds = {name: ", ".join(f"{value:.1f}" for value in values) for name, values in times.items()}
    detail = (
        f"in process ({threads} threads) {seconds['one']} s, Dask {seconds['two']} s, "
        f"{'same' if same else 'OTHER'} bits; with the cluster's start of {starting:.1f} s "
        f"{(there + starting) / here:.2f}; least possible, by GEMM, {own / theirs:.2f}"
    )
    return [Check(f"{workers} Dask workers / in process", f"LeNet, N {samples}", there / here, 1.2, True, detail)]


def _warm_up() -> float:
    """Load what is loaded once."""
    import tangentlab.models
    import tangentlab.store  # noqa: F401

    return float((torch.ones(64, 64) @ torch.ones(64, 64)).sum())


def bucket(samples: int, folder: Path, repeats: int) -> list[Check]:
    """Measure a store in an object store over one in a folder, in turn."""
    from tests.store import object_service

    model, x = network("lenet"), inputs(samples)
    times: dict[str, list[float]] = {"folder": [], "object store": []}
    with object_service.running() as service:
        os.environ.update(service.environment)
        for number in range(repeats):
            places = {"folder": folder / f"{number}", "object store": f"s3://{object_service.BUCKET}/{number}.zarr"}
            for name, place in places.items():
                start = time.perf_counter()
                kernel = store.compute(model, x, place, progress=False)
                times[name].append(time.perf_counter() - start)
        same = all(
            (folder / f"{number}/c/{i}/{j}").read_bytes() == bytes(kernel.place.read(f"c/{i}/{j}"))
            for i, j in kernel.plan.tiles()
        )
    here, there = (min(values) for values in times.values())
    seconds = "; ".join(f"{name} {', '.join(f'{value:.1f}' for value in values)} s" for name, values in times.items())
    detail = f"{seconds}, {'same' if same else 'OTHER'} bits, {kernel.plan.count} tiles"
    return [Check("object store / folder", f"LeNet, N {samples}", there / here, 1.3, True, detail)]


def full(name: str, data_dir: Path | None, path: Path, memory: str, samples: int | None) -> list[Check]:
    """Measure the kernel of training and test samples, in the authors' order, against their time and this machine's
    GEMM."""
    model, x = network(name), data.load("cifar10", data_dir).both()
    if samples is not None:
        x = x.select(torch.arange(samples))
    log = path.with_suffix(".seconds.json")
    before = json.loads(log.read_text())["seconds"] if log.exists() else 0.0
    start = time.perf_counter()
    kernel = None
    try:
        kernel = store.compute(model, x, path, memory_budget=memory, progress=True)
    finally:
        seconds = before + time.perf_counter() - start
        log.write_text(json.dumps({"seconds": seconds}))
    pairs = len(x) * (len(x) + 1) // 2
    operations = pair_operations(model) if name == "lenet" else _mlp_operations(model)
    rate, own = pairs * operations / seconds, gemm_rate(3)
    peak = _peak_bytes()
    minutes = AUTHORS_MINUTES[name] * (len(x) / 60_000) ** 2
    detail = (
        f"{seconds:.0f} s, {rate / own:.0%} of the GEMM rate of {own / 1e9:.0f} GFLOP/s, "
        f"peak {peak / 2**30:.1f} GiB, {kernel!r}"
    )
    subject = f"{name} of ortiz2021, N {len(x)}"
    limit = float(memory.removesuffix("GiB"))
    return [
        Check("minutes / the authors' 4 V100", subject, seconds / 60, minutes, True, detail),
        Check("peak memory in GiB", subject, peak / 2**30, limit, True, f"budget {memory}"),
    ]


def _mlp_operations(model: nn.Module) -> int:
    return sum(2 * (m.in_features + m.out_features) for m in model.modules() if isinstance(m, nn.Linear))


def _peak_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, return 1 if a limit is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.store", description="Stored kernels.")
    parser.add_argument(
        "what", choices=("overhead", "dask", "bucket", "lenet", "mlp"), help="lenet and mlp: the full kernel"
    )
    parser.add_argument("--samples", type=int, help="default: 20,000, 10,000 for bucket, and all of CIFAR-10")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, help="the store of a full kernel; kept")
    parser.add_argument("--memory", default="12GiB", help="budget of a full kernel, in GiB")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number there")
    options = parser.parse_args(arguments)
    if options.what in AUTHORS_MINUTES:
        if options.out is None:
            parser.error("--out is needed for a full kernel")
        checks = full(options.what, options.data_dir, options.out, options.memory, options.samples)
    else:
        with tempfile.TemporaryDirectory(prefix="tangentlab-store-", dir=os.getcwd()) as name:
            measure = {"overhead": overhead, "dask": two_workers, "bucket": bucket}[options.what]
            checks = measure(
                options.samples or (10_000 if options.what == "bucket" else 20_000), Path(name), options.repeats
            )
    rows = [
        [c.limit, c.subject, f"{c.found:.2f}", f"at most {c.bound:.3g}", "met" if c.met else "MISSED", c.detail]
        for c in checks
    ]
    print(table(["limit", "case", "measured", "target", "verdict", "detail"], rows))
    if options.json:
        content = {"machine": machine(torch.get_num_threads()), "checks": [asdict(c) | {"met": c.met} for c in checks]}
        options.json.write_text(json.dumps(content, indent=1) + "\n")
    return 0 if all(check.met for check in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
