"""The pool: entries of its kernel, from a matrix, a store, an operator or features."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._feature_kernel import FeatureKernel
from tangentlab.linalg import LowRank, Source, as_source

_STRIP = 8192
"""Rows of features that are converted to float64 at a time."""


class Pool(ABC):
    """The kernel K of n samples, of which columns are read.

    Attributes:
        n: Samples.
        device: Where the columns are.
        block: Samples whose covariances are worth computing to save a pass over the pool.
    """

    n: int
    device: torch.device
    block: int

    @abstractmethod
    def diagonal(self) -> Tensor:
        """Return the diagonal of K, (n,), float64."""

    @abstractmethod
    def columns(self, rows: Tensor) -> Tensor:
        """Return K[:, rows], (n, b), float64."""


class KernelPool(Pool):
    """A pool that is known by its kernel."""

    block = 32

    def __init__(self, source: Source) -> None:
        self.source, self.n, self.device = source, source.n, source.device

    def diagonal(self) -> Tensor:
        found = self.source.diagonal().double()
        if bool((found < 0).any()):
            row = int(found.argmin())
            raise TangentError(
                f"The kernel of sample {row} with itself is {float(found[row]):.3g}.",
                "Variances are not negative.",
                "Pass K(x, x), of gradients or of another kernel function.",
            )
        return found

    def columns(self, rows: Tensor) -> Tensor:
        out = torch.empty(self.n, len(rows), dtype=torch.float64, device=self.device)
        if not self.source.readable:
            unit = torch.zeros_like(out)
            unit[rows.to(self.device), torch.arange(len(rows), device=self.device)] = 1.0
            return out.copy_(self.source.product(unit))
        tiles = rows // self.source.tile  # each tile of a store is read once
        for tile in tiles.unique():
            places = (tiles == tile).nonzero().flatten()
            own = rows[places]
            first, last = int(own.min()), int(own.max())
            block = self.source.read(slice(0, self.n), slice(first, last + 1))
            out[:, places.to(self.device)] = block[:, (own - first).to(block.device)].double()
        return out


class FeaturePool(Pool):
    """A pool that is known by features: K = F F^T.

    Attributes:
        features: F, (n, k).
    """

    def __init__(self, features: Tensor) -> None:
        self.features, self.n, self.device = features, len(features), features.device
        self.block = min(1024, max(128, self.n // features.shape[1]))

    def diagonal(self) -> Tensor:
        return torch.cat([part.double().square().sum(1) for part in self.features.split(_STRIP)])

    def columns(self, rows: Tensor) -> Tensor:
        return self.times(self.some(rows).T)

    def some(self, rows: Tensor) -> Tensor:
        """Return F[rows], (b, k), float64."""
        return self.features[rows.to(self.device)].double()

    def times(self, block: Tensor) -> Tensor:
        """Compute F B for (k, b), in float64 and some rows of F at a time."""
        return torch.cat([part.double() @ block for part in self.features.split(_STRIP)])


def as_pool(pool: Any) -> Pool:
    """Wrap a kernel source; of several outputs, the kernel summed over outputs is taken.

    Raises:
        TangentError: It is none, or has several rows per sample and no features or entries to sum.
    """
    if isinstance(pool, FeatureKernel):
        readouts = getattr(pool, "readouts", 1)
        features = pool.features.detach()
        # sum_r K_rr = F' F'^T where F' has the features of all readouts of a sample side by side.
        return FeaturePool(LowRank(features.reshape(len(features) // readouts, -1)).features)
    if isinstance(pool, (Tensor, np.ndarray)) and pool.ndim == 4:
        if pool.shape[:2] != pool.shape[2:]:
            raise TangentError(f"A kernel of shape {tuple(pool.shape)} is not square.", "", "Pass K(x, x).")
        pool = torch.as_tensor(pool).diagonal(dim1=1, dim2=3).sum(-1)
    elif isinstance(pool, (Tensor, np.ndarray)) and pool.ndim == 2 and pool.shape[0] != pool.shape[1]:
        raise TangentError(
            f"The pool is a matrix of shape {tuple(pool.shape)}.",
            "A kernel of the pool with itself is square.",
            "Pass K(x, x), or tangentlab.linalg.LowRank(features) for features.",
        )
    source = as_source(pool)
    if source.outputs is not None:
        raise TangentError(
            f"The kernel has {source.outputs} rows per sample.",
            "A sample is chosen as a whole.",
            "Use readout='pntk' or 'trace', or the sketch of the full kernel.",
        )
    return KernelPool(source)
