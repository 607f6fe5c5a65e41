"""Normal equations that are accumulated part by part, and what follows from their decomposition."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError

_RIDGES = 31


@dataclass
class NormalEquations:
    r"""The sums over rows f_i (k features) and y_i (L targets) from which ridge regression follows.

    .. math:: G = \sum_i f_i f_i^T, \qquad b = \sum_i f_i y_i^T, \qquad s = \sum_i y_i^2

    Attributes:
        gram: G, (k, k), float64.
        moments: b, (k, L), float64.
        squares: s, (L,), float64.
        rows: The number of rows.
    """

    gram: Tensor
    moments: Tensor
    squares: Tensor
    rows: int = 0

    @classmethod
    def empty(cls, k: int, columns: int) -> "NormalEquations":
        """Return the equations of no rows."""
        kind = torch.float64
        return cls(torch.zeros(k, k, dtype=kind), torch.zeros(k, columns, dtype=kind), torch.zeros(columns, dtype=kind))

    def add(self, features: Tensor, targets: Tensor) -> None:
        """Add rows: features (n, k) and targets (n, L), both float64; 2 n k (k + L) operations."""
        self.gram.addmm_(features.T, features)
        self.moments.addmm_(features.T, targets)
        self.squares += targets.square().sum(0)
        self.rows += len(features)

    def decompose(self) -> "Decomposition":
        """Decompose G = V Lambda V^T; about 9 k^3 operations."""
        values, vectors = torch.linalg.eigh((self.gram + self.gram.T) / 2)
        values = values.clamp(min=0)
        if not bool(torch.isfinite(values).all()) or float(values[-1]) == 0:
            raise TangentError(
                "The features are all zero, or not finite.",
                "There is nothing to fit with.",
                "Check the model and the samples.",
            )
        return Decomposition(values, vectors, vectors.T @ self.moments, self.squares.clone(), self.rows)


@dataclass(frozen=True)
class Decomposition:
    """The eigenpairs of G, and the solution for every ridge rho: w = V (Lambda + rho)^-1 V^T b.

    Attributes:
        values: Lambda, (k,), ascending.
        vectors: V, (k, k).
        moments: V^T b, (k, L).
        squares: s, (L,).
        rows: n.
    """

    values: Tensor
    vectors: Tensor = field(repr=False)
    moments: Tensor = field(repr=False)
    squares: Tensor = field(repr=False)
    rows: int = 0

    @property
    def smallest_ridge(self) -> float:
        """The ridge below which rounding decides: eigenvalues of G are known up to k eps lambda_max."""
        return float(self.values[-1]) * len(self.values) * torch.finfo(torch.float64).eps

    def grid(self) -> Tensor:
        """Choose 31 ridges from 1e-9 lambda_max, or above rounding, to lambda_max."""
        largest = float(self.values[-1])
        first = math.log10(max(1e-9 * largest, self.smallest_ridge))
        return torch.logspace(first, math.log10(largest), _RIDGES, dtype=torch.float64)

    def weights(self, ridge: float) -> Tensor:
        """Compute w, (k, L)."""
        return self.vectors @ (self.moments / (self.values + ridge)[:, None])

    def measures(self, ridges: Tensor) -> dict[str, Tensor]:
        """Compute training error, generalized cross-validation, degrees of freedom and norm for each ridge.

        .. math:: \\|y - F w\\|^2 = s - \\sum_j m_j^2 (\\lambda_j + 2 \\rho) / (\\lambda_j + \\rho)^2, \\quad m = V^T b
        """
        inverse = 1 / (self.values[None] + ridges[:, None])  # (G, k)
        squares = self.moments.square().sum(1)
        explained = ((self.values[None] + 2 * ridges[:, None]) * inverse.square()) @ squares
        entries = self.rows * self.moments.shape[1]
        train = (self.squares.sum() - explained).clamp(min=0) / entries
        degrees = (self.values[None] * inverse).sum(1)
        left = (1 - degrees / self.rows).clamp(min=0)
        return {
            "train": train,
            "gcv": torch.where(left > 0, train / left.square(), torch.inf),
            "degrees": degrees,
            "norms": (inverse.square() @ squares).sqrt(),
        }

    def left_out(self, features: Tensor, targets: Tensor, ridges: Tensor) -> Tensor:
        r"""Sum the squared leave-one-out residuals of some rows for each ridge, (G,).

        .. math:: r_i = (y_i - f_i^T w) / (1 - h_i), \qquad h_i = f_i^T (G + \rho)^{-1} f_i

        2 n k (k + G (L + 1)) operations.
        """
        rotated = features @ self.vectors
        inverse = 1 / (self.values[None] + ridges[:, None])
        share = 1 - rotated.square() @ inverse.T  # (n, G)
        sums = []
        for index in range(len(ridges)):
            residuals = targets - rotated @ (self.moments * inverse[index][:, None])
            sums.append((residuals / share[:, index : index + 1]).square().sum())
        return torch.stack(sums)


def to_state(equations: NormalEquations) -> dict[str, Any]:
    """Convert to what ``torch.save`` writes and ``weights_only`` reads."""
    return {
        "gram": equations.gram,
        "moments": equations.moments,
        "squares": equations.squares,
        "rows": equations.rows,
    }
