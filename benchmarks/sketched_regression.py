"""``python -m benchmarks.sketched_regression``: streaming regression on shifted MNIST digits, killed once and resumed.

Each of the 60,000 digits is taken at nine places, 540,000 samples in all. The pNTK of LeNet (ortiz2021, 10 outputs,
seed 0) is sketched to k features, and one-hot labels are fitted. The run is a process of its own, which is killed after
a third of the parts and started again. Printed are the time of both together, by the clock and of the processors
(where other programs compute too, the latter over the number of threads is what the run would take alone), the memory
of the second one, and the accuracy on the 10,000 test digits at their own place. It needs ``--data-dir`` and ``--out``.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.report import machine
from tangentlab import data, models
from tangentlab.solvers import sketched_regression

PLACES = [(down, right) for down in (0, -2, 2) for right in (0, -2, 2)]
"""Digits have a border of four pixels, so that none is cut off."""


class Shifted:
    """MNIST digits at several places, made when they are needed.

    Args:
        images: (N, 1, 28, 28).
        places: The number of places.
    """

    def __init__(self, images: Tensor, places: int) -> None:
        self.images, self.places = images, places

    def __len__(self) -> int:
        return len(self.images) * self.places

    def select(self, rows: Tensor) -> Tensor:
        """Return samples by their numbers; the place changes slowest."""
        found = self.images[rows % len(self.images)]
        place = rows // len(self.images)
        for number in place.unique().tolist():
            chosen = place == number
            found[chosen] = found[chosen].roll(PLACES[number], (2, 3))
        return found


def load(data_dir: Path | None, samples: int | None) -> tuple[Any, Any]:
    """Return training and test examples as tensors with labels."""
    loaded = data.load("mnist", data_dir, n_train=samples)
    return tuple(part.batch(range(len(part))) for part in (loaded.train, loaded.test))


def work(options: argparse.Namespace) -> dict[str, float]:
    """Fit, and return what was found."""
    (x, labels), (x_test, test_labels) = load(options.data_dir, options.samples)
    model = models.build("lenet", variant="ortiz2021", input_shape=tuple(x.shape[1:]), outputs=10, seed=0).eval()
    targets = torch.nn.functional.one_hot(labels, 10).double().repeat(options.places, 1)
    fit = sketched_regression(
        model,
        Shifted(x, options.places),
        targets,
        options.k,
        folder=options.out,
        chunk=options.chunk,
        memory_budget="2GiB",
        progress=True,
    )
    right = fit.predict(x_test).argmax(1) == test_labels
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return {
        "samples": fit.samples,
        "accuracy": float(right.double().mean()),
        "leave_one_out": float(fit.leave_one_out.min()),
        "ridge": fit.best,
        "peak_gib": int(peak.split()[1]) / 1024**2,
    }


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sketched_regression", description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder of the features; kept")
    parser.add_argument("--samples", type=int, help="digits; default all 60,000")
    parser.add_argument("--places", type=int, default=9)
    parser.add_argument("-k", type=int, default=2048)
    parser.add_argument("--chunk", type=int, default=4096)
    parser.add_argument("--worker", action="store_true", help="fit in this process, without being killed")
    options = parser.parse_args(arguments)
    if options.worker:
        print(json.dumps(work(options)))
        return 0
    command = [sys.executable, "-m", "benchmarks.sketched_regression", "--worker", *(arguments or sys.argv[1:])]
    parts = -(-(options.samples or 60_000) * options.places // options.chunk)
    start = time.perf_counter()
    first = subprocess.Popen(command)
    while len(list(options.out.glob("features-*.npy"))) < parts // 3 and first.poll() is None:
        time.sleep(0.1)
    first.kill()
    first.wait()
    killed = time.perf_counter() - start
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    found |= {"seconds": time.perf_counter() - start, "killed_after": killed, "k": options.k}
    found["processor_seconds"] = used.ru_utime + used.ru_stime
    print(json.dumps(found | {"machine": machine(torch.get_num_threads())}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
