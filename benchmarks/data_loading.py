"""How fast and how large is loading CIFAR-10, and does reading batches slow training?

    python -m benchmarks.data_loading --data-dir DIR

prints the time and the memory of ``data.load("cifar10")`` in a fresh process, and the share of reading and
normalizing batches in an epoch of LeNet. Targets: 2 seconds, 250 MB, 10 %.
"""

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

from tangentlab import data, models
from tangentlab.data import ImageData


@dataclass(frozen=True)
class Loading:
    """The cost of loading: wall-clock and processor seconds, and growth of the peak resident memory."""

    seconds: float
    processor_seconds: float
    megabytes: float


@dataclass(frozen=True)
class Share:
    """The processor seconds of one epoch: reading its batches, and everything."""

    data_seconds: float
    total_seconds: float

    @property
    def share(self) -> float:
        """The share of the data in the epoch."""
        return self.data_seconds / self.total_seconds


def peak_megabytes() -> float:
    """Return the highest resident memory of this process so far.

    Linux carries ``ru_maxrss`` of a parent over to the programs it starts, so its own record is read first.
    """
    status = Path("/proc/self/status")
    if status.exists():
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1e6 if sys.platform == "darwin" else 1e6 / 1024)


def measure_loading(data_dir: str | Path) -> Loading:
    """Load CIFAR-10. Call it in a fresh process, so that the peak is its own."""
    before, wall, processor = peak_megabytes(), time.perf_counter(), time.process_time()
    loaded = data.load("cifar10", data_dir, download=False)
    seconds, processor_seconds = time.perf_counter() - wall, time.process_time() - processor
    growth = peak_megabytes() - before
    assert len(loaded.train) == 50_000
    return Loading(seconds, processor_seconds, growth)


def measure_share(cifar: ImageData, batches: int | None = None, batch_size: int = 128) -> Share:
    """Train LeNet (samarin2022) by SGD, on one epoch or on its first batches, and time reading separately.

    Processor time of this process, so that other processes on the machine do not count.
    """
    network = models.build("lenet", input_shape=cifar.input_shape, seed=0)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    reading = 0.0
    start = time.process_time()
    source = cifar.train.batches(batch_size, seed=0)
    for _ in range(batches or -(-len(cifar.train) // batch_size)):
        before = time.process_time()
        inputs, labels = next(source)
        reading += time.process_time() - before
        optimizer.zero_grad()
        F.cross_entropy(network(inputs), labels).backward()
        optimizer.step()
    return Share(reading, time.process_time() - start)


def _in_fresh_process(function: Callable[[str], Loading], argument: str) -> Loading:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, (argument,))


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description="Loading CIFAR-10 and the share of data in an epoch.")
    parser.add_argument("--data-dir", required=True, help="the folder with cifar-10-batches-bin or -py")
    parser.add_argument("--batches", type=int, help="stop each epoch after this many batches")
    arguments = parser.parse_args()
    loading = _in_fresh_process(measure_loading, arguments.data_dir)
    rows = [
        ("load CIFAR-10, wall clock", f"{loading.seconds:.2f} s", "2 s"),
        ("load CIFAR-10, processor", f"{loading.processor_seconds:.2f} s", ""),
        ("load CIFAR-10, peak memory growth", f"{loading.megabytes:.0f} MB", "250 MB"),
    ]
    torch.set_num_threads(1)
    cifar = data.load("cifar10", arguments.data_dir, download=False)
    for batch_size in (32, 128):
        share = measure_share(cifar, arguments.batches, batch_size)
        name = f"data in a LeNet epoch, batches of {batch_size}"
        rows.append((name, f"{share.share:.1%} of {share.total_seconds:.1f} s", "10 %"))
    width = max(len(name) for name, _, _ in rows)
    print(f"{'':{width}}  {'measured':>16}  limit")
    for name, measured, limit in rows:
        print(f"{name:{width}}  {measured:>16}  {limit}")


if __name__ == "__main__":
    main()
