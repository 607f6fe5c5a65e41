"""``python -m benchmarks.matrix_free``: kernel regression on CIFAR-10 by blocks of the kernel, against Cholesky.

The pNTK of the FCN of mohamadi2022 (width 256, ten outputs, PyTorch's initialization, seed 0), float32, as in
``mohamadi2022/fig9``: one-hot labels, the network's outputs as prior mean, and a ridge at the level of the kernel's
rounding, sqrt(n) eps tr K / n. ``solvers.block_regression`` stops at ``--tolerance``; where it is interrupted, the same
command resumes it (after Ctrl-C, with all times added up). ``--cholesky`` computes the kernel rectangle by rectangle
and factorizes it in float64 instead. Printed are all results in the folder. It needs ``--data-dir`` and ``--out``.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import memory
from benchmarks.kernels_of_data import GeneratedKernel
from benchmarks.report import table
from tangentlab import NTKOperator, data, linalg, models, ntk
from tangentlab.solvers import block_regression


def outputs(network: nn.Module, examples: Any) -> Tensor:
    """Return the network's outputs for all examples, (N, 10)."""
    parts = torch.arange(len(examples)).split(512)
    with torch.no_grad():
        return torch.cat([network(examples.inputs(part)) for part in parts]).double()


def solve(network: nn.Module, train: Any, test: Any, options: argparse.Namespace, found: dict[str, Any]) -> Tensor:
    """Fit by blocks, and return predictions."""
    operator = NTKOperator(network, train, readout="pntk", memory_budget=options.factors)
    y, f0, f0_test = labels(train), outputs(network, train), outputs(network, test)
    fit = block_regression(
        operator,
        y,
        f0=f0,
        ridge=found["ridge"],
        tolerance=options.tolerance,
        validation=(test, labels(test), f0_test) if options.validate else None,
        folder=options.out / f"blocks-{len(train)}",
        memory_budget=options.memory,
        seconds=options.seconds,
        block=options.block,
        progress=True,
    )
    found |= {"passes": fit.passes, "residual": fit.residual, "block": fit.block, "effective": fit.effective_ridge}
    found["stopped"] = fit.stopped
    found["history"] = [[each.number, each.residual, each.error, each.seconds] for each in fit.history]
    return fit.predict(test, f0=f0_test)


def factorize(network: nn.Module, train: Any, test: Any, found: dict[str, Any]) -> Tensor:
    """Fit by a Cholesky factor of the whole kernel, and return predictions."""
    kernel = GeneratedKernel(network, train.inputs(torch.arange(len(train))), "1GiB", "pntk")
    fit = linalg.regress(kernel, labels(train), f0=outputs(network, train), ridge=found["ridge"], method="cholesky")
    found |= {"residual": fit.residual, "passes": None, "kernel_seconds": kernel.seconds}
    cross = NTKOperator(network, test, train, readout="pntk", memory_budget="1GiB")
    return fit.predict(cross, f0=outputs(network, test))


def labels(examples: Any) -> Tensor:
    """Return one-hot labels, (N, 10)."""
    return torch.nn.functional.one_hot(examples.labels, 10).double()


def main(arguments: list[str] | None = None) -> int:
    """Measure one method and print all results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.matrix_free", description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder of checkpoints and results; kept")
    parser.add_argument("--samples", type=int, default=50_000, help="training images, the first ones")
    parser.add_argument("--tolerance", type=float, default=1e-2)
    parser.add_argument("--memory", default="1.25GiB", help="memory budget of the solver")
    parser.add_argument("--factors", default="256MiB", help="that of the operator")
    parser.add_argument("--block", type=int)
    parser.add_argument("--seconds", type=float, help="stop after this time; the same command continues")
    parser.add_argument("--validate", action="store_true", help="compute the error on the test images at every pass")
    parser.add_argument("--cholesky", action="store_true")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    memory.start_watch()
    clock, processor = time.monotonic(), used()
    loaded = data.load("cifar10", options.data_dir)
    train, test = loaded.train.select(torch.arange(options.samples)), loaded.test
    network = models.build("fcn", input_shape=(3, 32, 32), outputs=10, hidden=256, seed=0).eval()
    diagonal = ntk(network, train, readout="pntk", diagonal=True, memory_budget="256MiB", progress=False)
    ridge = torch.finfo(torch.float32).eps * float(diagonal.double().sum()) / len(train) ** 0.5
    method = "cholesky" if options.cholesky else "blocks"
    found: dict[str, Any] = {"method": method, "samples": len(train), "ridge": ridge}
    log = options.out / f"{method}-{len(train)}.times"
    before = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    try:
        compute = (
            factorize(network, train, test, found) if options.cholesky else solve(network, train, test, options, found)
        )
    finally:
        with log.open("a") as file:
            print(json.dumps([time.monotonic() - clock, used() - processor]), file=file)
    found["accuracy"] = float((compute.argmax(1) == test.labels).double().mean())
    found["seconds"] = time.monotonic() - clock + sum(each[0] for each in before)
    found["processor_seconds"] = used() - processor + sum(each[1] for each in before)
    found["peak_gib"] = memory.peak() / memory.GIB
    (options.out / f"{method}-{len(train)}.json").write_text(json.dumps(found, indent=1) + "\n")
    show(options.out)
    return 0


def used() -> float:
    """Return the seconds that the processors spent on this process."""
    spent = resource.getrusage(resource.RUSAGE_SELF)
    return spent.ru_utime + spent.ru_stime


def show(folder: Path) -> None:
    """Print the results of a folder."""
    results = [json.loads(file.read_text()) for file in folder.glob("*.json")]
    head = ["images", "method", "test accuracy", "residual", "passes", "seconds", "processor seconds", "peak GiB"]
    rows = [
        [
            f"{each['samples']:,}",
            each["method"],
            f"{each['accuracy']:.2%}",
            f"{each['residual']:.1e}",
            str(each["passes"] or ""),
            f"{each['seconds']:.0f}",
            f"{each['processor_seconds']:.0f}",
            f"{each['peak_gib']:.2f}",
        ]
        for each in sorted(results, key=lambda each: (each["samples"], each["method"]))
    ]
    print(table(head, rows))


if __name__ == "__main__":
    sys.exit(main())
