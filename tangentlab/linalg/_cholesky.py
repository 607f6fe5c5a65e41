"""Cholesky factorization in place on one triangle: half the memory of LAPACK's, by matrix-matrix products."""

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._memory import available, show_bytes
from tangentlab._progress import Ticker
from tangentlab._sums import times_power
from tangentlab.linalg._source import Source
from tangentlab.linalg._symmetry import spans

TILE = 2048
"""Rows per panel: large enough that almost all operations are large matrix products."""
_TRIANGLE = 128
"""Rows of the triangles that a solution is found by: larger ones are copied for longer than they are solved."""
_MOST = 8
"""Numbers that are tried on the diagonal of a panel, each larger than the last, until it is positive definite."""


class PackedCholesky:
    """The Cholesky factor K + ridge = L L^T of a kernel source, of which only the lower triangle is stored.

    Panel i holds rows i t to (i + 1) t up to the diagonal. It is read from the source, converted, and finished before
    the next one is read. For each of its tiles A_ij, from left to right,

        A_ij <- (A_ij - L_i,:j L_j,:j^T) L_jj^-T,     L_ii L_ii^T = A_ii - L_i,:i L_i,:i^T

    which is one matrix product of inner size j t and one triangular solve. Cost: n^3 / 3 operations, n (n + t) / 2
    numbers.

    Args:
        source: The kernel; one triangle of it is read once.
        ridge: The number added to the diagonal.
        dtype: The precision of the factor.
        tile: t.
        tick: Called for every finished tile, in units of t^3.
        growth: Where a panel is not positive definite, the number added to the diagonal grows by this factor from there
            on, several times if necessary, and what is factorized before stays: a factor of a nearby matrix, for
            preconditioning. 1 to fail at once.

    Attributes:
        failed: The row at which K + ridge is found not to be positive definite, so that nothing can be solved; None
            if it is positive definite.
    """

    def __init__(
        self,
        source: Source,
        ridge: float = 0.0,
        dtype: torch.dtype = torch.float64,
        tile: int = TILE,
        tick: Ticker = lambda steps=1, note=None: None,
        growth: float = 1.0,
    ) -> None:
        unit = source.unit()
        self.n, self.ridge, self.dtype, self.device = source.n, ridge, dtype, source.device
        self._exponent = unit.exponent - source.exponent
        self._added = float(times_power(torch.tensor(ridge, dtype=torch.float64), -self._exponent))
        self.failed: int | None = None
        need = packed_bytes(source.n, dtype, tile)
        if need > available(source.device):
            raise TangentError(
                f"The Cholesky factor of {source.n:,} points in {dtype} takes {show_bytes(need)}; "
                f"{show_bytes(available(source.device))} are free.",
                why="One triangle of the matrix must fit into memory.",
                remedy='Use method="mixed" (half of that), method="cg", nystrom(kernel, k), or fewer points.',
            )
        self._rows = list(spans(source.n, tile))
        self._panels: list[Tensor] = []
        for number, rows in enumerate(self._rows):
            panel = unit.read(rows, slice(0, rows.stop)).to(dtype=dtype, copy=True)
            panel[:, rows].diagonal().add_(self._added)
            self._panels.append(panel)
            if not self._finish(number, growth):
                return
            tick(2 * number + 1, f"row {rows.stop:,} of {source.n:,}")

    def _finish(self, number: int, growth: float) -> bool:
        """Turn the last panel from kernel into factor; return whether it is positive definite."""
        panel = self._panels[number]
        for column in range(number):
            done = self._rows[column]
            tile, above = panel[:, done], self._panels[column]
            tile.addmm_(panel[:, : done.start], above[:, : done.start].T, alpha=-1)
            corner = above[:, done]
            tile.copy_(torch.linalg.solve_triangular(corner.T, tile, upper=True, left=False))
        rows = self._rows[number]
        corner = panel[:, rows]
        corner.addmm_(panel[:, : rows.start], panel[:, : rows.start].T, alpha=-1)
        for _ in range(_MOST):
            factor, info = torch.linalg.cholesky_ex(corner)
            if not int(info):
                corner.copy_(factor)
                return True
            if growth == 1:
                break
            corner.diagonal().add_((growth - 1) * self._added)
            self._added *= growth
        self.failed = rows.start + int(info) - 1
        return False

    def solve(self, right: Tensor) -> Tensor:
        """Multiply (K + ridge)^-1 with (n, m): 2 n^2 m operations in the factor's precision; returns float64."""
        return self.solve_upper(self.solve_lower(right))

    def solve_lower(self, right: Tensor) -> Tensor:
        """Multiply L^-1 with (n, m): n^2 m operations in the factor's precision; returns float64."""
        x = right.to(dtype=self.dtype, copy=True)
        for rows, panel in zip(self._rows, self._panels, strict=True):
            x[rows].addmm_(panel[:, : rows.start], x[: rows.start], alpha=-1)
            own, corner = x[rows], panel[:, rows]
            for some in spans(len(own), _TRIANGLE):
                own[some].addmm_(corner[some, : some.start], own[: some.start], alpha=-1)
                own[some] = torch.linalg.solve_triangular(corner[some, some], own[some], upper=False)
        return times_power(x.double(), -self._exponent // 2)  # the exponent is even

    def solve_upper(self, right: Tensor) -> Tensor:
        """Multiply L^-T with (n, m): n^2 m operations in the factor's precision; returns float64."""
        x = right.to(dtype=self.dtype, copy=True)
        for rows, panel in zip(reversed(self._rows), reversed(self._panels), strict=True):
            own, corner = x[rows], panel[:, rows]
            for some in reversed(list(spans(len(own), _TRIANGLE))):
                own[some] = torch.linalg.solve_triangular(corner[some, some].T, own[some], upper=True)
                own[: some.start].addmm_(corner[some, : some.start].T, own[some], alpha=-1)
            x[: rows.start].addmm_(panel[:, : rows.start].T, x[rows], alpha=-1)
        return times_power(x.double(), -self._exponent // 2)


def packed_bytes(n: int, dtype: torch.dtype = torch.float64, tile: int = TILE) -> int:
    """Compute the memory of a factor of n points, including the panel that is being converted."""
    size = torch.empty((), dtype=dtype).element_size()
    tile = min(tile, n)
    return size * (n * (n + tile) // 2 + 2 * tile * tile) + 4 * tile * n
