"""A kernel K = F F^T given by features, never formed."""

from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._feature_kernel import FeatureKernel


class LowRank(FeatureKernel):
    """The kernel K = F F^T of n points with k features each, as a kernel source.

    Sketches of the Jacobian and the Nystrom approximation have this form. Cost: 4 n k m operations for a product with m
    vectors. Computations that take n^3 for a full kernel take n k^2.

    Args:
        features: F, (n, k), one row per point.
    """

    def __init__(self, features: Any) -> None:
        features = torch.as_tensor(features).detach()
        if features.ndim != 2 or not features.is_floating_point() or features.numel() == 0:
            raise TangentError(
                f"Features of shape {tuple(features.shape)} and {features.dtype} are not an (n, k) matrix of floats.",
                remedy="Give one row per point and one column per feature.",
            )
        if not bool(torch.isfinite(features).all()):
            raise TangentError("The features hold NaN or infinite values.", remedy="Check how they were computed.")
        self.features = features

    def read(self, rows: slice, columns: slice) -> Tensor:
        """Compute a rectangle of the kernel."""
        return self.features[rows] @ self.features[columns].T

    def __repr__(self) -> str:
        points, width = self.features.shape
        return f"LowRank({points:,} points, {width:,} features, {self.dtype}, {self.device})"
