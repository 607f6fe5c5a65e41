"""One interface for every Jacobian: a matrix in memory, SciPy's operators, and whatever has products."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab.linalg._source import is_scipy

_Product = Callable[[Tensor], Any]


@dataclass(frozen=True, eq=False)
class Jacobian:
    """J, (rows, columns), by its products with blocks of vectors in float64.

    Attributes:
        rows: n, the number of equations.
        columns: P, the number of unknowns.
        device: The device of the products.
        matrix: J in memory, if it is.
        eps: The relative rounding error of its products.
    """

    rows: int
    columns: int
    device: torch.device
    matrix: Tensor | None
    _push: _Product
    _pull: _Product
    eps: float = float(torch.finfo(torch.float64).eps)

    def push(self, block: Tensor) -> Tensor:
        """Multiply J with (P, m)."""
        return self._checked(self._push(block))

    def pull(self, block: Tensor) -> Tensor:
        """Multiply J^T with (n, m)."""
        return self._checked(self._pull(block))

    def gram(self) -> Tensor:
        """Compute K = J J^T of a matrix in memory, 2 n^2 P operations."""
        if self.matrix is None:
            raise TangentError(
                "The Jacobian is known only by its products.",
                why="The solver is preconditioned by a factor of the kernel J J^T.",
                remedy="Give kernel=, for example tangentlab.ntk of the same samples and readout.",
            )
        return self.matrix @ self.matrix.T

    def _checked(self, product: Any) -> Tensor:
        product = torch.as_tensor(product).detach().to(dtype=torch.float64, device=self.device)
        if not bool(torch.isfinite(product).all()):
            raise TangentError(
                "A product with the Jacobian holds NaN or infinite values.",
                why="The Jacobian has such entries, or they are too large for its precision.",
                remedy="Check the network's gradients, and compute in float64.",
            )
        return product


def as_jacobian(jacobian: Any) -> Jacobian:
    """Wrap a matrix, a SciPy ``LinearOperator``, or an object with ``shape``, ``@`` and ``rmatmul`` on blocks."""
    if isinstance(jacobian, Jacobian):
        return jacobian
    if isinstance(jacobian, Tensor | np.ndarray):
        matrix = torch.as_tensor(jacobian).detach()
        if matrix.ndim != 2 or matrix.is_complex() or not matrix.numel():
            raise TangentError(
                f"The Jacobian of shape {tuple(matrix.shape)}, {matrix.dtype}, is not a real matrix.",
                remedy="Give (n, P): one row per equation, one column per unknown.",
            )
        matrix = matrix.double()
        rows, columns = matrix.shape
        return Jacobian(rows, columns, matrix.device, matrix, lambda u: matrix @ u, lambda v: matrix.T @ v)
    if is_scipy(jacobian):
        rows, columns = jacobian.shape
        return Jacobian(
            rows,
            columns,
            torch.device("cpu"),
            None,
            lambda u: jacobian.matmat(u.numpy()),
            lambda v: jacobian.rmatmat(v.numpy()),
        )
    if all(hasattr(jacobian, name) for name in ("shape", "device", "__matmul__", "rmatmul")):
        rows, columns = jacobian.shape
        eps = float(torch.finfo(getattr(jacobian, "dtype", torch.float64)).eps)
        return Jacobian(rows, columns, torch.device(jacobian.device), None, jacobian.__matmul__, jacobian.rmatmul, eps)
    raise TangentError(
        f"A {type(jacobian).__name__} is not a Jacobian.",
        why="Products with it and with its transpose are needed.",
        remedy="Give a matrix, a SciPy LinearOperator, or an object with shape, device, @ and rmatmul.",
    )
