"""Small networks and data for the store's tests, the same in every process."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab.store import StoredKernel, compute


def network(outputs: int = 3, seed: int = 0, dtype: torch.dtype = torch.float32) -> nn.Module:
    """A convolution, a dense layer and a readout: gradients written out and compact factors."""
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(144, 60), nn.Tanh(), nn.Linear(60, outputs)]
    return nn.Sequential(*layers).eval().to(dtype)


def images(count: int = 53, seed: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def make(path: Path, **options: Any) -> StoredKernel:
    """The kernel that most tests are about: 53 samples in 6 panels, the last of 3."""
    return compute(network(), images(), path, **({"tile": 10} | options))
