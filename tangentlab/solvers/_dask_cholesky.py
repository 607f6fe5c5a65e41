"""The Cholesky factor of a kernel in the memory of a cluster."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tangentlab._progress import Ticker
from tangentlab.engines import Dask
from tangentlab.solvers import _block_tasks as tasks


class DaskCholesky:
    r"""The factor K + ridge = U^T U, U upper triangular, of which every block is in the memory of some worker.

    Step k turns row k of blocks into factor and subtracts its share from all rows below:

    .. math::

        U_{kk}^T U_{kk} = A_{kk}, \qquad U_{kj} = U_{kk}^{-T} A_{kj}, \qquad A_{ij} \leftarrow A_{ij} - U_{ki}^T U_{kj}

    Each of the three is a task of the cluster, and runs as soon as its blocks are there. Rows that are needed first
    have priority, so that step k + 1 begins before step k ends. n^3 / 3 operations and n^2 / 2 numbers in all, B^3 / 6
    tasks for B rows of blocks. ``dask.array.linalg.cholesky`` refuses a shorter last block, holds both triangles, and
    forms the products of a block one by one before it adds them.

    Args:
        engine: The cluster.
        blocks: The blocks (i, j), i <= j, of the kernel as they are in the cluster or as it reads them, at their size
            and precision in the factor.
        rows: The rows of each block.
        dtype: The precision of the factor.
        owner: The worker of each block, which stays there.
        tick: Called for every finished row, in proportion to its operations.

    Attributes:
        failed: The row at which K + ridge is found not to be positive definite; None if it is.
    """

    def __init__(
        self,
        engine: Dask,
        blocks: dict[tuple[int, int], Any],
        rows: list[slice],
        dtype: torch.dtype,
        owner: Callable[[int, int], str],
        tick: Ticker,
    ) -> None:
        self.engine, self.rows, self.dtype = engine, rows, dtype
        self.failed: int | None = None
        count = len(rows)
        self._upper: dict[tuple[int, int], Any] = {}
        for k in range(count):
            start = rows[k].start
            corner = engine.submit(tasks.corner, blocks.pop((k, k)), start, priority=-k, worker=owner(k, k))
            self._upper[k, k] = corner
            for j in range(k + 1, count):
                block = blocks.pop((k, j))
                self._upper[k, j] = engine.submit(tasks.across, corner, block, priority=-k, worker=owner(k, j))
            for i in range(k + 1, count):
                for j in range(i, count):
                    left, right = self._upper[k, i], self._upper[k, j]
                    parts = blocks[i, j], left, right
                    blocks[i, j] = engine.submit(tasks.update, *parts, priority=-i, worker=owner(i, j))
        try:
            for k in range(count):
                engine.wait([self._upper[k, j] for j in range(k, count)])
                tick(2 * k + 1, f"row {rows[k].stop:,} of {rows[-1].stop:,}")
        except tasks.NotPositive as error:
            self.failed = error.row
            self._upper.clear()

    def solve(self, right: Tensor) -> Tensor:
        """Multiply (K + ridge)^-1 with (n, m): 2 n^2 m operations in the factor's precision; returns float64."""
        values, order = right.to(self.dtype).numpy(), range(len(self.rows))
        pieces = self.engine.send([np.ascontiguousarray(values[rows]) for rows in self.rows])
        for transposed in (True, False):  # U^T y = b, then U x = y
            found: dict[int, Any] = {}
            for i in order if transposed else reversed(order):
                known = [
                    self.engine.submit(tasks.apply, self._upper[min(i, j), max(i, j)], found[j], transposed)
                    for j in found
                ]
                found[i] = self.engine.submit(tasks.substitute, self._upper[i, i], pieces[i], known, transposed)
            pieces = [found[i] for i in order]
        return torch.from_numpy(np.concatenate(self.engine.gather(pieces))).double()
