"""Products of Jacobians in PyTorch, shared by the peers that leave them to the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

COLUMNS = 2**16
"""Parameters a product. One product over millions of them is no faster, and its float32 sums lose three digits."""


def contract(left: Sequence[Any], right: Sequence[Any]) -> Any:
    """Compute the sum over layers of ``J1 J2^T``, for Jacobians of shapes (rows1, P) and (rows2, P)."""
    kernel = left[0].new_zeros(left[0].shape[0], right[0].shape[0])
    for rows, columns in zip(left, right, strict=True):
        for one, two in zip(rows.split(COLUMNS, 1), columns.split(COLUMNS, 1), strict=True):
            kernel.addmm_(one, two.T)
    return kernel
