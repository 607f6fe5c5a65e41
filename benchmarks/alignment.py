"""How long does the alignment of many functions take without a kernel?

    python -m benchmarks.alignment --data-dir DIR

aligns 1,000 functions with the NTK of a LeNet on 10,000 images of CIFAR-10 by the averaged Jacobian, and prints the
time in seconds and in epochs of plain training of the same network on the same images (SGD with momentum, batches of
128, measured in this run), the memory it took, and the difference from f^T K f / N^2 for some of the functions by
kernel-vector products. The functions are random signs, the labels of CIFAR2 first: their content changes nothing.
"""

import argparse
import os
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks import memory
from tangentlab import NTKOperator, analysis, data, models, tasks


@dataclass(frozen=True)
class Found:
    """The measured times.

    Attributes:
        seconds: The alignments, factors and checks included.
        epoch: One epoch of training.
        peak: Bytes above what network, images and functions take.
        kernel: Bytes that the kernel would take.
        error: Largest relative difference from products with the operator.
    """

    seconds: float
    epoch: float
    peak: int
    kernel: int
    error: float

    @property
    def epochs(self) -> float:
        """The time of the alignments in epochs."""
        return self.seconds / self.epoch


def train_epoch(network: nn.Module, x: Tensor, y: Tensor, batch: int = 128) -> None:
    """Run forward pass, backward pass and update over all samples."""
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)
    for images, targets in zip(x.split(batch), y.split(batch), strict=True):
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(network(images), (targets + 1) / 2).backward()
        optimizer.step()


def measure(x: Tensor, y: Tensor, count: int, memory_budget: str | None) -> Found:
    """Time both; the epoch is the better of two."""
    shape = (x.shape[1], x.shape[2], x.shape[3])

    def lenet() -> nn.Module:
        return models.build("lenet", variant="ortiz2021", input_shape=shape, outputs=1, init="lecun", seed=0).eval()

    functions = torch.sign(torch.randn(len(x), count, generator=torch.Generator().manual_seed(0)))
    functions[:, :1] = y
    trained, epochs = lenet().train(), []
    for _ in range(2):
        begin = time.perf_counter()
        train_epoch(trained, x, y)
        epochs.append(time.perf_counter() - begin)
    del trained
    network = lenet()
    before = memory.start_watch()
    begin = time.perf_counter()
    operator = NTKOperator(network, x, readout=0, memory_budget=memory_budget)
    found = analysis.alignment(operator, functions)
    seconds = time.perf_counter() - begin
    peak = memory.peak() - before
    some = functions[:, :4]
    products = (some * (operator @ some)).sum(0).double() / len(x) ** 2
    error = float(((found[: some.shape[1]] - products) / products).abs().max())
    return Found(seconds, min(epochs), peak, 4 * len(x) ** 2, error)


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.alignment", description=__doc__.split("\n\n")[0])
    parser.add_argument("--data-dir", type=Path, help="folder of CIFAR-10 (default: the usual folders)")
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--functions", type=int, default=1_000)
    parser.add_argument("--memory-budget", help='for example "2GiB" (default: 60 % of what is free)')
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    images = tasks.cifar2(data.load(options.dataset, options.data_dir)).train
    chosen = torch.arange(min(options.samples, len(images)))
    x, y = images.batch(chosen)
    found = measure(x, y, options.functions, options.memory_budget)
    print(
        f"alignment of {options.functions:,} functions on {len(x):,} samples, LeNet: {found.seconds:.1f} s = "
        f"{found.epochs:.1f} epochs of {found.epoch:.2f} s; peak memory {found.peak / memory.GIB:.2f} GiB (the kernel "
        f"alone: {found.kernel / memory.GIB:.2f} GiB); difference from kernel products {found.error:.1e}"
    )
    return int(found.error > 1e-3)


if __name__ == "__main__":
    raise SystemExit(main())
