"""Table 1 of ortiz2021 at initialization: is the energy concentration what the paper says?

    python -m benchmarks.energy_concentration --data-dir DIR

prints ||Phi_K y|| / ||y|| for K = 50 on the first 12,000 training images of CIFAR2, for the MLP and the LeNet of the
authors' code (LeCun-normal weights truncated at two standard deviations, zero biases; SAME padding and average pooling)
over five seeds, next to the paper's 26.0 % and 25.8 %.

Which 12,000 images the authors took, how many seeds, and the code of this table are not published. The number falls
with the number of images (a target without relation to the kernel has sqrt(K / N) = 6.5 %):
``--samples 3000 5000 8000 12000`` shows how fast.
"""

import argparse
import os
import time
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from tangentlab import analysis, data, linalg, models, ntk, tasks

PAPER = {"mlp": 26.0, "lenet": 25.8}
OPTIONS: dict[str, dict[str, str]] = {"mlp": {}, "lenet": {"variant": "ortiz2021"}}


def concentration(name: str, x: Tensor, y: Tensor, k: int, seed: int) -> float:
    """Compute the energy concentration of one network at initialization, in percent."""
    shape = (x.shape[1], x.shape[2], x.shape[3])
    network = models.build(name, input_shape=shape, outputs=1, init="lecun", seed=seed, **OPTIONS[name])
    spectrum = linalg.eigh(ntk(network.eval(), x, readout=0, progress=False), k, progress=False)
    return 100 * float(analysis.energy_concentration(spectrum, y, k))


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.energy_concentration", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--data-dir", type=Path, help="folder of CIFAR-10 (default: the usual folders)")
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--networks", nargs="+", choices=list(PAPER), default=list(PAPER))
    parser.add_argument("--samples", nargs="+", type=int, default=[12_000])
    parser.add_argument("--k", type=int, default=50)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    task = tasks.cifar2(data.load(options.dataset, options.data_dir))
    print(task.describe().splitlines()[-1])
    for name, samples in product(options.networks, options.samples):
        x, y = task.train.batch(torch.arange(min(samples, len(task.train))))
        begin = time.perf_counter()
        found = torch.tensor([concentration(name, x, y[:, 0], options.k, seed) for seed in range(options.seeds)])
        each = ", ".join(f"{value:.1f}" for value in found.tolist())
        print(
            f"{name}: {found.mean():.1f} % over {options.seeds} seeds ({each}); paper {PAPER[name]} %; "
            f"K = {options.k}, N = {len(x):,}; {time.perf_counter() - begin:.0f} s",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
