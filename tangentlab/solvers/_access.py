"""What block coordinate descent needs of a kernel: blocks on the diagonal, and products of blocks of rows."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab.kernels import NTKOperator
from tangentlab.kernels.internal import ControlFlowChanged, RowAccess, Rows
from tangentlab.linalg import Part, Source, as_source
from tangentlab.linalg.internal import spans
from tangentlab.solvers._checkpoint import refuse_changed
from tangentlab.store.internal import weights_hash

_STRIP = 2048
"""Samples or columns that are multiplied at a time."""
_UNITS = 4
"""Units of a block at least, so that every pass has other blocks."""


class Access(ABC):
    """A kernel (n, n), and two vectors per right-hand side for which products are kept up to date: z and v.

    Attributes:
        source: The kernel, for products with all of it.
        n: The number of rows.
        unit: Rows that stay together in a block.
        held: Bytes that the kernel takes for the whole time.
    """

    source: Source
    unit: int
    held: int

    def divide(self, rows: int) -> None:  # noqa: B027
        """Choose units for blocks of some rows."""

    @property
    def n(self) -> int:
        """The number of rows."""
        return self.source.n

    @abstractmethod
    def working(self, rows: int, columns: int) -> int:
        """Estimate the bytes that a step on a block of some rows takes, for that many right-hand sides."""

    def start(self, z: Tensor, v: Tensor) -> None:
        """Begin with z and v, (n, m) each, which the caller goes on to change in place."""
        self._own = z, v

    def move(self, change: Tensor, alpha: float, beta: float, gamma: float) -> None:  # noqa: B027
        """Follow a step of :class:`Descent` on the last block; nothing to do where products are taken with z itself."""

    def settle(self, alpha: float) -> None:  # noqa: B027
        """Follow the caller, who sets z and v to (z - alpha v) / (1 - alpha)."""

    def current(self, alpha: float) -> Tensor:
        """Compute (z - alpha v) / (1 - alpha), (n, m)."""
        z, v = self._own
        return (z - alpha * v) / (1 - alpha)

    @abstractmethod
    def system(self, units: Tensor) -> tuple[Tensor, Tensor]:
        """Compute K_BB and K_B z of the block of some units."""

    @abstractmethod
    def product(self, coefficients: Tensor) -> Tensor:
        """Compute K a, (n, m)."""

    @abstractmethod
    def diagonal(self) -> Tensor:
        """Return the diagonal of K, (n,)."""

    @abstractmethod
    def predict(self, new: Any, alpha: float) -> Tensor:
        """Compute K(new, X) a, (rows, m), for new points as the user has them and a = (z - alpha v) / (1 - alpha)."""

    def rows(self, units: Tensor) -> Tensor:
        """Return the rows of some units."""
        rows = (units[:, None] * self.unit + torch.arange(self.unit, device=units.device)).flatten()
        return rows[rows < self.n]


class Entries(Access):
    """A kernel whose entries can be read: a matrix, or a kernel on disk.

    Args:
        kernel: What the user passed.
        source: The same as a kernel source.
        memory: Bytes for everything; a kernel on disk that takes less than half of them is loaded.
    """

    def __init__(self, kernel: Any, source: Source, memory: int) -> None:
        here = isinstance(kernel, Tensor | np.ndarray) or (isinstance(kernel, Part) and kernel.matrix is not None)
        self.held = 0
        if not here and 16 * source.n**2 <= memory:
            outputs, exponent = source.outputs, source.exponent
            self.held, source, here = 8 * source.n**2, as_source(source.dense()), True
            source.outputs, source.exponent = outputs, exponent
        self.source, self.unit = source, 1 if here else source.tile

    def divide(self, rows: int) -> None:
        # Blocks of one tile each would be the same in every pass, and the descent would be slow.
        self.unit = max(1, min(self.unit, rows // _UNITS))

    def working(self, rows: int, columns: int) -> int:
        strip = rows * min(self.n, _STRIP) * 16
        return 16 * rows**2 + strip + 40 * self.n * columns

    def system(self, units: Tensor) -> tuple[Tensor, Tensor]:
        rows, z = self.rows(units), self._own[0]
        gram = torch.empty(len(rows), len(rows), dtype=torch.float64, device=rows.device)
        image = torch.zeros(len(rows), z.shape[1], dtype=torch.float64, device=rows.device)
        width = max(self.unit, _STRIP // self.unit * self.unit)
        for columns in spans(self.n, width):
            strip = torch.cat([self.source.read(run, columns).double() for run in _runs(rows)])
            image += strip @ z[columns]
            inside = ((rows >= columns.start) & (rows < columns.stop)).nonzero().flatten()
            gram[:, inside] = strip[:, rows[inside] - columns.start]
        return (gram + gram.T) / 2, image

    def product(self, coefficients: Tensor) -> Tensor:
        return self.source.accurate_product(coefficients)

    def diagonal(self) -> Tensor:
        return self.source.diagonal()

    def predict(self, new: Any, alpha: float) -> Tensor:
        coefficients = self.current(alpha)
        if hasattr(new, "__array__") or not hasattr(new, "__matmul__"):
            new = torch.as_tensor(new).detach()
            new = new.flatten(2).flatten(0, 1) if new.ndim == 4 else new
        if len(new.shape) != 2 or new.shape[1] != self.n:
            raise TangentError(
                f"The kernel of new points has the shape {tuple(new.shape)}.",
                f"It must have {self.n:,} columns, one per training point (and output).",
                "Give K(x_new, x_train), new points first.",
            )
        return new.to(coefficients) @ coefficients if isinstance(new, Tensor) else new @ coefficients.to(new.dtype)


class _OfOperator(Access):
    """The kernel of an operator: from the factors of the samples of a block."""

    def __init__(self, operator: NTKOperator, source: Source) -> None:
        self.operator, self.source = operator, source
        self.access: RowAccess = operator.rows()
        self.unit, self.held = self.access.readouts, self.access.held_bytes
        self._network = self.access.products.plan.network.model
        self._weights = weights_hash(self._network)
        self._block: Rows

    def working(self, rows: int, columns: int) -> int:
        gram = rows**2 * (self.access.dtype.itemsize + 4 + 1)
        factors = rows // self.unit * self.access.sample_bytes
        return gram + factors + self.access.batch_bytes + 2 * self.access.share * 4 + 40 * self.n * columns

    def diagonal(self) -> Tensor:
        return torch.cat([strip.diagonal() for _, strip in self._strips()]).double()

    def _strips(self) -> Iterator[tuple[slice, Rows]]:
        """Yield all rows, some samples at a time."""
        width = max(1, min(_STRIP, self.access.share // max(1, self.access.sample_bytes)))
        for some in spans(self.access.samples, width):
            rows = slice(some.start * self.unit, some.stop * self.unit)
            yield rows, self._take(range(some.start, some.stop))

    def _take(self, samples: Sequence[int]) -> Rows:
        with _described("Call diagonal() of the operator, which finds a slower way for all samples, and repeat this."):
            return self.access.take(samples)

    def _new(self, x: Any) -> Iterator[Rows]:
        """Yield the rows of other samples, as long as the network is that of the fit."""
        refuse_changed(self._network, self._weights)
        with _described("Pass ntk(model, x_new, x_train) to linalg.regress(...).predict."):
            yield from self.access.new(x)


class InWeights(_OfOperator):
    """Products by directions in parameter space, u = J^T z and J^T v, which are kept: K_B z = J_B u.

    A step takes 4 b P m operations for P parameters and m right-hand sides, however many samples there are, and no
    entry of the kernel outside of the block on the diagonal is computed. u and J^T v are kept in float64: 16 P m bytes.
    """

    def working(self, rows: int, columns: int) -> int:
        return super().working(rows, columns) + self.access.parameters * columns * (16 + 3 * self.access.dtype.itemsize)

    def start(self, z: Tensor, v: Tensor) -> None:
        super().start(z, v)
        self._z, self._v = self._pulled(z), self._pulled(v)

    def _pulled(self, coefficients: Tensor) -> dict[Any, Tensor]:
        if not bool(coefficients.any()):
            some = self._take([0]).pull(coefficients[: self.unit])
            return {key: torch.zeros_like(part, dtype=torch.float64) for key, part in some.items()}
        total: dict[Any, Tensor] = {}
        for rows, strip in self._strips():
            for key, part in strip.pull(coefficients[rows]).items():
                total[key] = total[key].add_(part) if key in total else part.double()
        return total

    def system(self, units: Tensor) -> tuple[Tensor, Tensor]:
        self._block = self._take(units.tolist())
        return self._block.gram(), self._block.push(self._z)

    def move(self, change: Tensor, alpha: float, beta: float, gamma: float) -> None:
        for key, part in self._block.pull(change).items():
            self._v[key].mul_(beta).add_(self._z[key], alpha=1 - beta).add_(part, alpha=gamma)
            self._z[key].add_(part).mul_(1 - alpha).add_(self._v[key], alpha=alpha)

    def settle(self, alpha: float) -> None:
        for key, part in self._z.items():
            part.sub_(self._v[key], alpha=alpha).div_(1 - alpha)
            self._v[key].copy_(part)

    def product(self, coefficients: Tensor) -> Tensor:
        weights = self._pulled(coefficients)
        return torch.cat([strip.push(weights) for _, strip in self._strips()])

    def predict(self, new: Any, alpha: float) -> Tensor:
        weights = {key: (part - alpha * self._v[key]) / (1 - alpha) for key, part in self._z.items()}
        return torch.cat([rows.push(weights) for rows in self._new(new)])


class InTiles(_OfOperator):
    """Products by tiles of the kernel that are computed and forgotten: for many parameters and few samples."""

    def working(self, rows: int, columns: int) -> int:
        return super().working(rows, columns) + rows * _STRIP * self.unit * self.access.dtype.itemsize * 2

    def system(self, units: Tensor) -> tuple[Tensor, Tensor]:
        self._block = self._take(units.tolist())
        return self._block.gram(), self._times(self._block, self._own[0])

    def product(self, coefficients: Tensor) -> Tensor:
        return torch.cat([self._times(strip, coefficients) for _, strip in self._strips()])

    def predict(self, new: Any, alpha: float) -> Tensor:
        coefficients = self.current(alpha)
        return torch.cat([self._times(rows, coefficients) for rows in self._new(new)])

    def _times(self, rows: Rows, coefficients: Tensor) -> Tensor:
        image = torch.zeros((), dtype=torch.float64, device=coefficients.device)
        for part, strip in self._strips():
            image = image + rows.cross(strip).double() @ coefficients[part]
        return image


@contextmanager
def _described(remedy: str) -> Iterator[None]:
    """Refuse samples with which the network does something else than with those that it was probed with."""
    try:
        yield
    except ControlFlowChanged as error:
        what = "The network does something else with these samples than with those that it was probed with."
        why = "Its control flow depends on their content, and the factors of all must be made in one way."
        raise TangentError(what, why, remedy) from error


def _runs(rows: Tensor) -> Iterator[slice]:
    """Yield runs of consecutive rows, in their order."""
    breaks = torch.cat([(rows[1:] != rows[:-1] + 1).nonzero().flatten() + 1, torch.tensor([len(rows)])]).tolist()
    start = 0
    for stop in breaks:
        first = int(rows[start])
        yield slice(first, first + stop - start)
        start = stop


def open_kernel(kernel: Any, source: Source, columns: int, memory: int) -> Access:
    """Choose the access to a kernel: of an operator, by the cheaper product of those that fit into memory.

    Args:
        kernel: What the user passed.
        source: The same as a kernel source.
        columns: The number of right-hand sides.
        memory: Bytes for everything.

    Raises:
        TangentError: Its entries cannot be read and it is no NTKOperator.
    """
    if isinstance(kernel, NTKOperator):
        weights = InWeights(kernel, source)
        fits = weights.held + weights.working(min(source.n, 256), columns) <= memory
        return weights if fits and weights.access.cheaper_by_weights(columns) else InTiles(kernel, source)
    if not source.readable:
        raise TangentError(
            f"Blocks of a {type(kernel).__name__} cannot be read.",
            "Block coordinate descent solves blocks of the kernel.",
            'Pass an NTKOperator, a stored kernel or a matrix, or use linalg.regress with method="cg".',
        )
    return Entries(kernel, source.unit(), memory)
