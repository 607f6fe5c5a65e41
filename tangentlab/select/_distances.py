"""Samples that cover a pool: clusters around the chosen ones, by distances in tangent space."""

from typing import Any

import torch
from torch import Tensor

from tangentlab._progress import progress_bar
from tangentlab._seeds import generator
from tangentlab.select._pool import Pool, as_pool
from tangentlab.select._selection import Candidates, Selection

_BLOCK = 64
"""Labeled samples whose distances are computed at a time."""


class _Clusters:
    r"""Each sample's nearest center, and the squared distance :math:`K_{ii} + K_{cc} - 2 K_{ic}` to it."""

    def __init__(self, pool: Pool, centers: Tensor) -> None:
        self.pool, self.diagonal, self.count = pool, pool.diagonal(), 0
        self.distances = torch.full_like(self.diagonal, torch.inf)
        self.nearest = torch.zeros(pool.n, dtype=torch.long, device=pool.device)
        for part in centers.split(_BLOCK):
            self.add(part)

    def add(self, centers: Tensor) -> None:
        """Add centers."""
        for center, column in zip(centers.tolist(), self.pool.columns(centers).unbind(1), strict=True):
            distances = (self.diagonal + self.diagonal[center] - 2 * column).clamp_(min=0)
            distances[center] = 0.0
            nearer = distances < self.distances
            self.nearest[nearer] = self.count
            self.distances = torch.where(nearer, distances, self.distances)
            self.count += 1


def lcmd(pool: Any, count: int, *, labeled: Any = None, classes: Any = None, progress: bool | None = None) -> Selection:
    r"""Choose the farthest sample of the largest cluster, again and again (LCMD, Holzmueller et al. 2023).

    Labeled and chosen samples are centers, and every other sample belongs to the nearest one in tangent space, where
    :math:`d_{ij}^2 = K_{ii} + K_{jj} - 2 K_{ij}`. The cluster with the largest sum of squared distances gives its
    farthest sample. The first sample, if none is labeled, is the one with the largest K_ii.

    Args:
        pool: The kernel of n samples: a kernel source or features, see :mod:`tangentlab.select`.
        count: How many to choose.
        labeled: Rows of the pool that are labeled, or one bool per sample.
        classes: A (predicted) class per sample: as many samples of each class as its size allows.
        progress: Whether to show a progress bar; None shows it in a terminal.

    Returns:
        The samples in the order of their choice, with the squared distance that each had to its center.

    Raises:
        TangentError: The pool is smaller than the choice, or an argument does not fit it.

    Cost: one column of K per labeled or chosen sample, 2 n k with k features.

    Examples:
        >>> import torch
        >>> from tangentlab import select, ntk
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(8, 3)
        >>> kernel = ntk(model, x, readout="pntk")
        >>> len(select.lcmd(kernel, 2).indices)
        2

    See also:
        :func:`tangentlab.select.kmeans_plus_plus`, :func:`tangentlab.select.max_determinant`.
    """
    kernel = as_pool(pool)
    candidates = Candidates(kernel.n, count, labeled, classes)
    clusters = _Clusters(kernel, candidates.labeled)

    def best() -> int:
        if not clusters.count:
            return int(candidates.masked(clusters.diagonal).argmax())
        free = candidates.open.to(kernel.device)
        sizes = torch.bincount(
            clusters.nearest, weights=torch.where(free, clusters.distances, 0.0), minlength=clusters.count
        )
        # Only copies of centers are left where all sizes are zero: then any open sample will do.
        largest = (sizes == sizes.max())[clusters.nearest]
        return int(torch.where(largest & free, clusters.distances, torch.where(free, -1.0, -torch.inf)).argmax())

    return _grow(clusters, candidates, best, "LCMD", progress)


def kmeans_plus_plus(
    pool: Any, count: int, *, labeled: Any = None, classes: Any = None, seed: int = 0, progress: bool | None = None
) -> Selection:
    r"""Choose samples at random, each with a probability proportional to its squared distance to the nearest center.

    Labeled and chosen samples are centers; distances are those of :func:`lcmd`. The first sample, if none is labeled,
    is drawn evenly. With gradients of the loss at the predicted class as features this is BADGE (Ash et al. 2020).

    Args:
        pool: The kernel of n samples: a kernel source or features, see :mod:`tangentlab.select`.
        count: How many to choose.
        labeled: Rows of the pool that are labeled, or one bool per sample.
        classes: A (predicted) class per sample: as many samples of each class as its size allows.
        seed: Seed of the draws.
        progress: Whether to show a progress bar; None shows it in a terminal.

    Returns:
        The samples in the order of their choice, with the squared distance that each had to its center.

    Raises:
        TangentError: The pool is smaller than the choice, or an argument does not fit it.

    Cost: one column of K per labeled or chosen sample, 2 n k with k features.

    Examples:
        >>> import torch
        >>> from tangentlab import select, ntk
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(8, 3)
        >>> kernel = ntk(model, x, readout="pntk")
        >>> len(select.kmeans_plus_plus(kernel, 2).indices)
        2

    See also:
        :func:`tangentlab.select.lcmd`, :func:`tangentlab.select.max_determinant`.
    """
    kernel = as_pool(pool)
    candidates = Candidates(kernel.n, count, labeled, classes)
    clusters = _Clusters(kernel, candidates.labeled)
    draws = generator("k-means++", seed)

    def drawn() -> int:
        weights = candidates.open.to(torch.float64)
        if clusters.count:
            distances = clusters.distances.cpu() * weights
            weights = distances if bool(distances.any()) else weights
        total = weights.cumsum(0)
        # The first sample whose cumulative weight is above the draw: one of weight zero never is.
        place = torch.rand((), generator=draws, dtype=torch.float64) * total[-1]
        found = int(torch.searchsorted(total, place, right=True))
        return min(found, int(weights.nonzero()[-1]))

    return _grow(clusters, candidates, drawn, "k-means++", progress)


def _grow(clusters: _Clusters, candidates: Candidates, choose: Any, method: str, progress: bool | None) -> Selection:
    with progress_bar("Selection", candidates.count, progress) as tick:
        while candidates.left:
            row = choose()
            distance = clusters.distances[row] if clusters.count else clusters.diagonal[row]
            candidates.take(row, float(distance))
            clusters.add(torch.tensor([row]))
            tick()
    return candidates.selection(method)
