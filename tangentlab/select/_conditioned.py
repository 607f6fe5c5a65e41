"""The posterior covariance of a Gaussian process with kernel K, after observing some samples with noise."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from tangentlab.select._pool import FeaturePool, Pool

_BLOCK = 256
"""Samples that are observed at a time."""


class Posterior(ABC):
    r"""Variances and covariances of all samples given the observed ones S.

    .. math:: C = K - K_{\cdot S} (K_{SS} + \rho I)^{-1} K_{S \cdot}

    Args:
        pool: The samples.
        ridge: rho, the variance of the noise.

    Attributes:
        variances: The diagonal of C, (n,), float64.
        floor: What rounding leaves of a variance that is zero.
    """

    def __init__(self, pool: Pool, ridge: float) -> None:
        self.ridge = ridge
        self.variances = pool.diagonal().clone()
        self.floor = 1e-10 * float(self.variances.max())

    @abstractmethod
    def covariance(self, rows: Tensor) -> Tensor:
        """Return C[rows, rows], float64."""

    @abstractmethod
    def _subtract(self, rows: Tensor, scaled: Tensor) -> None:
        """Remove (C[:, rows] M)(C[:, rows] M)^T from C, where M is ``scaled``."""

    def observe(self, rows: Tensor) -> None:
        """Add samples to the observed ones. Directions without variance are left out: they have been observed."""
        for part in rows.split(_BLOCK):
            values, vectors = torch.linalg.eigh(self.covariance(part))
            known = values > self.floor * len(part)
            self._subtract(part, vectors[:, known] / (values[known] + self.ridge).sqrt())
            self.variances.clamp_(min=0)


class FeaturePosterior(Posterior):
    r"""The posterior in feature space, :math:`C = F P F^T` with P (k, k). A block of b samples costs 2 n k b."""

    def __init__(self, pool: FeaturePool, ridge: float) -> None:
        super().__init__(pool, ridge)
        self.pool = pool
        self.inner = torch.eye(pool.features.shape[1], dtype=torch.float64, device=pool.device)

    def covariance(self, rows: Tensor) -> Tensor:
        some = self.pool.some(rows)
        return some @ self.inner @ some.T

    def _subtract(self, rows: Tensor, scaled: Tensor) -> None:
        directions = self.inner @ (self.pool.some(rows).T @ scaled)
        self.variances -= self.pool.times(directions).square_().sum(1)
        self.inner -= directions @ directions.T


class KernelPosterior(Posterior):
    r"""The posterior by a partial Cholesky factor, :math:`C = K - L L^T` with L (n, |S|), which is kept."""

    def __init__(self, pool: Pool, ridge: float) -> None:
        super().__init__(pool, ridge)
        self.pool = pool
        self._factors: list[Tensor] = []
        self._columns: tuple[Tensor, Tensor] | None = None  # the rows asked for last, and their columns of C

    def covariance(self, rows: Tensor) -> Tensor:
        return self._read(rows)[rows.to(self.pool.device)]

    def _read(self, rows: Tensor) -> Tensor:
        """Return C[:, rows]; what was asked for last is not read again."""
        if self._columns is not None:
            places = {int(row): i for i, row in enumerate(self._columns[0])}
            if all(int(row) in places for row in rows):
                return self._columns[1][:, [places[int(row)] for row in rows]]
        columns = self.pool.columns(rows)
        for factor in self._factors:
            columns -= factor @ factor[rows.to(factor.device)].T
        self._columns = rows, columns
        return columns

    def _subtract(self, rows: Tensor, scaled: Tensor) -> None:
        factor = self._read(rows) @ scaled
        self.variances -= factor.square().sum(1)
        self._factors.append(factor)
        self._columns = None


def posterior(pool: Pool, ridge: float) -> Posterior:
    """Return the posterior before any observation, in feature space if the pool has features."""
    return FeaturePosterior(pool, ridge) if isinstance(pool, FeaturePool) else KernelPosterior(pool, ridge)
