"""The minimum-norm solution of J u = b from products with J, without squaring its condition number."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._progress import Ticker, progress_bar
from tangentlab._scaling import columns_to_unit, number, restored
from tangentlab._sums import times_power
from tangentlab.linalg._cholesky import PackedCholesky
from tangentlab.linalg._eigen import decompose
from tangentlab.linalg._forms import as_source, written_out
from tangentlab.linalg._jacobian import Jacobian, as_jacobian
from tangentlab.linalg._lsqr import lsqr
from tangentlab.linalg._solvers import largest
from tangentlab.linalg._source import Source
from tangentlab.linalg._symmetry import as_ridge
from tangentlab.linalg._targets import real
from tangentlab.linalg._weak import weak_directions

_TOLERANCE = 1e-9
"""The residual of one solution by LSQR, which the next one takes as its right-hand side."""
_REFINEMENTS = 5
_ATTEMPTS = 8
"""Shifts that are tried, each ten times the last, until the shifted kernel has a factor."""
_ACCEPTED = 1e3
"""The residual, in units of rounding of the products, up to which a system counts as solved."""


class SingularJacobian(TangentError):
    """The Jacobian is singular up to rounding, and the right-hand side is not in its range."""


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """The minimum-norm solution u of J u = b.

    Attributes:
        solution: u, (P,) or (P, R) as the right-hand sides were, float64.
        coefficients: a, (n,) or (n, R), with u = J^T a. Where J is ill-conditioned, u has more correct digits than
            J^T a.
        residual: The largest ||J u - b|| / ||b|| over the columns.
        norm: ||u||, of all columns together.
        rank: n, less the singular values that were left out.
        cutoff: Singular values of J below this size were left out; 0 for none.
        iterations: Products with J, and with J^T, of the column that took most.
    """

    solution: Tensor
    coefficients: Tensor
    residual: float
    norm: float
    rank: int
    cutoff: float
    iterations: int


def least_squares(
    jacobian: Any,
    right: Any,
    *,
    kernel: Any = None,
    ridge: float = 0.0,
    cutoff: float | None = None,
    iterations: int = 1000,
    progress: bool | None = None,
) -> LeastSquares:
    r"""Solve J u = b for the least ||u||, with n <= P equations, by products with J and J^T.

    :func:`regress` finds the same u = J^T a from K a = b with K = J J^T, whose condition number is the square of J's:
    singular values of J below 1e-8 of the largest are lost in K's rounding. Here K only preconditions. With the
    Cholesky factor of the kernel plus a shift at the level of its rounding, :math:`L L^T = K + s`, LSQR solves

    .. math:: L^{-1} J u = L^{-1} b,

    whose singular values :math:`\sigma / \sqrt{\sigma^2 + s}` are near one down to :math:`\sigma = \sqrt{s}`, and then
    again for what is left of b until u no longer changes. Errors are those of LAPACK applied to J, about eps cond(J).
    Preconditioned least squares go back to Blendenpik (Avron et al., 2010) and LSRN (Meng et al., 2014), which use a
    random sketch of J in place of K.

    Cost: n^3 / 3 operations and 4 n^2 bytes in addition to the kernel, and in each iteration a product with J, one with
    J^T and 2 n^2 operations; n + P numbers are kept per iteration. Few iterations suffice unless many singular values
    are below the square root of K's rounding, each of which takes about one.

    Args:
        jacobian: J, (n, P): a tensor or array, a SciPy ``LinearOperator``, or an object with ``shape``, ``device``,
            ``@`` (J u) and ``rmatmul`` (J^T v) on blocks of vectors.
        right: b, (n,) or (n, R).
        kernel: K = J J^T, a kernel source; computed if J is a matrix. An approximation is enough.
        ridge: The factor of ||u||^2 that is added to ||J u - b||^2; any size, also below K's rounding.
        cutoff: Singular values of J below this share of the largest count as zero, in u and in b, as LAPACK's gelsd
            does with ``rcond``: for data in float32, ``torch.finfo(torch.float32).eps``. None for no cutoff.
        iterations: The largest number of products with J.
        progress: Whether to show a progress bar; None shows one on a terminal.

    Raises:
        TangentError: There are more equations than unknowns (and no ridge), shapes do not fit, or J is singular up to
            rounding and b is not in its range, so that a cutoff is needed.

    Examples:
        >>> import torch
        >>> from tangentlab import linalg
        >>> jacobian, right = torch.randn(5, 20, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
        >>> found = linalg.least_squares(jacobian, right)
        >>> torch.allclose(jacobian @ found.solution, right)
        True

    See also:
        :func:`tangentlab.linalg.regress`, :func:`tangentlab.analysis.minimum_norm`.
    """
    matrix, ridge = as_jacobian(jacobian), as_ridge(ridge)
    columns, single = _columns(right, matrix)
    _check(matrix, ridge, cutoff, iterations)
    source = as_source(matrix.gram() if kernel is None else kernel).unit()
    if source.n != matrix.rows:
        raise TangentError(
            f"The kernel has {source.n:,} rows, the Jacobian {matrix.rows:,}.",
            remedy="Give kernel= of the same samples and readout, in the same order.",
        )
    source = source if source.readable else written_out(source)
    columns, exponents = columns_to_unit(columns)
    with progress_bar("LSQR", iterations, progress) as tick:
        system = _System(matrix, source, number(ridge, -source.exponent), cutoff or 0.0)
        solved = [system.solve(column, iterations, tick) for column in columns.unbind(1)]
    shifts = [e - source.exponent // 2 for e in exponents]
    solution = restored(torch.stack([u for u, *_ in solved], 1), shifts, "solutions")
    coefficients = restored(
        torch.stack([a for _, a, *_ in solved], 1), [e - source.exponent // 2 for e in shifts], "coefficients"
    )
    return LeastSquares(
        solution=solution[:, 0] if single else solution,
        coefficients=coefficients[:, 0] if single else coefficients,
        residual=max(residual for *_, residual, _ in solved),
        norm=float(torch.linalg.vector_norm(solution)),
        rank=source.n - system.weak.shape[1],
        cutoff=number(system.cutoff, source.exponent // 2),
        iterations=max(count for *_, count in solved),
    )


def _columns(right: Any, matrix: Jacobian) -> tuple[Tensor, bool]:
    columns = real(right, "right-hand sides").to(matrix.device)
    if columns.ndim not in (1, 2) or len(columns) != matrix.rows or not columns.numel():
        raise TangentError(
            f"The right-hand sides {tuple(columns.shape)} do not fit a Jacobian of {matrix.rows:,} rows.",
            remedy="Give (n,) or (n, R).",
        )
    if not bool(torch.isfinite(columns).all()):
        raise TangentError("The right-hand sides hold NaN or infinite values.", remedy="Give finite numbers.")
    return columns.reshape(matrix.rows, -1), columns.ndim == 1


def _check(matrix: Jacobian, ridge: float, cutoff: float | None, iterations: int) -> None:
    if matrix.rows > matrix.columns and not ridge:
        raise TangentError(
            f"There are more equations, {matrix.rows:,}, than unknowns, {matrix.columns:,}.",
            why="Most right-hand sides have no solution then; this solver needs one.",
            remedy='Give a ridge; or use regress(kernel, targets, method="eigen"), or torch.linalg.lstsq on J.',
        )
    if cutoff is not None and not 0 <= cutoff < 1:
        raise TangentError(
            f"The cutoff {cutoff} is not between 0 and 1.",
            why="It is a share of the largest singular value.",
            remedy="Use for example torch.finfo(torch.float32).eps.",
        )
    if cutoff and ridge:
        raise TangentError(
            "A ridge and a cutoff were given.", why="Each makes the other unnecessary.", remedy="Give one of them."
        )
    if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 1:
        raise TangentError(f"iterations={iterations!r} is not a positive whole number.", remedy="Use for example 1000.")


class _System:
    """The system L^-1 P [J, sqrt(ridge)] (u, w) = L^-1 P b at unit size, P the projection off the weak directions.

    With a ridge, u is that part of the minimum-norm solution of J u + sqrt(ridge) w = b, which always exists.

    Attributes:
        factor: L.
        weak: Orthonormal left singular vectors of J that count as zero, (n, m).
        cutoff: Singular values below this were left out; 0 for none.
    """

    def __init__(self, matrix: Jacobian, source: Source, ridge: float, cutoff: float) -> None:
        self.matrix, self.half, self.root = matrix, source.exponent // 2, ridge**0.5
        # A cutoff needs the largest singular value; without one an estimate from below will do.
        self.largest = (float(decompose(source, 1).values[0]) if cutoff else largest(source)) ** 0.5
        self.cutoff = cutoff * self.largest
        # The rounding error of a sum of n products, in the precision of the entries.
        level = float(torch.finfo(source.precision).eps) * float(source.diagonal().sum())
        shift = max(level, self.cutoff**2)
        self.factor, shift = _shifted_factor(source, ridge, shift)
        # Ten times the error of a product: what looks smaller than that is out of the range of J.
        self.rounding = 10 * matrix.eps * self.largest / (shift + ridge) ** 0.5
        self.weak = torch.empty(source.n, 0, dtype=torch.float64, device=source.device)
        if cutoff:
            self.weak = weak_directions(self.factor, self._pull, self._push, shift, self.cutoff)

    def _push(self, block: Tensor) -> Tensor:
        return times_power(self.matrix.push(block), -self.half)

    def _pull(self, block: Tensor) -> Tensor:
        return times_power(self.matrix.pull(block), -self.half)

    def _strong(self, vector: Tensor) -> Tensor:
        return vector - self.weak @ (self.weak.T @ vector)

    def _image(self, x: Tensor) -> Tensor:
        """Multiply P [J, sqrt(ridge)] with (u, w)."""
        image = self._push(x[: self.matrix.columns, None])[:, 0]
        return self._strong(image + self.root * x[self.matrix.columns :] if self.root else image)

    def _product(self, x: Tensor) -> Tensor:
        return self.factor.solve_lower(self._image(x)[:, None])[:, 0]

    def _dual(self, y: Tensor) -> Tensor:
        return self._strong(self.factor.solve_upper(y[:, None])[:, 0])

    def _transposed(self, y: Tensor) -> Tensor:
        dual = self._dual(y)
        pulled = self._pull(dual[:, None])[:, 0]
        return torch.cat([pulled, self.root * dual]) if self.root else pulled

    def solve(self, right: Tensor, iterations: int, tick: Ticker) -> tuple[Tensor, Tensor, float, int]:
        """Return u, a, the residual and the number of iterations for one right-hand side."""
        size, wanted = float(right.norm()), self._strong(right)
        unknowns = self.matrix.columns + (self.matrix.rows if self.root else 0)
        x, a, count, last = right.new_zeros(unknowns), torch.zeros_like(right), 0, float("inf")
        for _ in range(_REFINEMENTS):
            left = self.factor.solve_lower((wanted - self._image(x))[:, None])[:, 0]
            if not bool(left.any()):
                break
            step = lsqr(
                self._product,
                self._transposed,
                left,
                tolerance=max(_TOLERANCE, self.matrix.eps),
                rounding=self.rounding,
                iterations=iterations - count,
                tick=tick,
            )
            count += step.iterations
            change = float(step.x.norm())
            if change > last / 2:  # rounding is reached
                break
            x, a, last = x + step.x, a + self._dual(step.y), change
            if change <= self.matrix.eps * float(x.norm()) or count >= iterations:
                break
        u = x[: self.matrix.columns]
        self._judge(float((wanted - self._image(x)).norm()), float(x.norm()), size, count, iterations)
        gap = float((right - self._push(u[:, None])[:, 0]).norm())
        return u, a, gap / size if size else 0.0, count

    def _judge(self, gap: float, length: float, size: float, count: int, iterations: int) -> None:
        """Refuse what is not a solution."""
        n, eps = self.matrix.rows, self.matrix.eps
        if gap > _ACCEPTED * n**0.5 * eps * (self.largest * length + size):
            stopped = f" after {count} products" if count >= iterations else ""
            raise SingularJacobian(
                f"No solution was found{stopped}: the residual is {gap / size:.2g} of the right-hand side.",
                why="The Jacobian is singular up to rounding, as with equal samples of different targets.",
                remedy=f"Give cutoff={10 * n * eps:.1g} or more, which leaves singular values out, or a ridge; or use "
                'regress(kernel, targets, method="eigen").',
            )


def _shifted_factor(source: Source, ridge: float, shift: float) -> tuple[PackedCholesky, float]:
    """Compute a factor of K + ridge + shift, with a larger shift until that is positive definite."""
    for _ in range(_ATTEMPTS):
        factor = PackedCholesky(source, ridge + shift)
        if factor.failed is None:
            return factor, shift
        del factor
        shift *= 10
    raise TangentError(
        "The kernel is not positive definite.",
        why="It is not the product J J^T of the Jacobian with itself.",
        remedy="Give kernel= of the same samples, readout and parameters.",
    )
