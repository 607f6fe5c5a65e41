"""BAIT: the samples that leave the least variance on the whole pool."""

from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._progress import progress_bar
from tangentlab.linalg import Source
from tangentlab.linalg.internal import as_ridge
from tangentlab.select._pool import FeaturePool, KernelPool, as_pool
from tangentlab.select._selection import Candidates, Selection

_DENSE = 8192
"""Samples up to which features are computed from a kernel."""
_RIDGE = 1e-3
"""The default ridge, as a share of the mean of the diagonal."""


class _State:
    r"""Posterior covariance and its product with the pool's second moments, for all samples.

    With :math:`P = (I + F_S^T F_S / \rho)^{-1}` and :math:`\Lambda = F^T F`, the mean variance on the pool is
    :math:`\mathrm{tr}(P \Lambda) / n`. Observing a sample f lowers the trace by :math:`v / (\rho + u)` where
    :math:`u = f^T P f` and :math:`v = f^T P \Lambda P f`; forgetting one raises it by :math:`v / (\rho - u)`.
    """

    def __init__(self, pool: FeaturePool, ridge: float) -> None:
        self.pool, self.ridge = pool, ridge
        width = pool.features.shape[1]
        self.inner = torch.eye(width, dtype=torch.float64, device=pool.device)
        self.moments = torch.zeros_like(self.inner)
        for part in pool.features.split(8192):
            self.moments += part.double().T @ part.double()
        self.u = pool.diagonal().clone()
        self.v = torch.cat([(p.double() @ self.moments * p.double()).sum(1) for p in pool.features.split(8192)])

    def observe(self, row: int, sign: float = 1.0) -> None:
        """Add an observed sample, or remove one with sign -1. Costs 4 n k operations."""
        feature = self.pool.some(torch.tensor([row]))[0]
        one, two = self.inner @ feature, self.moments @ feature
        weight = sign / (self.ridge + sign * float(self.u[row]))
        spread = float(self.v[row])
        first, second = self.pool.times(torch.stack([one, two], 1)).unbind(1)
        self.u -= weight * first.square()
        self.v += weight * (weight * spread * first.square() - 2 * first * second)
        self.inner -= weight * torch.outer(one, one)
        mixed = torch.outer(one, two)
        self.moments += weight * (weight * spread * torch.outer(one, one) - mixed - mixed.T)
        self.u.clamp_(min=0)
        self.v.clamp_(min=0)


def bait(
    pool: Any,
    count: int,
    *,
    labeled: Any = None,
    ridge: float | None = None,
    oversampling: float = 2.0,
    classes: Any = None,
    progress: bool | None = None,
) -> Selection:
    r"""Choose samples whose labels leave the least posterior variance on the whole pool (BAIT, Ash et al. 2021).

    .. math:: \min_S\; \mathrm{tr}\big( (\rho I + F_S^T F_S)^{-1} F^T F \big)

    Greedily: more samples than wanted are added, the best one at a time, and then the least useful ones removed.

    Args:
        pool: Features of n samples (:func:`tangentlab.sketch`, :class:`tangentlab.linalg.LowRank`), or a matrix or
            readable kernel of up to 8,192 samples, whose features are computed.
        count: How many to choose.
        labeled: Rows of the pool that are labeled, or one bool per sample.
        ridge: rho, the variance of the labels' noise, above 0; None for a thousandth of the mean of the diagonal.
        oversampling: How many times as many samples are added before some are removed, from 1 on.
        classes: A (predicted) class per sample: as many samples of each class as its size allows. Nothing is removed
            then, because a removal would leave shares unused.
        progress: Whether to show a progress bar; None shows it in a terminal.

    Returns:
        The samples in the order of their choice, with the share by which each lowered the pool's total variance.

    Raises:
        TangentError: The pool is smaller than the choice, has no features, or an argument does not fit it.

    Cost: 4 n k per labeled, added or removed sample, and 2 n k^2 once.

    Examples:
        >>> import torch
        >>> from tangentlab import select, sketch
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> pool = sketch(network, torch.randn(20, 4), k=16, readout="pntk")
        >>> len(select.bait(pool, 3, ridge=0.1).indices)
        3

    See also:
        :func:`tangentlab.select.max_determinant`, :func:`tangentlab.select.largest_variance`.
    """
    features = _features(as_pool(pool))
    mean = float(features.diagonal().mean())
    noise = _RIDGE * mean if ridge is None else as_ridge(ridge)
    if noise <= 0:
        raise TangentError(
            "BAIT needs a ridge above 0.",
            "Without noise every observed direction has variance 0, and none could be given back.",
            "Pass ridge=, or None for a thousandth of the mean of the diagonal." if mean else "The kernel is zero.",
        )
    if isinstance(oversampling, bool) or not isinstance(oversampling, (int, float)) or not 1 <= oversampling < 1e9:
        raise TangentError(f"oversampling={oversampling!r}.", "", "Pass a number from 1 on.")
    candidates = Candidates(features.n, count, labeled, classes)
    more = count if classes is not None else min(round(oversampling * count), int(candidates.open.sum()))
    if more > count:
        candidates = Candidates(features.n, more, labeled, None)
    state = _State(features, noise)
    total = float(torch.trace(state.moments))
    for row in candidates.labeled.tolist():
        state.observe(row)
    with progress_bar("Selection", 2 * more - count, progress) as tick:
        while candidates.left:
            scores = candidates.masked(state.v / (noise + state.u))
            row = int(scores.argmax())
            candidates.take(row, float(scores[row]) / total)
            state.observe(row)
            tick()
        added = candidates.selection("BAIT")
        kept = torch.ones(more, dtype=torch.bool)
        for _ in range(more - count):
            rows = added.indices[kept]
            loss = state.v[rows.to(features.device)] / (noise - state.u[rows.to(features.device)])
            worst = int(loss.argmin())
            state.observe(int(rows[worst]), -1.0)
            kept[kept.nonzero()[worst]] = False
            tick()
    return Selection(added.indices[kept], added.scores[kept], "BAIT")


def _features(pool: Any) -> FeaturePool:
    """Return a pool of features, those of K = U diag(s) U^T being U sqrt(s)."""
    if isinstance(pool, FeaturePool):
        return pool
    assert isinstance(pool, KernelPool)
    source: Source = pool.source
    if not source.readable or source.n > _DENSE:
        raise TangentError(
            f"BAIT needs features, and the pool is a kernel of {source.n:,} samples.",
            f"Features of a kernel need all its eigenvectors, here up to {_DENSE:,} samples.",
            "Pass tangentlab.sketch(model, x, k) or tangentlab.linalg.nystrom(kernel, k).",
        )
    values, vectors = torch.linalg.eigh(source.dense())
    known = values > values[-1] * torch.finfo(torch.float64).eps * source.n
    roots: Tensor = vectors[:, known] * values[known].sqrt()
    return FeaturePool(roots if roots.shape[1] else torch.zeros(source.n, 1, dtype=torch.float64))
