"""Preconditioned conjugate gradients for several right-hand sides at once."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tangentlab._progress import Ticker

Product = Callable[[Tensor], Tensor]
"""A symmetric matrix times a block, (n, m) -> (n, m), in float64."""


@dataclass(frozen=True)
class Solution:
    """The result of conjugate gradients.

    Attributes:
        x: The solution, (n, m).
        residual: The largest ||b - A x|| / ||b|| over the columns, computed from x and not from the recurrence.
        iterations: The number of products with A.
        indefinite: Whether a direction with d^T A d <= 0 was found: A is not positive definite.
    """

    x: Tensor
    residual: float
    iterations: int
    indefinite: bool


def conjugate_gradients(
    product: Product,
    right: Tensor,
    precondition: Product,
    *,
    tolerance: float,
    iterations: int,
    tick: Ticker,
) -> Solution:
    """Solve A x = b for positive definite A; every column has its own step lengths, all share the products.

    Every 25 iterations, and before an answer is accepted, the residual is recomputed, because the one from the
    recurrence drifts. If an answer is not good enough then, the iteration restarts from the current x. It stops when a
    restart no longer helps.

    Args:
        product: A times a block.
        right: b, (n, m), float64.
        precondition: An approximation of A^-1 times a block, symmetric and positive definite.
        tolerance: Stop when ||b - A x|| <= tolerance ||b|| for all columns.
        iterations: The largest number of products, not counting one that checks the answer.
        tick: Called at every iteration.
    """
    x = best = torch.zeros_like(right)
    norm = right.norm(dim=0)
    wanted = tolerance * norm
    divide = torch.where(norm > 0, norm, 1.0)
    residual, lowest = right, float("inf")
    count, indefinite, since = 0, False, 0
    direction = precondition(residual)
    energy = (residual * direction).sum(0)
    while count < iterations:
        image = product(direction)
        count += 1
        since += 1
        curvature = (direction * image).sum(0)
        moving = curvature > 0
        if bool(((curvature <= 0) & (energy > 0) & (residual.norm(dim=0) > wanted)).any()):
            indefinite = True
            break
        step = torch.where(moving, energy / torch.where(moving, curvature, 1.0), 0.0)
        x = x + step * direction
        residual = residual - step * image
        tick(1, f"residual {float((residual.norm(dim=0) / divide).max()):.1e}")
        claimed = bool((residual.norm(dim=0) <= wanted).all())
        if claimed or since == 25:
            residual, since = right - product(x), 0
            count += 1
            size = float((residual.norm(dim=0) / divide).max())
            improved = size < 0.9 * lowest
            if size < lowest:
                best, lowest = x, size
            if size <= tolerance or (claimed and not improved):
                break
        previous = torch.where(energy > 0, energy, torch.inf)
        preconditioned = precondition(residual)
        energy = (residual * preconditioned).sum(0)
        direction = preconditioned + (0.0 if claimed else energy / previous) * direction
    if lowest == float("inf"):
        best, lowest = x, float(((right - product(x)).norm(dim=0) / divide).max())
        count += 1
    return Solution(best, lowest, count, indefinite)
