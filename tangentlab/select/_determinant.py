"""The samples whose kernel has the largest determinant, one after the other."""

from typing import Any

import torch

from tangentlab._errors import TangentError
from tangentlab._progress import Ticker, progress_bar
from tangentlab.linalg.internal import as_ridge
from tangentlab.select._conditioned import Posterior, posterior
from tangentlab.select._pool import as_pool
from tangentlab.select._selection import Candidates, Selection


def max_determinant(
    pool: Any,
    count: int,
    *,
    labeled: Any = None,
    ridge: float = 0.0,
    classes: Any = None,
    progress: bool | None = None,
) -> Selection:
    r"""Choose samples greedily so that the determinant of their kernel is as large as possible.

    Every step takes the sample with the largest posterior variance given the labeled and the chosen ones, which
    multiplies :math:`\det(K_{SS} + \rho I)` by that variance plus rho. This is Cholesky factorization with pivoting.

    The result is that of the greedy algorithm, sample by sample. It is computed in blocks: variances only fall, so a
    sample that still has a larger variance than all samples outside of a block of candidates is the next one.

    Args:
        pool: The kernel of n samples: a kernel source or features, see :mod:`tangentlab.select`.
        count: How many to choose.
        labeled: Rows of the pool that are labeled, or one bool per sample.
        ridge: rho, the variance of the labels' noise. Without noise, at most as many samples as the rank of K can be
            chosen.
        classes: A (predicted) class per sample: as many samples of each class as its size allows.
        progress: Whether to show a progress bar; None shows it in a terminal.

    Returns:
        The samples in the order of their choice. The product of the scores is det(K_SS + rho I) given the labeled ones.

    Raises:
        TangentError: The pool is smaller than the choice, no sample adds anything, or an argument does not fit.

    Cost: at most 2 n k per sample with k features; with a kernel one column of K per candidate, n t for the t-th
    sample, and n (|L| + count) numbers of memory.

    Examples:
        >>> import torch
        >>> from tangentlab import select, ntk
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(8, 3)
        >>> kernel = ntk(model, x, readout="pntk")
        >>> len(select.max_determinant(kernel, 2, ridge=0.1).indices)
        2

    See also:
        :func:`tangentlab.select.lcmd`, :func:`tangentlab.select.bait`, :func:`tangentlab.sketch`.
    """
    kernel, noise = as_pool(pool), as_ridge(ridge)
    candidates = Candidates(kernel.n, count, labeled, classes)
    given = posterior(kernel, noise)
    given.observe(candidates.labeled)
    with progress_bar("Selection", count, progress) as tick:
        while candidates.left:
            _take_block(given, candidates, kernel.block, tick)
    return candidates.selection("maximum determinant")


def _take_block(given: Posterior, candidates: Candidates, block: int, tick: Ticker) -> None:
    """Choose samples among the candidates of largest variance as long as no other sample can be ahead of them."""
    scores = candidates.masked(given.variances)
    size = min(block, 2 * candidates.left, int(candidates.open.sum()))
    values, rows = torch.topk(scores, min(size + 1, len(scores)))
    bound = float(values[-1]) if len(values) > size else 0.0
    rows = rows[:size].cpu()
    covariance = given.covariance(rows).cpu()
    chosen: list[int] = []
    while candidates.left:
        variances = torch.where(candidates.open[rows], covariance.diagonal(), -1.0)
        best = int(variances.argmax())
        variance = float(variances[best])
        if chosen and (variance < bound or variance <= given.floor):
            break
        if variance <= given.floor and not given.ridge:
            raise TangentError(
                f"After {candidates.count - candidates.left} samples no sample adds to the determinant.",
                "All others are combinations of the labeled and chosen ones: the kernel has that rank.",
                "Choose fewer samples, pass a ridge above 0, or sketch to more features.",
            )
        candidates.take(int(rows[best]), variance + given.ridge)
        chosen.append(best)
        tick()
        column = covariance[:, best].clone()
        covariance -= torch.outer(column, column) / (variance + given.ridge)
    given.observe(rows[chosen])
