"""One view of every kernel source: in memory, on disk, matrix-free, SciPy's operators."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab.linalg._symmetry import require_symmetric, spans

_PANEL = 512
"""Rows of a panel where the kernel has no tiles of its own."""
_STRIP = 4096
"""Columns of a rectangle that is converted to float64 for an accurate product."""


class Source(ABC):
    """A symmetric kernel that can be multiplied with; vectors go in and come out in float64.

    Attributes:
        n: Points, or points times outputs.
        outputs: L for a kernel that was given as (N, L, N, L), else None.
        dtype: Precision of the kernel.
        device: Where it is, and where results will be.
        readable: Whether :meth:`read` gives any rectangle cheaply.
        tile: Rows that are best read together.
    """

    readable = False
    tile = _PANEL

    def __init__(self, n: int, dtype: torch.dtype, device: torch.device, outputs: int | None = None) -> None:
        self.n, self.dtype, self.device, self.outputs = n, dtype, device, outputs

    @abstractmethod
    def product(self, block: Tensor) -> Tensor:
        """K times (n, m), computed in the kernel's own precision."""

    def accurate_product(self, block: Tensor) -> Tensor:
        """K times (n, m), accumulated in float64 where entries can be read; :meth:`product` elsewhere."""
        if not self.readable or self.dtype == torch.float64:
            return self.product(block)
        out = torch.zeros(self.n, block.shape[1], dtype=torch.float64, device=self.device)
        for rows in spans(self.n, self.tile):
            for columns in spans(self.n, max(self.tile, _STRIP // self.tile * self.tile)):
                out[rows] += self.read(rows, columns).double() @ block[columns]
        return out

    @property
    def accuracy(self) -> float:
        """The relative rounding error of :meth:`accurate_product`."""
        return float(torch.finfo(torch.float64 if self.readable else self.dtype).eps)

    def read(self, rows: slice, columns: slice) -> Tensor:
        """A rectangle of entries, in the kernel's own precision."""
        raise TangentError(
            "The kernel is known by its products alone.",
            why="Its entries would each cost a product.",
            remedy="Compute it with tangentlab.ntk, or use a method that needs products only.",
        )

    @abstractmethod
    def diagonal(self) -> Tensor:
        """(n,), float64."""

    def dense(self) -> Tensor:
        """All of it in float64 and exactly symmetric, a new (n, n) tensor.

        Raises:
            TangentError: It is not symmetric up to rounding.
        """
        out = torch.empty(self.n, self.n, dtype=torch.float64, device=self.device)
        for part in spans(self.n, self.tile):
            if self.readable:
                out[part] = self.read(part, slice(0, self.n))
            else:
                unit = torch.zeros(self.n, part.stop - part.start, dtype=torch.float64, device=self.device)
                unit[part].fill_diagonal_(1.0)
                out[part] = self.product(unit).T
        require_symmetric(out)
        for rows in spans(self.n, _PANEL):  # tile by tile, so that no second matrix of this size is needed
            for columns in spans(rows.stop, _PANEL):
                mean = (out[rows, columns] + out[columns, rows].T) / 2
                out[rows, columns] = mean
                out[columns, rows] = mean.T
        return out

    def _checked(self, product: Tensor) -> Tensor:
        product = product.detach().to(dtype=torch.float64, device=self.device)
        if not bool(torch.isfinite(product).all()):
            raise TangentError(
                "A product with the kernel holds NaN or infinite values.",
                why="The kernel has such entries, or they are too large for its precision.",
                remedy="Compute the kernel in float64 and look at its diagonal.",
            )
        return product


class _Matrix(Source):
    """In memory."""

    readable = True

    def __init__(self, matrix: Tensor, outputs: int | None) -> None:
        super().__init__(len(matrix), matrix.dtype, matrix.device, outputs)
        require_symmetric(matrix)
        self.matrix = matrix

    def product(self, block: Tensor) -> Tensor:
        return (self.matrix @ block.to(self.dtype)).double()

    def read(self, rows: slice, columns: slice) -> Tensor:
        return self.matrix[rows, columns]

    def diagonal(self) -> Tensor:
        return self.matrix.diagonal().double()


class _Operator(Source):
    """An object with ``@`` and ``diagonal()``, and perhaps ``read``."""

    def __init__(self, kernel: Any) -> None:
        super().__init__(int(kernel.shape[0]), kernel.dtype, torch.device(kernel.device))
        self.kernel, self.readable = kernel, hasattr(kernel, "read")
        self.tile = int(getattr(kernel, "tile", _PANEL))

    def product(self, block: Tensor) -> Tensor:
        return self._checked(self.kernel @ block.to(self.dtype))

    def read(self, rows: slice, columns: slice) -> Tensor:
        return self.kernel.read(rows, columns)

    def diagonal(self) -> Tensor:
        return self._checked(self.kernel.diagonal())


class _Scipy(Source):
    """A SciPy LinearOperator, which knows products only."""

    def __init__(self, kernel: LinearOperator) -> None:
        kind = torch.float32 if np.dtype(kernel.dtype) == np.float32 else torch.float64
        super().__init__(kernel.shape[0], kind, torch.device("cpu"))
        self.kernel = kernel

    def product(self, block: Tensor) -> Tensor:
        values = block.numpy().astype(self.kernel.dtype or np.float64)
        return self._checked(torch.from_numpy(np.asarray(self.kernel.matmat(values))))

    def diagonal(self) -> Tensor:
        parts = []
        for part in spans(self.n, _PANEL):
            unit = torch.zeros(self.n, part.stop - part.start, dtype=torch.float64)
            unit[part].fill_diagonal_(1.0)
            parts.append(self.product(unit)[part].diagonal())
        return torch.cat(parts)


def as_source(kernel: Any) -> Source:
    """Any kernel source behind one interface; see :mod:`tangentlab.linalg` for what is accepted.

    Raises:
        TangentError: It is not square, not symmetric, not finite, or nothing that can be multiplied with.
    """
    if isinstance(kernel, Source):
        return kernel
    if isinstance(kernel, LinearOperator):
        _require_square(tuple(kernel.shape))
        if np.issubdtype(kernel.dtype, np.complexfloating):
            raise TangentError("The operator is complex.", why="Kernels are real.", remedy="Give a real operator.")
        return _Scipy(kernel)
    if isinstance(kernel, (Tensor, np.ndarray)):
        return _matrix(torch.as_tensor(kernel).detach())
    if all(hasattr(kernel, name) for name in ("shape", "dtype", "device", "diagonal", "__matmul__")):
        _require_square(tuple(kernel.shape))
        return _Operator(kernel)
    raise TangentError(
        f"A {type(kernel).__name__} is not a kernel.",
        why="Products with it, its shape, dtype, device and diagonal are needed.",
        remedy="Give a tensor, an array, an NTKOperator, a stored kernel, a LowRank or a SciPy LinearOperator.",
    )


def _matrix(matrix: Tensor) -> Source:
    outputs = None
    if matrix.ndim == 4 and matrix.shape[:2] == matrix.shape[2:]:
        outputs = matrix.shape[1]
        size = matrix.shape[0] * outputs
        matrix = matrix.reshape(size, size)
    _require_square(tuple(matrix.shape))
    if matrix.is_complex():
        raise TangentError("The kernel is complex.", why="Kernels are real.", remedy="Give a real matrix.")
    if matrix.dtype not in (torch.float32, torch.float64):
        matrix = matrix.to(torch.float64 if not matrix.is_floating_point() else torch.float32)
    return _Matrix(matrix, outputs)


def _require_square(shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] == 0:
        raise TangentError(
            f"A kernel of shape {shape} is not square.",
            why="A kernel of points with themselves is (N, N), or (N, L, N, L) with L outputs.",
            remedy="Give K(x, x); for per-class kernels one of them at a time.",
        )
