"""Kernels K = F F^T that are known by their features F and never formed."""

import torch
from torch import Tensor


class FeatureKernel:
    """The matrix K = F F^T of n points with k features each: products, diagonal, and what solvers ask of a matrix.

    Attributes:
        features: F, (n, k), one row per point.
    """

    features: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """The shape (n, n)."""
        return len(self.features), len(self.features)

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the features and of the products."""
        return self.features.dtype

    @property
    def device(self) -> torch.device:
        """The device of the features."""
        return self.features.device

    def __matmul__(self, block: Tensor) -> Tensor:
        """Compute K v = F (F^T v) for a vector (n,) or a block (n, m), in 4 n k m operations."""
        return self.features @ (self.features.T @ block.to(self.features))

    def diagonal(self) -> Tensor:
        """Compute the diagonal of K, (n,): the squared norms of the rows of F."""
        return self.features.square().sum(1)
