"""The interface of every kernel source, and its scaling to unit size."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._memory import available
from tangentlab._progress import Ticker
from tangentlab._scaling import even_exponent, number
from tangentlab._sums import exponent_of, times_power
from tangentlab.linalg._symmetry import not_symmetric, require_symmetric, spans

PANEL = 512
"""Rows per panel of a kernel without tiles of its own."""
STRIP = 4096
"""Columns of a rectangle that is converted to float64 for an accurate product."""
_PIECE = 1024
"""The number of terms that are added in float32."""


class Factor(Protocol):
    """A Cholesky factor of K + ridge; ``failed`` is the row at which that is not positive definite, or None."""

    failed: int | None

    def solve(self, right: Tensor) -> Tensor:
        """Multiply (K + ridge)^-1 with (n, m); float64."""


class Source(ABC):
    """A symmetric kernel that can be multiplied with; vectors and products are in float64.

    Attributes:
        n: The number of points, or of points times outputs.
        outputs: L for a kernel that was given as (N, L, N, L), otherwise None.
        dtype: The precision of its products.
        precision: The precision of its entries, as they were given.
        device: The device of the kernel and of results.
        exponent: The kernel is 2^-exponent times the user's, see :meth:`unit`.
        size: The approximate size of the largest entry of what :meth:`unit` returns.
        readable: Whether :meth:`read` returns any rectangle cheaply.
        remote: Whether the kernel is spread over other processes, which also factorize it (:meth:`factorize`).
            Nothing of its size is brought here.
        tile: The number of rows that are best read together.
    """

    readable = False
    remote = False
    tile = PANEL
    exponent = 0
    size = 1.0

    def __init__(
        self,
        n: int,
        dtype: torch.dtype,
        device: torch.device,
        outputs: int | None = None,
        precision: torch.dtype | None = None,
    ) -> None:
        self.n, self.dtype, self.device, self.outputs = n, dtype, device, outputs
        self.precision = precision or dtype
        self._unit: Source | None = None

    @abstractmethod
    def product(self, block: Tensor) -> Tensor:
        """Multiply K with (n, m) in the kernel's own precision."""

    def accurate_product(self, block: Tensor) -> Tensor:
        """Multiply K with (n, m), accumulating in float64 if entries can be read; otherwise as :meth:`product`."""
        if not self.readable or self.dtype == torch.float64:
            return self.product(block)
        out = torch.zeros(self.n, block.shape[1], dtype=torch.float64, device=self.device)
        for rows in spans(self.n, self.tile):
            for columns in spans(self.n, max(self.tile, STRIP // self.tile * self.tile)):
                out[rows] += self.read(rows, columns).double() @ block[columns]
        return out

    @property
    def accuracy(self) -> float:
        """The relative rounding error of :meth:`accurate_product`."""
        return float(torch.finfo(torch.float64 if self.readable else self.dtype).eps)

    def read(self, rows: slice, columns: slice) -> Tensor:
        """Read a rectangle of entries, in the kernel's own precision."""
        raise TangentError(
            "The kernel is known only by its products.",
            why="Each entry would cost a product.",
            remedy="Compute it with tangentlab.ntk, or use a method that needs only products.",
        )

    def factorize(self, ridge: float, dtype: torch.dtype, tick: Ticker, exponent: int = 0) -> Factor:
        """Compute the Cholesky factor of 2^-exponent K + ridge where a remote kernel is."""
        raise NotImplementedError

    def room(self) -> int:
        """Return the free bytes where a factor would be."""
        return available(self.device)

    @abstractmethod
    def diagonal(self) -> Tensor:
        """Return the diagonal, (n,), float64."""

    def peak(self) -> float:
        """Estimate the size of the largest entry, which for a kernel is on the diagonal."""
        return float(self.diagonal().abs().max())

    def unit(self) -> "Source":
        """Scale the kernel by an exact power of two to entries around one; return itself if they already are."""
        if self._unit is None:
            peak = self.peak()
            exponent = even_exponent(peak)
            self._unit = _Scaled(self, exponent) if exponent else self
            self._unit.size = number(peak, -exponent)
        return self._unit

    def dense(self) -> Tensor:
        """Read the whole kernel in float64, exactly symmetric, as a new (n, n) tensor.

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
        require_symmetric(out, self.precision)
        for rows in spans(self.n, PANEL):  # tile by tile, without a second matrix of this size
            for columns in spans(rows.stop, PANEL):
                mean = (out[rows, columns] + out[columns, rows].T) / 2
                out[rows, columns] = mean
                out[columns, rows] = mean.T
        return out

    def _probed(self) -> float:
        """Estimate the peak from products with two random vectors u and v, and test symmetry: u^T K v = v^T K u."""
        generator = torch.Generator().manual_seed(0x5EED_0001)
        block = torch.randn(self.n, 2, generator=generator, dtype=torch.float64).to(self.device)
        shift = -40  # entries at the end of the range must not add up to infinity
        image = self.product(times_power(block, shift))
        exponent = exponent_of(float(image.abs().max()))
        image = times_power(image, -exponent)
        difference = float((block[:, 0] * image[:, 1]).sum() - (block[:, 1] * image[:, 0]).sum())
        size = float(image.norm() * block.norm())
        if abs(difference) > (1e-8 if self.precision == torch.float64 else 1e-3) * size:
            raise not_symmetric(number(difference, exponent - shift))
        return number(float(image.abs().max()) / self.n**0.5, exponent - shift)

    def _checked(self, product: Tensor) -> Tensor:
        product = product.detach().to(dtype=torch.float64, device=self.device)
        if not bool(torch.isfinite(product).all()):
            raise TangentError(
                "A product with the kernel holds NaN or infinite values.",
                why="The kernel has such entries, or they are too large for its precision.",
                remedy="Compute the kernel in float64 and check its diagonal.",
            )
        return product


class _Scaled(Source):
    """A source that is 2^-exponent times another one."""

    def __init__(self, source: Source, exponent: int) -> None:
        super().__init__(source.n, source.dtype, source.device, source.outputs, source.precision)
        self.source, self.exponent, self.readable, self.tile = source, exponent, source.readable, source.tile
        self.remote = source.remote

    def product(self, block: Tensor) -> Tensor:
        return self._halves(self.source.product, block)

    def accurate_product(self, block: Tensor) -> Tensor:
        return self._halves(self.source.accurate_product, block)

    def _halves(self, product: Callable[[Tensor], Tensor], block: Tensor) -> Tensor:
        # Half of the power before the product and half after it: neither leaves the range.
        half = self.exponent // 2
        return times_power(product(times_power(block, -half)), half - self.exponent)

    def read(self, rows: slice, columns: slice) -> Tensor:
        return times_power(self.source.read(rows, columns), -self.exponent)

    def factorize(self, ridge: float, dtype: torch.dtype, tick: Ticker, exponent: int = 0) -> Factor:
        return self.source.factorize(ridge, dtype, tick, self.exponent + exponent)

    def room(self) -> int:
        return self.source.room()

    def dense(self) -> Tensor:
        return times_power(self.source.dense(), -self.exponent) if self.remote else super().dense()

    def diagonal(self) -> Tensor:
        return times_power(self.source.diagonal(), -self.exponent)

    def unit(self) -> Source:
        return self


def is_scipy(value: Any) -> bool:
    """Return whether a value is a SciPy ``LinearOperator``, without importing SciPy, which takes long."""
    module = sys.modules.get("scipy.sparse.linalg")
    return module is not None and isinstance(value, module.LinearOperator)


def float64_product(matrix: Tensor, block: Tensor) -> Tensor:
    """Multiply (r, n) with (n, m) in the precision of the matrix, adding pieces of its columns in float64.

    A sequential sum of 1e5 float32 terms loses three of seven digits; one of 1,024 terms loses less than one.
    """
    if matrix.dtype == torch.float64:
        return matrix @ block
    out = torch.zeros(len(matrix), block.shape[1], dtype=torch.float64, device=matrix.device)
    for part in spans(matrix.shape[1], _PIECE):
        out += matrix[:, part] @ block[part].to(matrix.dtype)
    return out
