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
    recurrence drifts. If it is not small enough, the iteration restarts from the current x. It stops when a restart no
    longer helps.

    Args:
        product: A times a block.
        right: b, (n, m), float64.
        precondition: An approximation of A^-1 times a block, symmetric and positive definite.
        tolerance: Stop when ||b - A x|| <= tolerance ||b|| for all columns.
        iterations: The largest number of products.
        tick: Called at every iteration.
    """
    x, best = torch.zeros_like(right), torch.zeros_like(right)
    norm = right.norm(dim=0)
    wanted = tolerance * norm
    divide = torch.where(norm > 0, norm, 1.0)
    residual, lowest = right.clone(), float("inf")
    count, indefinite, since = 0, False, 0
    direction, energy = _start(residual, precondition)
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
        if since < 25 and bool((residual.norm(dim=0) > wanted).any()):
            preconditioned = precondition(residual)
            new = (residual * preconditioned).sum(0)
            direction = (
                preconditioned + torch.where(energy > 0, new / torch.where(energy > 0, energy, 1.0), 0) * direction
            )
            energy = new
            continue
        residual = right - product(x)
        count += 1
        size = float((residual.norm(dim=0) / divide).max())
        improved = size < 0.9 * lowest
        if size < lowest:
            best, lowest = x.clone(), size
        if size <= tolerance or (since < 25 and not improved):
            break
        since = 0
        direction, energy = _start(residual, precondition)
    if lowest == float("inf"):
        best, lowest = x, float(((right - product(x)).norm(dim=0) / divide).max())
    return Solution(best, lowest, count, indefinite)


def _start(residual: Tensor, precondition: Product) -> tuple[Tensor, Tensor]:
    direction = precondition(residual)
    return direction, (residual * direction).sum(0)
