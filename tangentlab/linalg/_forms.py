"""One interface for every kernel source: in memory, by features, on disk, matrix-free, SciPy's operators."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._scaling import even_exponent, number
from tangentlab._sums import times_power
from tangentlab.linalg._low_rank import LowRank
from tangentlab.linalg._part import Part
from tangentlab.linalg._source import PANEL, STRIP, Source, float64_product, is_scipy
from tangentlab.linalg._symmetry import require_symmetric, spans

if TYPE_CHECKING:  # SciPy takes long to import
    from scipy.sparse.linalg import LinearOperator


class _Matrix(Source):
    """A matrix in memory. If it is asymmetric by more than rounding, but not refused, its symmetric part."""

    readable = True

    def __init__(self, matrix: Tensor, outputs: int | None, precision: torch.dtype) -> None:
        super().__init__(len(matrix), matrix.dtype, matrix.device, outputs, precision)
        self.matrix = matrix
        self._peak, asymmetry = require_symmetric(matrix, precision)
        self._skew = asymmetry > 8 * torch.finfo(matrix.dtype).eps * self._peak

    def product(self, block: Tensor) -> Tensor:
        image = float64_product(self.matrix, block)
        return (image + float64_product(self.matrix.T, block)) / 2 if self._skew else image

    def read(self, rows: slice, columns: slice) -> Tensor:
        entries = self.matrix[rows, columns]
        return (entries.double() / 2 + self.matrix[columns, rows].T.double() / 2) if self._skew else entries

    def diagonal(self) -> Tensor:
        return self.matrix.diagonal().double()

    def peak(self) -> float:
        return self._peak


class _Operator(Source):
    """An object with ``@`` and ``diagonal()``, and optionally ``read``."""

    def __init__(self, kernel: Any) -> None:
        super().__init__(int(kernel.shape[0]), kernel.dtype, torch.device(kernel.device), _outputs(kernel))
        self.kernel, self.readable = kernel, hasattr(kernel, "read")
        self.tile = int(getattr(kernel, "tile", PANEL))

    def product(self, block: Tensor) -> Tensor:
        if self.readable and self.dtype not in (torch.float32, torch.float64):
            return self.accurate_product(block)  # stored in half precision, which is too coarse for products
        return self._checked(self.kernel @ block.to(self.dtype))

    def read(self, rows: slice, columns: slice) -> Tensor:
        return self.kernel.read(rows, columns)

    def diagonal(self) -> Tensor:
        return self._checked(self.kernel.diagonal())

    def peak(self) -> float:
        return super().peak() if self.readable else self._probed()


class Features(Source):
    """The kernel K = F F^T of a :class:`LowRank`."""

    readable = True

    def __init__(self, features: Tensor, exponent: int = 0) -> None:
        super().__init__(len(features), features.dtype, features.device)
        self.features, self.exponent = features, exponent

    def product(self, block: Tensor) -> Tensor:
        return float64_product(self.features, float64_product(self.features.T, block))

    def accurate_product(self, block: Tensor) -> Tensor:
        inner = torch.zeros(self.features.shape[1], block.shape[1], dtype=torch.float64, device=self.device)
        for rows in spans(self.n, STRIP):
            inner += self.features[rows].double().T @ block[rows]
        return torch.cat([self.features[rows].double() @ inner for rows in spans(self.n, STRIP)])

    def read(self, rows: slice, columns: slice) -> Tensor:
        return self.features[rows].double() @ self.features[columns].double().T

    def diagonal(self) -> Tensor:
        return torch.cat([part.double().square().sum(1) for part in self.features.split(STRIP)])

    def peak(self) -> float:
        return float(self.features.abs().max())

    def unit(self) -> Source:
        if self._unit is None:
            half = even_exponent(self.peak())  # of F, whose square K is
            self._unit = Features(times_power(self.features, -half), 2 * half) if half else self
            self._unit._unit, self._unit.size = self._unit, number(self.peak(), -half) ** 2
        return self._unit


class _Scipy(Source):
    """A SciPy LinearOperator, which has only products."""

    def __init__(self, kernel: "LinearOperator") -> None:
        kind = torch.float32 if np.dtype(kernel.dtype) == np.float32 else torch.float64
        super().__init__(kernel.shape[0], kind, torch.device("cpu"))
        self.kernel = kernel

    def product(self, block: Tensor) -> Tensor:
        values = block.numpy().astype(self.kernel.dtype or np.float64)
        return self._checked(torch.from_numpy(np.asarray(self.kernel.matmat(values))))

    def diagonal(self) -> Tensor:
        parts = []
        for part in spans(self.n, PANEL):
            unit = torch.zeros(self.n, part.stop - part.start, dtype=torch.float64)
            unit[part].fill_diagonal_(1.0)
            parts.append(self.product(unit)[part].diagonal())
        return torch.cat(parts)

    def peak(self) -> float:
        return self._probed()


def as_source(kernel: Any) -> Source:
    """Wrap any kernel source in one interface; see :mod:`tangentlab.linalg` for what is accepted.

    Cost: one pass over a matrix in memory, which is checked (:func:`require_symmetric`); none for other sources.

    Raises:
        TangentError: It is not square, symmetric and finite, or cannot be multiplied with.

    Examples:
        >>> import torch
        >>> from tangentlab import linalg, ntk
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(8, 3)
        >>> kernel = ntk(model, x, readout="pntk")
        >>> linalg.as_source(kernel).n
        8

    See also:
        :func:`tangentlab.linalg.regress`, :func:`tangentlab.linalg.eigh`.
    """
    if isinstance(kernel, Source):
        return kernel
    if is_scipy(kernel):
        _require_square(tuple(kernel.shape))
        if np.issubdtype(kernel.dtype, np.complexfloating):
            raise TangentError("The operator is complex.", why="Kernels are real.", remedy="Give a real operator.")
        return _Scipy(kernel)
    if isinstance(kernel, LowRank):
        return Features(kernel.features)
    if isinstance(kernel, Part) and kernel.matrix is not None:
        return _matrix(kernel.matrix)
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
    precision = matrix.dtype if matrix.is_floating_point() else torch.float64  # whole numbers are exact
    if matrix.dtype not in (torch.float32, torch.float64):
        matrix = matrix.to(torch.float32 if matrix.is_floating_point() else torch.float64)
    return _Matrix(matrix, outputs, precision)


def _outputs(kernel: Any) -> int | None:
    """Return the rows per sample of an operator or stored kernel that knows its samples."""
    samples = getattr(kernel, "samples", None) or getattr(getattr(kernel, "plan", None), "samples", None)
    if not isinstance(samples, int) or kernel.shape[0] % samples or kernel.shape[0] == samples:
        return None
    return int(kernel.shape[0]) // samples


def _require_square(shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] == 0:
        raise TangentError(
            f"A kernel of shape {shape} is not square.",
            why="A kernel of points with themselves is (N, N), or (N, L, N, L) with L outputs.",
            remedy="Give K(x, x); pass per-class kernels one at a time.",
        )


def written_out(source: Source) -> Source:
    """Return a readable source of the same kernel."""
    dense = as_source(source.dense())
    dense.exponent, dense.precision, dense.size = source.exponent, source.precision, source.size
    return dense
