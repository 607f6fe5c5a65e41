"""LSQR: the minimum-norm solution of a linear system from products with its matrix and the transpose."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tangentlab._progress import Ticker

Product = Callable[[Tensor], Tensor]
"""A matrix times a vector, float64."""


@dataclass(frozen=True)
class Step:
    """What LSQR found.

    Attributes:
        x: The solution, (m,).
        y: Its dual form, (n,): x = A^T y.
        iterations: Products with A, and with A^T.
        converged: Whether it stopped before the largest number of iterations.
    """

    x: Tensor
    y: Tensor
    iterations: int
    converged: bool


def lsqr(
    product: Product,
    transposed: Product,
    right: Tensor,
    *,
    tolerance: float,
    rounding: float,
    iterations: int,
    tick: Ticker,
) -> Step:
    """Solve A x = b for the least norm (Paige and Saunders, 1982).

    Golub and Kahan's bidiagonalization builds orthonormal u_k and v_k with A V_k = U_{k+1} B_k; x_k minimizes
    ||b - A x|| in the span of V_k, and is updated from x_{k-1} alone. In rounding both lose orthogonality, which costs
    iterations and, with a condition number of A of 1e4, four digits of the residual. So each is orthogonalized against
    all earlier ones: n + m numbers are kept per iteration.

    Args:
        product: A times (m,).
        transposed: A^T times (n,).
        right: b, (n,), not zero.
        tolerance: Stop when ||b - A x|| <= tolerance ||b||,
        rounding: or when ||A^T (b - A x)|| <= rounding ||b - A x||: what is left is out of the range of A.
        iterations: The largest number of products with A.
        tick: Called at every iteration.
    """
    size = float(right.norm())
    left, search_space = [right / size], []
    v = transposed(left[0])
    alpha = float(v.norm())
    x, y = torch.zeros_like(v), torch.zeros_like(right)
    if alpha <= rounding:
        return Step(x, y, 0, True)
    dual = torch.zeros_like(right)  # v = A^T dual
    search, dual_search = torch.zeros_like(v), dual
    phi, rho, beta, ratio, count = size, alpha, 0.0, 0.0, 0
    while count < iterations:
        v, dual = v / alpha, (left[-1] - beta * dual) / alpha
        search_space.append(v)
        search, dual_search = v - ratio * search, dual - ratio * dual_search
        u = _orthogonal(product(v) - alpha * left[-1], left)
        beta = float(u.norm())
        left.append(u / beta if beta else u)
        v = _orthogonal(transposed(left[-1]) - beta * v, search_space)
        alpha = float(v.norm())
        length = math.hypot(rho, beta)
        cosine, sine = rho / length, beta / length
        x = x + (cosine * phi / length) * search
        y = y + (cosine * phi / length) * dual_search
        phi *= sine
        count += 1
        tick(1, f"residual {phi / size:.1e}")
        if phi <= tolerance * size or alpha * abs(cosine) <= rounding:
            return Step(x, y, count, True)
        rho, ratio = -cosine * alpha, sine * alpha / length
    return Step(x, y, count, False)


def _orthogonal(vector: Tensor, others: list[Tensor]) -> Tensor:
    """Remove what a vector has along others; twice, because the first time leaves rounding."""
    basis = torch.stack(others)
    for _ in range(2):
        vector = vector - basis.T @ (basis @ vector)
    return vector
