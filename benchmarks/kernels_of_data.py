"""Real kernels for the benchmarks of linear algebra: networks of the papers on CIFAR-10."""

from __future__ import annotations

import time
from pathlib import Path

import torch
from torch import Tensor, nn

from tangentlab import data, models, ntk


def network(name: str) -> nn.Module:
    """Return a network of one output, with weights from a fixed seed and the initialization of ortiz2021."""
    options = {"variant": "ortiz2021"} if name == "lenet" else {}
    return models.build(name, input_shape=(3, 32, 32), outputs=1, seed=0, **options)


def images(data_dir: Path, samples: int) -> tuple[Tensor, Tensor]:
    """Return the first training images of CIFAR-10, normalized, and their labels."""
    train = data.load("cifar10", data_dir, download=False).train
    rows = torch.arange(samples)
    return train.inputs(rows), train.labels[rows]


class GeneratedKernel:
    """A kernel in float32 that is computed anew, rectangle by rectangle, when it is read; it is never in memory as a
    whole.

    Attributes:
        seconds: Spent in computing.
        last: The last rows that were read, of full width: a sample of the kernel to check a solution with.
    """

    dtype = torch.float32

    def __init__(self, model: nn.Module, x: Tensor, memory_budget: str, readout: int | str = 0) -> None:
        self.model, self.x, self.memory_budget, self.readout = model, x, memory_budget, readout
        self.shape, self.device = (len(x), len(x)), x.device
        self.seconds = 0.0
        self.last = torch.empty(0, len(x))

    def read(self, rows: slice, columns: slice) -> Tensor:
        """Compute K(x[rows], x[columns])."""
        start = time.perf_counter()
        one, two = self.x[rows], self.x[columns]
        options = {"memory_budget": self.memory_budget, "progress": False, "check": rows.start == 0}
        tile = ntk(self.model, one, two, readout=self.readout, **options)  # type: ignore[arg-type]
        if columns.stop - columns.start == len(self.x):
            self.last = tile[-256:].clone()
        self.seconds += time.perf_counter() - start
        return tile

    def diagonal(self) -> Tensor:
        """Compute K(x_n, x_n)."""
        budget = self.memory_budget
        return ntk(self.model, self.x, readout=self.readout, diagonal=True, memory_budget=budget, progress=False)

    def __matmul__(self, block: Tensor) -> Tensor:
        parts = self.x.split(2048)
        starts = range(0, len(self.x), 2048)
        everything = slice(0, len(self.x))
        rows = [slice(s, s + len(part)) for s, part in zip(starts, parts, strict=True)]
        return torch.cat([self.read(some, everything) @ block for some in rows])
