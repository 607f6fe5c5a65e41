"""Tables 1 and 2 of samarin2022 at width x1: how much does the solver's accuracy depend on its rounding?

    python -m benchmarks.interpolation_threshold --data-dir DIR               # table 1
    python -m benchmarks.interpolation_threshold --data-dir DIR --shift 7     # table 2, shifted digits

At x1 there are 60,000 training points for 60,941 parameters: the solver is just before the interpolation threshold,
where the smallest singular values of the Jacobian decide the result, and with them any ridge. This prints the test
accuracy at half the width and the same ratio of points to parameters, for ridges from the rounding of a float64 kernel,
n eps tr K, down to none at all: the solver works on J, whose rounding is far below.
"""

import argparse
import os
import time
from pathlib import Path

import torch

from tangentlab import analysis, data, linalg, models, ntk, tasks

RATIO = 60_000 / 60_941
TARGETS = (0.0, 1.0)


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.interpolation_threshold", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--data-dir", type=Path, help="folder of MNIST (default: the usual folders)")
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--pad-to", type=int, default=32)
    parser.add_argument("--shift", type=int, default=0, help="pixels, on the canvas in place of padding")
    parser.add_argument("--canvas", type=int, default=tasks.SHIFTED_MNIST_CANVAS)
    parser.add_argument("--width", type=float, default=0.5)
    parser.add_argument("--ridges", nargs="+", type=float, default=[1e4, 100.0, 1.0, 0.0], help="in units of eps tr K")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    images = data.load(options.dataset, options.data_dir)
    if options.shift:
        images = tasks.shifted(images, options.shift, canvas=options.canvas)
    else:
        images = images.pad_to(options.pad_to)
    task = tasks.binary(images, [0], values=TARGETS)
    x_test, y_test = (part.double() for part in task.test.batch(torch.arange(len(task.test))))
    for seed in range(options.seeds):
        network = models.build(
            "lenet", width=options.width, input_shape=task.train.input_shape, outputs=1, seed=seed
        ).eval()
        network = network.double()
        parameters = sum(p.numel() for p in network.parameters())
        n = min(int(RATIO * parameters), len(task.train))
        x, y = (part.double() for part in task.train.batch(torch.arange(n)))
        kernel = ntk(network, x, readout=0, progress=False)
        unit = torch.finfo(torch.float64).eps * float(kernel.diagonal().sum())
        for factor in options.ridges:
            begin = time.perf_counter()
            found = analysis.minimum_norm(network, x, y, readout=0, kernel=kernel, ridge=factor * unit, progress=False)
            iterations = found.fit.iterations if isinstance(found.fit, linalg.LeastSquares) else "no"
            right = (found.predict(x_test) > 0.5) == (y_test > 0.5)
            print(
                f"seed {seed}, {n:,} points, {parameters:,} parameters, ridge {factor:g} eps tr K: test accuracy "
                f"{100 * float(right.double().mean()):.2f} %, residual {found.fit.residual:.1e}, norm "
                f"{found.norm:.4g}, rank {found.fit.rank:,}, {iterations} iterations; "
                f"{time.perf_counter() - begin:.0f} s",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
