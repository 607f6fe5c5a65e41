"""TRAK's scores of a million training samples, whose features are larger than memory.

    python -m benchmarks.attribution.streaming FOLDER --data-dir DIR                 # rerun to resume
    python -m benchmarks.attribution.streaming FOLDER --data-dir DIR --samples 20000

The training samples are MNIST's 60,000 training digits at 25 places each, moved by up to two pixels, of which the first
1,000,000 are taken; the network is the MLP of the other benchmarks. Its features, (N, k) float32, stream through
FOLDER. Printed: seconds, and what N k^2 products take at the machine's rate; the peak of the resident memory of the
process from its start on, data and PyTorch included.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

from benchmarks import memory
from benchmarks.attribution.setup import Setup
from tangentlab import attribution, data

PLACES = [(down, right) for down in range(-2, 3) for right in range(-2, 3)]
"""Shifts in pixels; the border of an MNIST digit is empty, so that nothing is lost."""


class Moved(Dataset[tuple[Tensor, Tensor]]):
    """Digits at several places: sample n is digit ``n % digits`` at place ``n // digits``.

    Args:
        digits: The digits.
        count: N, how many samples there are.
    """

    def __init__(self, digits: data.Examples, count: int) -> None:
        most = len(digits) * len(PLACES)
        if not 0 < count <= most:
            raise SystemExit(f"There are 1 to {most:,} samples, not {count:,}.")
        self.digits, self.count = digits, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if not 0 <= index < self.count:
            raise IndexError(index)
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
        """Return several samples, all digits of one place at once."""
        wanted = torch.as_tensor(indices)
        images, labels = self.digits.batch(wanted % len(self.digits))
        places = wanted // len(self.digits)
        for place in places.unique().tolist():
            images[places == place] = images[places == place].roll(PLACES[place], (-2, -1))
        return list(zip(images.unbind(), labels.unbind(), strict=True))


def gemm_rate(size: int = 2048) -> float:
    """Return the operations per second of a float32 product of two square matrices, best of three."""
    one = torch.ones(size, size)
    seconds = []
    for _ in range(4):
        begin = time.perf_counter()
        one @ one
        seconds.append(time.perf_counter() - begin)
    return 2 * size**3 / min(seconds[1:])


def main() -> None:
    """Compute the scores and report what they cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder for the features, 4 N k bytes, and the scores, 8 N M bytes")
    parser.add_argument("--data-dir", type=Path, help="folder that holds MNIST/raw")
    parser.add_argument("--samples", type=int, default=1_000_000, help="N")
    parser.add_argument("--features", type=int, default=2048, help="k")
    parser.add_argument("--tests", type=int, default=100, help="M")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    digits = data.load("mnist", options.data_dir)
    network = Setup(options.folder, options.data_dir).checkpoints(1)[0]
    train, test = Moved(digits.train, options.samples), digits.test.select(torch.arange(options.tests))
    method = attribution.Trak(k=options.features, features=options.folder)
    rate, begin = gemm_rate(), time.perf_counter()
    found = attribution.attribute(network, train, test, method, memory_budget="2GiB", out=options.folder / "scores")
    seconds = time.perf_counter() - begin
    size = 4 * options.samples * options.features / memory.GIB
    gram = 2 * options.samples * options.features**2 / rate
    print(
        f"N {options.samples:,}, k {options.features:,}, M {options.tests}: features {size:.1f} GiB, scores "
        f"{tuple(found.scores.shape)} in {seconds:.0f} s, {seconds / gram:.1f} times N k^2 at the machine's rate of "
        f"{rate / 1e9:.0f} Gflop/s; peak of the process {memory.peak() / memory.GIB:.2f} GiB"
    )


if __name__ == "__main__":
    main()
