"""The minimum-norm least-squares solution of J u = b from products with J, without squaring its condition number."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._progress import progress_bar
from tangentlab._scaling import columns_to_unit, number, restored
from tangentlab._sums import norm
from tangentlab.linalg._forms import as_source, written_out
from tangentlab.linalg._jacobian import Jacobian, ScaledJacobian, as_jacobian, refuse_other_kernel
from tangentlab.linalg._preconditioned import System
from tangentlab.linalg._symmetry import as_ridge
from tangentlab.linalg._targets import real


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """The minimum-norm least-squares solution u of J u = b.

    Attributes:
        solution: u, (P,) or (P, R) as the right-hand sides were, float64.
        coefficients: a, (n,) or (n, R), with u = J^T a. Where J is ill-conditioned, u has more correct digits than
            J^T a.
        residual: The largest ||J u - b|| / ||b|| over the columns.
        norm: ||u||, of all columns together.
        rank: The number of singular values of J above the cutoff; None without one, because they are not counted.
        cutoff: Singular values of J below this size were left out; 0 for none.
        iterations: Products with J, and with J^T, of the column that took most.
        floor: Singular values far below this size were damped, because no solution of J u = b was found; 0 for none.
    """

    solution: Tensor
    coefficients: Tensor
    residual: float
    norm: float
    rank: int | None
    cutoff: float
    iterations: int
    floor: float = 0.0


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
    r"""Solve J u = b in the least squares, for the least ||u||, by products with J and J^T.

    :func:`regress` finds the same u = J^T a from K a = b with K = J J^T, whose condition number is the square of J's:
    singular values of J below 1e-8 of the largest are lost in K's rounding. Here K only preconditions. With the
    Cholesky factor of the kernel plus a shift at the level of its rounding, :math:`L L^T = K + s`, LSQR solves

    .. math:: L^{-1} J u = L^{-1} b,

    whose singular values :math:`\sigma / \sqrt{\sigma^2 + s}` are near one down to :math:`\sigma = \sqrt{s}`, and then
    again for what is left of b until u no longer changes. Errors are those of LAPACK applied to J, about eps cond(J).
    Preconditioned least squares go back to Blendenpik (Avron et al., 2010) and LSRN (Meng et al., 2014), which use a
    random sketch of J in place of K.

    Where this finds no solution (more equations than unknowns, equal samples with different targets, a Jacobian that is
    singular up to rounding), the same iteration solves :math:`J u + \varphi w = b` for the least
    :math:`\|u\|^2 + \|w\|^2`, which always exists. Its J u is the part of b that J can meet, and LSQR then solves for
    that part. The result is the minimum-norm least-squares solution, in which singular values far below the floor
    :math:`\varphi` are damped by :math:`\sigma^2 / (\sigma^2 + \varphi^2)`. :math:`\varphi` is eps^(2/3) of the
    largest, in float64 4e-11. The same is done where a small ridge would leave the rounding of a large residual in u.
    However many singular values are zero, they take few iterations together, because those
    of the extended system are then equal.

    Cost: n^3 / 3 operations and 4 n^2 bytes in addition to the kernel, and in each iteration a product with J, one with
    J^T and 2 n^2 operations; n + P numbers are kept per iteration. Few iterations suffice unless many singular values
    are below the square root of K's rounding, each of which takes about one.

    Args:
        jacobian: J, (n, P): a tensor or array, a SciPy ``LinearOperator``, or an object with ``shape``, ``device``,
            ``@`` (J u) and ``rmatmul`` (J^T v) on blocks of vectors.
        right: b, (n,) or (n, R).
        kernel: K = J J^T, a kernel source; computed if J is a matrix. Two correct digits are enough, and are checked by
            a product with one vector.
        ridge: The factor of ||u||^2 that is added to ||J u - b||^2; any size, also below K's rounding.
        cutoff: Singular values of J below this share of the largest count as zero, in u and in b, as LAPACK's gelsd
            does with ``rcond``: for data in float32, ``torch.finfo(torch.float32).eps``. None for no cutoff.
        iterations: The largest number of products with J for each of these systems.
        progress: Whether to show a progress bar; None shows one on a terminal.

    Raises:
        TangentError: Shapes do not fit, the kernel is another one, or the iterations do not suffice.

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
    _check(ridge, cutoff, iterations)
    own, shift = matrix.gram() if kernel is None else (kernel, 0)
    source = as_source(own).unit()
    exponent = source.exponent + shift
    if source.n != matrix.rows:
        raise TangentError(
            f"The kernel has {source.n:,} rows, the Jacobian {matrix.rows:,}.",
            remedy="Give kernel= of the same samples and readout, in the same order.",
        )
    source = source if source.readable else written_out(source)
    columns, exponents = columns_to_unit(columns)
    with progress_bar("LSQR", iterations, progress) as tick:
        scaled = ScaledJacobian(matrix, exponent // 2)
        if kernel is not None:
            refuse_other_kernel(source, scaled)
        system = System(scaled, source, number(ridge, -exponent), cutoff or 0.0)
        solved = [system.solve(column, iterations, tick) for column in columns.unbind(1)]
    shifts = [e - exponent // 2 for e in exponents]
    solution = restored(torch.stack([each.solution for each in solved], 1), shifts, "solutions")
    coefficients = restored(
        torch.stack([each.dual for each in solved], 1), [e - exponent // 2 for e in shifts], "coefficients"
    )
    floor = max(each.floor for each in solved)
    return LeastSquares(
        solution=solution[:, 0] if single else solution,
        coefficients=coefficients[:, 0] if single else coefficients,
        residual=max(each.residual for each in solved),
        norm=float(norm(solution)),
        rank=source.n - system.weak.shape[1] if cutoff else None,
        cutoff=number(system.cutoff, exponent // 2),
        iterations=max(each.iterations for each in solved),
        floor=number(floor, exponent // 2),
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


def _check(ridge: float, cutoff: float | None, iterations: int) -> None:
    if cutoff is not None and (isinstance(cutoff, str | bool) or not 0 <= cutoff < 1):
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
