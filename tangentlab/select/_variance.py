"""The samples with the largest posterior variance."""

from typing import Any

import torch

from tangentlab.linalg.internal import as_ridge
from tangentlab.select._conditioned import posterior
from tangentlab.select._pool import as_pool
from tangentlab.select._selection import Candidates, Selection


def largest_variance(
    pool: Any, count: int, *, labeled: Any = None, ridge: float = 0.0, classes: Any = None
) -> Selection:
    r"""Choose the samples with the largest posterior variance given the labeled ones L, each considered alone.

    .. math:: C_{ii} = K_{ii} - K_{iL} (K_{LL} + \rho I)^{-1} K_{Li}

    Two copies of a sample have the same variance, and both are chosen; :func:`max_determinant` takes one of them.

    Args:
        pool: The kernel of n samples: a kernel source or features, see :mod:`tangentlab.select`.
        count: How many to choose.
        labeled: Rows of the pool that are labeled, or one bool per sample.
        ridge: rho, the variance of the labels' noise.
        classes: A (predicted) class per sample: as many samples of each class as its size allows.

    Returns:
        The samples, the largest variance first, with their variances.

    Raises:
        TangentError: The pool is smaller than the choice, or an argument does not fit it.

    Cost: 2 n k |L| operations with k features, n |L|^2 with a kernel.

    Examples:
        >>> import torch
        >>> from tangentlab import select, ntk
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(8, 3)
        >>> kernel = ntk(model, x, readout="pntk")
        >>> len(select.largest_variance(kernel, 2, ridge=0.1).indices)
        2

    See also:
        :func:`tangentlab.select.max_determinant`, :func:`tangentlab.select.bait`.
    """
    kernel, noise = as_pool(pool), as_ridge(ridge)
    candidates = Candidates(kernel.n, count, labeled, classes)
    given = posterior(kernel, noise)
    given.observe(candidates.labeled)
    for row in torch.argsort(given.variances, descending=True, stable=True).tolist():
        if candidates.open[row]:
            candidates.take(row, float(given.variances[row]))
        if not candidates.left:
            break
    return candidates.selection("largest variance")
