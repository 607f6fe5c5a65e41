"""Matrices with known spectra, and the forms in which a kernel can come."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, aslinearoperator
from torch import Tensor

from tangentlab import TangentError


def with_spectrum(values: Tensor, seed: int = 0) -> Tensor:
    """A symmetric float64 matrix with these eigenvalues and random eigenvectors."""
    generator = torch.Generator().manual_seed(seed)
    n = len(values)
    q = torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64)).Q
    matrix = (q * values) @ q.T
    return (matrix + matrix.T) / 2


def eye(n: int) -> Tensor:
    return torch.eye(n, dtype=torch.float64)


def power_law(n: int, exponent: float = 1.5) -> Tensor:
    return torch.arange(1, n + 1, dtype=torch.float64) ** -exponent


class Operator:
    """A kernel that can only be multiplied with."""

    def __init__(self, matrix: Tensor) -> None:
        self.matrix, self.shape, self.dtype, self.device = matrix, tuple(matrix.shape), matrix.dtype, matrix.device
        self.columns = 0

    def __matmul__(self, block: Tensor) -> Tensor:
        assert block.dtype == self.dtype
        self.columns += block.shape[1] if block.ndim == 2 else 1
        return self.matrix @ block

    def diagonal(self) -> Tensor:
        return self.matrix.diagonal()


class Readable(Operator):
    """A kernel as one on disk: read rectangle by rectangle, and never as a whole."""

    tile = 64

    def __init__(self, matrix: Tensor) -> None:
        super().__init__(matrix)
        self.most = 0

    def read(self, rows: slice, columns: slice) -> Tensor:
        part = self.matrix[rows, columns].clone()
        self.most = max(self.most, part.numel())
        return part


def forms(matrix: Tensor) -> dict[str, Any]:
    """The same kernel in every form that is accepted."""
    scipy: LinearOperator = aslinearoperator(np.asarray(matrix))
    return {
        "tensor": matrix,
        "array": matrix.numpy(),
        "operator": Operator(matrix),
        "readable": Readable(matrix),
        "scipy": scipy,
    }


def times(values: Any, exponent: float) -> Tensor:
    """2^exponent times values, where 2^exponent itself may be out of range."""
    out = torch.as_tensor(values, dtype=torch.float64)
    half = int(exponent) // 2
    return out * 2.0**half * 2.0 ** (int(exponent) - half)


def close(found: Any, expected: Any, rtol: float = 1e-9) -> None:
    found, expected = (torch.as_tensor(t, dtype=torch.float64) for t in (found, expected))
    assert found.shape == expected.shape
    assert bool(torch.isfinite(found).all())
    scale = float(expected.abs().max())
    assert float((found - expected).abs().max()) <= rtol * scale


def attempt(call: Callable[[], Any]) -> tuple[Any, str]:
    """What a call returns, or None and the text of its refusal."""
    try:
        return call(), ""
    except TangentError as refusal:
        return None, str(refusal)
