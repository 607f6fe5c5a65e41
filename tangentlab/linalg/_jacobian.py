"""One interface for every Jacobian: a matrix in memory, SciPy's operators, and whatever has products."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._scaling import even_exponent
from tangentlab._sums import times_power
from tangentlab.linalg._source import Source, is_scipy

_Product = Callable[[Tensor], Any]
_ALIKE, _ROUNDED = 1e-2, 30
"""Relative difference of a kernel's products from those of J J^T that is still an approximation: this, or so many times
the rounding of J's."""


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

    def gram(self) -> tuple[Tensor, int]:
        """Compute K = J J^T of a matrix in memory, as K / 2^e at about unit size and e: 2 n^2 P operations."""
        if self.matrix is None:
            raise TangentError(
                "The Jacobian is known only by its products.",
                why="The solver is preconditioned by a factor of the kernel J J^T.",
                remedy="Give kernel=, for example tangentlab.ntk of the same samples and readout.",
            )
        exponent = even_exponent(float(self.matrix.abs().max()))
        unit = times_power(self.matrix, -exponent)
        return unit @ unit.T, 2 * exponent

    def _checked(self, product: Any) -> Tensor:
        product = torch.as_tensor(product).detach().to(dtype=torch.float64, device=self.device)
        if not bool(torch.isfinite(product).all()):
            raise TangentError(
                "A product with the Jacobian holds NaN or infinite values.",
                why="The Jacobian has such entries, or they are too large for its precision.",
                remedy="Check the network's gradients, and compute in float64.",
            )
        return product


@dataclass(frozen=True, eq=False)
class ScaledJacobian:
    """J / 2^exponent.

    Attributes:
        jacobian: J.
        exponent: The exponent.
    """

    jacobian: Jacobian
    exponent: int

    @property
    def shape(self) -> tuple[int, int]:
        """The shape (n, P)."""
        return self.jacobian.rows, self.jacobian.columns

    @property
    def eps(self) -> float:
        """The relative rounding error of its products."""
        return self.jacobian.eps

    def push(self, block: Tensor) -> Tensor:
        """Multiply with (P, m)."""
        return times_power(self.jacobian.push(block), -self.exponent)

    def pull(self, block: Tensor) -> Tensor:
        """Multiply the transpose with (n, m)."""
        return times_power(self.jacobian.pull(block), -self.exponent)


def refuse_other_kernel(kernel: Source, jacobian: ScaledJacobian) -> None:
    """Refuse a kernel that is not J J^T, by a product of each with one vector."""
    vector = torch.randn(kernel.n, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    vector = vector.to(kernel.device)
    one, two = kernel.accurate_product(vector), jacobian.push(jacobian.pull(vector))
    size, gap = max(float(one.norm()), float(two.norm())), float((one - two).norm())
    if not gap <= max(_ALIKE, _ROUNDED * jacobian.eps) * size:
        raise TangentError(
            f"The kernel is not J J^T of this Jacobian: products of both with a vector differ by {gap / size:.2g}.",
            why="It is that of other samples, another readout, other parameters or another scale; or rmatmul is not "
            "the product with the transpose.",
            remedy="Give kernel= of the same samples, readout and parameters, in the same order.",
        )


def as_jacobian(jacobian: Any) -> Jacobian:
    """Wrap a matrix, a SciPy ``LinearOperator``, or an object with ``shape``, ``@`` and ``rmatmul`` on blocks."""
    if isinstance(jacobian, Jacobian):
        return jacobian
    if isinstance(jacobian, Tensor | np.ndarray):
        matrix = _matrix(jacobian)
        rows, columns = matrix.shape
        return Jacobian(rows, columns, matrix.device, matrix, lambda u: matrix @ u, lambda v: matrix.T @ v)
    if is_scipy(jacobian):
        rows, columns = jacobian.shape
        products: tuple[_Product, _Product] = (
            lambda u: jacobian.matmat(u.numpy()),
            lambda v: _adjoint(jacobian, v),
        )
        return Jacobian(rows, columns, torch.device("cpu"), None, *products, _eps(jacobian.dtype))
    if all(hasattr(jacobian, name) for name in ("shape", "device", "__matmul__", "rmatmul")):
        rows, columns = jacobian.shape
        eps = _eps(getattr(jacobian, "dtype", torch.float64))
        return Jacobian(rows, columns, torch.device(jacobian.device), None, jacobian.__matmul__, jacobian.rmatmul, eps)
    raise TangentError(
        f"A {type(jacobian).__name__} is not a Jacobian.",
        why="Products with it and with its transpose are needed.",
        remedy="Give a matrix, a SciPy LinearOperator, or an object with shape, device, @ and rmatmul.",
    )


def _matrix(values: Tensor | np.ndarray) -> Tensor:
    """Convert a real matrix to float64, or refuse what is none."""
    dtype, shape = str(values.dtype).removeprefix("torch."), tuple(values.shape)
    real = isinstance(values, Tensor) or values.dtype.kind in "fiub"
    if real and isinstance(values, np.ndarray):
        values = torch.from_numpy(np.ascontiguousarray(values, np.float64))
    if not real or not isinstance(values, Tensor) or len(shape) != 2 or values.is_complex() or not values.numel():
        raise TangentError(
            f"The Jacobian of shape {shape}, {dtype}, is not a real matrix.",
            remedy="Give (n, P): one row per equation, one column per unknown.",
        )
    if values.layout is not torch.strided:
        raise TangentError(
            "The Jacobian is sparse.", remedy="Give a SciPy LinearOperator with its products, or to_dense()."
        )
    return values.detach().double()


def _eps(dtype: Any) -> float:
    """Return the relative rounding error of a real type of PyTorch or NumPy."""
    try:
        known = dtype if isinstance(dtype, torch.dtype) else torch.from_numpy(np.empty(0, dtype)).dtype
    except TypeError:
        known = torch.bool
    if not known.is_floating_point:
        if isinstance(dtype, np.dtype) and dtype.kind in "iub":  # products with vectors in float64
            return float(torch.finfo(torch.float64).eps)
        raise TangentError(
            f"The Jacobian's dtype is {dtype}.", why="Products are real.", remedy="Use a floating-point type."
        )
    return float(torch.finfo(known).eps)


def _adjoint(operator: Any, block: Tensor) -> Any:
    try:
        return operator.rmatmat(block.numpy())
    except (NotImplementedError, TypeError, RecursionError) as error:
        raise TangentError(
            f"The operator has no product with its transpose: {error}",
            why="The solver needs J^T v.",
            remedy="Give the LinearOperator rmatvec or rmatmat.",
        ) from error
