"""The kernel of some of the points of a larger kernel."""

from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab.linalg._symmetry import spans

_PANEL = 512
"""Rows read together from a kernel without tiles."""


class Part:
    """The kernel source K[points, points] of a readable kernel, whose entries are read when they are needed.

    Cost: nothing is copied. A product with m vectors reads the n^2 entries and takes 2 n^2 m operations.

    Examples:
        The training points of a kernel on disk that holds training and test points:

        >>> import torch
        >>> from tangentlab import linalg, store
        >>> model, x, y = torch.nn.Linear(3, 1), torch.randn(12, 3), torch.randn(8)
        >>> kernel = store.compute(model, x, "kernel.zarr", readout=0, progress=False)
        >>> fit = linalg.regress(linalg.Part(kernel, 0, 8), y, ridge=1e-3)
        >>> fit.predict(kernel.read(slice(8, 12), slice(0, 8))).shape
        torch.Size([4])

    Args:
        kernel: A matrix (n, n), or an object with ``shape``, ``dtype``, ``device``, ``diagonal()`` and
            ``read(rows, columns)``, such as a stored kernel.
        start: The first row.
        stop: The row after the last.

    Raises:
        TangentError: There are no such rows, or the kernel cannot be read.
    """

    def __init__(self, kernel: Any, start: int, stop: int) -> None:
        if not (isinstance(kernel, Tensor) and kernel.ndim == 2) and not hasattr(kernel, "read"):
            raise TangentError(
                f"A {type(kernel).__name__} cannot be read in parts.",
                remedy="Give a matrix or a kernel on disk, or build an NTKOperator of the wanted points.",
            )
        if not 0 <= start < stop <= kernel.shape[0]:
            raise TangentError(
                f"There are no rows {start} to {stop} of a kernel of {kernel.shape[0]:,}.",
                remedy="Give 0 <= start < stop <= rows.",
            )
        self._kernel, self._start = kernel, start
        self.shape = (stop - start, stop - start)
        self.dtype: torch.dtype = kernel.dtype
        self.device = torch.device(kernel.device)
        self.tile = _PANEL if isinstance(kernel, Tensor) else int(getattr(kernel, "tile", _PANEL))

    @property
    def matrix(self) -> Tensor | None:
        """The part of a matrix in memory, without a copy; None for a kernel elsewhere."""
        stop = self._start + self.shape[0]
        return self._kernel[self._start : stop, self._start : stop] if isinstance(self._kernel, Tensor) else None

    def read(self, rows: slice, columns: slice) -> Tensor:
        """Read a rectangle of entries."""
        rows, columns = self._shift(rows), self._shift(columns)
        return self._kernel[rows, columns] if isinstance(self._kernel, Tensor) else self._kernel.read(rows, columns)

    def diagonal(self) -> Tensor:
        """Read the diagonal, (n,)."""
        return self._kernel.diagonal()[self._start : self._start + self.shape[0]]

    def __matmul__(self, block: Tensor) -> Tensor:
        return torch.cat([self.read(rows, slice(None)) @ block for rows in spans(self.shape[0], self.tile)])

    def __repr__(self) -> str:
        return f"Part(rows {self._start:,} to {self._start + self.shape[0]:,} of {self._kernel!r})"

    def _shift(self, part: slice) -> slice:
        start, stop, _ = part.indices(self.shape[0])
        return slice(self._start + start, self._start + stop)
