"""Kernel regression: one function, and the method that fits the kernel."""

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._memory import available
from tangentlab._progress import progress_bar
from tangentlab.linalg._cg import Product, conjugate_gradients
from tangentlab.linalg._cholesky import TILE, PackedCholesky, packed_bytes
from tangentlab.linalg._eigen import decompose
from tangentlab.linalg._forms import Features, as_source
from tangentlab.linalg._nystrom import NystromPreconditioner
from tangentlab.linalg._regression import Regression, Solved, finish, ridge_alone
from tangentlab.linalg._source import Source
from tangentlab.linalg._symmetry import as_ridge, negative_allowed, not_positive, rank_cutoff, require_positive
from tangentlab.linalg._targets import as_columns
from tangentlab.linalg._unit import number

Method = Literal["auto", "cholesky", "mixed", "eigen", "cg"]
_SMALL = 4096
"""Operators up to this size are written out, and singular kernels up to four times this decomposed, by "auto"."""
_FAITHFUL = 0.9
"""Share of the ridge that the smallest eigenvalue of a factor of K + ridge must have."""
_DOMINATED = 2.0**-60
"""A kernel whose largest eigenvalue is below this share of the ridge changes no digit of the answer."""
_LOST = 1e-3
"""Share of a target that may lie on eigenvalues which only a negative one makes doubtful, without a warning."""


def regress(
    kernel: Any,
    targets: Any,
    *,
    f0: Any = None,
    ridge: float = 0.0,
    method: Method = "auto",
    tolerance: float | None = None,
    rank: int | None = None,
    iterations: int = 1000,
    seed: int = 0,
    progress: bool | None = None,
) -> Regression:
    r"""Fit kernel regression with prior mean f0: :math:`(K + \rho) a = y - f_0`, :math:`f(x) = f_0(x) + K(x, X)\, a`.

    With ridge 0 it is the minimum-norm solution of y - f0 = J u through u = J^T a; J is never formed.

    Methods:

    - ``"cholesky"``: float64, in place on the tiles of one triangle; n^3/3 operations, 4 n^2 bytes besides the kernel.
    - ``"mixed"``: the same in float32, half the memory and time; its factor preconditions conjugate gradients in
      float64 (iterative refinement, accelerated). Refused where the conditioning does not allow it.
    - ``"eigen"``: all eigenpairs, about 10 n^3 operations and 24 n^2 bytes. Rank-revealing: eigenvalues that are zero
      up to rounding are left out, which gives the solution of least norm among those of least squares. For a
      :class:`LowRank`, through its features, n k^2.
    - ``"cg"``: conjugate gradients with the Nystrom preconditioner, products only.
    - ``"auto"``: eigen for a LowRank; cholesky (mixed where only that fits into memory) for a kernel that can be read,
      and eigen if that finds it singular; cg for an operator of more than 4,096 rows.

    Args:
        kernel: A kernel source, see :mod:`tangentlab.linalg`. It is not changed.
        targets: y, (N,) or (N, R); (N, L) or flat (N L,) for a kernel (N, L, N, L) or an operator of N L rows. Integers
            of more than two values are refused as class numbers; floating-point numbers are quantities.
        f0: The prior mean at the training points, in the shape of ``targets``; zero by default.
        ridge: rho, added to the diagonal as it is, not multiplied by N.
        method: See above.
        tolerance: Of ``"mixed"`` and ``"cg"``: largest ||(K + ridge) a - b|| / ||b||. By default 1e-10, and 1e-5 for
            operators in float32.
        rank: Of the preconditioner of ``"cg"``; by default about 2 sqrt(n).
        iterations: Most products of ``"cg"``.
        seed: Of the preconditioner.
        progress: A progress bar; None for "on a terminal".

    Raises:
        TangentError: Shapes do not fit; or the kernel is indefinite, or singular where the method cannot cope: then
            with the smallest eigenvalue and the ridge to try; or the answer is out of the range of float64.

    Warns:
        RuntimeWarning: A regular system is solved to a residual above 1e-6 only; or a negative eigenvalue (rounding of
            a float32 kernel) makes other eigenvalues doubtful that the targets need, and they are left out.
    """
    ridge = as_ridge(ridge)
    _check_options(tolerance, rank, iterations)
    source = as_source(kernel).unit()
    data = as_columns(source.n, source.outputs, source.device, targets, f0)
    chosen = _choose(source) if method == "auto" else method
    solve = _METHODS.get(chosen)
    if solve is None:
        raise TangentError(
            f"There is no method {method!r}.", remedy='Use "auto", "cholesky", "mixed", "eigen" or "cg".'
        )
    if chosen in ("cholesky", "mixed") and not source.readable:
        source = _written_out(source)
    unit_ridge = number(ridge, -source.exponent)
    if source.n * source.size < unit_ridge * _DOMINATED:
        image = source.accurate_product(data.columns)
        return ridge_alone(data, image, ridge=ridge, exponent=source.exponent, method=chosen)
    task = _Task(source, data.columns, unit_ridge, method == "auto", tolerance, rank, iterations, seed, progress)
    found = solve(task)
    return finish(
        found,
        data,
        source.accurate_product(found.coefficients),
        ridge=ridge,
        unit_ridge=unit_ridge,
        exponent=source.exponent,
        accepted=max(task.tolerance, 1e-6, 1e3 * source.accuracy),
    )


def _check_options(tolerance: float | None, rank: int | None, iterations: int) -> None:
    if tolerance is not None and not 0 < tolerance < 1:
        raise TangentError(f"tolerance={tolerance} is not between 0 and 1.", remedy="Use 1e-8, say.")
    for name, value in (("rank", rank), ("iterations", iterations)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise TangentError(f"{name}={value!r} is not a whole number from 1 on.", remedy="Use 100, say.")


def _written_out(source: Source) -> Source:
    """Return a readable source of the same kernel."""
    dense = as_source(source.dense())
    dense.exponent, dense.precision, dense.size = source.exponent, source.precision, source.size
    return dense


class _Task:
    """A system to solve at unit size, and the options."""

    def __init__(
        self,
        source: Source,
        right: Tensor,
        ridge: float,
        auto: bool,
        tolerance: float | None,
        rank: int | None,
        iterations: int,
        seed: int,
        progress: bool | None,
    ) -> None:
        self.source, self.right, self.ridge = source, right, ridge
        self.auto, self.rank, self.iterations, self.seed, self.progress = auto, rank, iterations, seed, progress
        self.tolerance = tolerance or (1e-5 if source.accuracy > 1e-10 else 1e-10)

    def product(self, block: Tensor) -> Tensor:
        """Multiply K + ridge with a block."""
        return self.source.accurate_product(block) + self.ridge * block

    def random(self) -> Tensor:
        """Draw a random right-hand side (n, 1), which has a part in every direction."""
        # A seed that no data were made with: numbers of a test with seed 0 must not meet themselves here.
        generator = torch.Generator().manual_seed(0x5EED_0000 + self.seed)
        return torch.randn(self.source.n, 1, generator=generator, dtype=torch.float64).to(self.right.device)

    def refusal(self, smallest: float, largest: float, then: str = "") -> TangentError:
        """Build the refusal of a K + ridge that is not positive definite, in the user's numbers."""
        return not_positive(smallest, largest, self.source.n, self.ridge, then, self.source.exponent)


def _choose(source: Source) -> str:
    if isinstance(source, Features):
        return "eigen"
    if not source.readable and source.n > _SMALL:
        return "cg"
    return "cholesky" if packed_bytes(source.n) < available(source.device) else "mixed"


def _cholesky(task: _Task) -> Solved:
    factor = _factor(task, torch.float64, task.ridge)
    n, seen = task.source.n, math.inf
    if factor.failed is None:
        # A random column beside the right-hand sides: two solutions with it give the smallest eigenvalue. The pivots do
        # not: one may be far above it, where the null vector has a small entry there.
        solved = factor.solve(torch.cat([task.right, task.random()], 1))
        direction = solved[:, -1:] / solved[:, -1:].norm()
        seen = 1 / float(factor.solve(direction).norm())
        if seen > _rounding(task):
            return Solved(solved[:, :-1], n, "cholesky")
    del factor
    if task.auto and n <= 4 * _SMALL:
        return _eigen(task)
    smallest, largest = _extremes(task)
    smallest = min(smallest, seen - task.ridge)
    allowed = negative_allowed(n, task.source.precision) * largest
    then = ', or method="eigen" for the minimum-norm solution' if smallest > -allowed else ""
    raise task.refusal(smallest, largest, then)


def _rounding(task: _Task) -> float:
    """Return the size below which eigenvalues of K + ridge may be rounding."""
    eps = torch.finfo(torch.float64).eps
    level = task.source.n * eps * (_largest(task.source) + task.ridge)
    # LAPACK's level of rounding is far above what a factor loses. K + ridge has no eigenvalue below the ridge: a factor
    # that shows the ridge has not lost it, however small it is, unless adding it changed nothing.
    added = task.ridge > 4 * eps * float(task.source.diagonal().max())
    return min(level, _FAITHFUL * task.ridge) if added else level


def _largest(source: Source) -> float:
    """Estimate the largest eigenvalue from below by the largest diagonal entry or the quotient of the constant vector."""
    ones = torch.ones(source.n, 1, dtype=torch.float64, device=source.device)
    return max(float(source.diagonal().max()), float(source.accurate_product(ones).mean()))


def _factor(task: _Task, dtype: torch.dtype, ridge: float) -> PackedCholesky:
    own = task.source.tile
    tile = own * max(1, TILE // own)  # whole tiles of a kernel on disk are read once
    panels = -(-task.source.n // tile)
    with progress_bar("Cholesky", panels**2, task.progress) as tick:
        return PackedCholesky(task.source, ridge, dtype, tile, tick)


def _extremes(task: _Task) -> tuple[float, float]:
    """Estimate the smallest and the largest eigenvalue of the kernel roughly, from a few products."""
    source = task.source
    if source.n <= _SMALL:
        values = torch.linalg.eigvalsh(source.dense())
        return float(values[0]), float(values[-1])
    generator = torch.Generator().manual_seed(task.seed)
    basis = torch.linalg.qr(torch.randn(source.n, 8, generator=generator, dtype=torch.float64).to(source.device)).Q
    for _ in range(min(10, source.n // 8 - 1)):
        block = source.accurate_product(basis[:, -8:])
        for _ in range(2):
            block = block - basis @ (basis.T @ block)
        basis = torch.cat([basis, torch.linalg.qr(block).Q], 1)
    basis = torch.linalg.qr(basis).Q  # where the kernel ran out of directions the last ones are arbitrary
    values = torch.linalg.eigvalsh(basis.T @ source.accurate_product(basis))
    return float(values[0]), float(values[-1])


def _mixed(task: _Task) -> Solved:
    # The factor only preconditions: a shift at the level of float32 rounding lets it exist for kernels near singular.
    shift = torch.finfo(torch.float32).eps * float(task.source.diagonal().max())
    factor = _factor(task, torch.float32, task.ridge)
    for _ in range(6):
        if factor.failed is None:
            break
        del factor
        factor = _factor(task, torch.float32, task.ridge + shift)
        shift *= 10
    if factor.failed is not None:
        raise task.refusal(*_extremes(task))
    # Targets in the range of a singular kernel have many solutions, and the iteration finds any of them. A random
    # column is not in the range: where it cannot be solved for, K + ridge is singular, and this not the least norm.
    start = task.random()
    found = _iterate(task, torch.cat([task.right, start], 1), factor.solve, 100, "mixed")
    if float(start.norm() / found[:, -1].norm()) <= _rounding(task):  # at least the smallest eigenvalue
        smallest, largest = _extremes(task)
        raise task.refusal(smallest, largest, ', or method="eigen" for the minimum-norm solution')
    return Solved(found[:, :-1], task.source.n, "mixed")


def _cg(task: _Task) -> Solved:
    n = task.source.n
    rank = min(n, task.rank or max(16, min(2000, 2 * math.isqrt(n))))
    preconditioner = NystromPreconditioner(task.source, rank, task.ridge, task.seed)
    return Solved(_iterate(task, task.right, preconditioner, task.iterations, "cg"), n, "cg")


def _iterate(task: _Task, right: Tensor, precondition: Product, iterations: int, method: str) -> Tensor:
    with progress_bar(method, iterations, task.progress) as tick:
        found = conjugate_gradients(
            task.product, right, precondition, tolerance=task.tolerance, iterations=iterations, tick=tick
        )
    if found.residual <= task.tolerance:
        return found.x
    smallest, largest = _extremes(task)
    if found.indefinite and smallest + task.ridge < -negative_allowed(task.source.n, task.source.precision) * largest:
        raise task.refusal(smallest, largest)
    low, high, step = (
        number(value, task.source.exponent)
        for value in (smallest + task.ridge, largest + task.ridge, max(-2 * smallest, 1e-6 * largest) or 1.0)
    )
    raise TangentError(
        f"method={method!r} stopped at a relative residual of {found.residual:.2g} after {found.iterations} products; "
        f"{task.tolerance:.2g} was asked for.",
        why=f"K + ridge has eigenvalues from about {low:.3g} to {high:.3g}: too far apart for it, or zero.",
        remedy=f"Use ridge={step:.3g} or more, a larger tolerance, "
        + (
            "a larger rank or more iterations."
            if method == "cg"
            else 'or method="cholesky" in float64; method="eigen" for the least norm where the kernel is singular.'
        ),
    )


def _eigen(task: _Task) -> Solved:
    spectrum = decompose(task.source)
    values, vectors, n = spectrum.values, spectrum.vectors, spectrum.n
    require_positive(values, task.ridge, spectrum.dtype, task.source.exponent, n)
    smallest, largest = float(values[-1]), float(values[0])
    projected = vectors.T @ task.right
    if task.ridge:
        if smallest + task.ridge <= 0:
            raise task.refusal(smallest, largest)
        coefficients = vectors @ (projected / (values + task.ridge)[:, None])
        if len(values) < n:  # features: the rest of the space has eigenvalue zero
            coefficients += (task.right - vectors @ projected) / task.ridge
        return Solved(coefficients, n, "eigen")
    cutoff, usual = rank_cutoff(values, spectrum.dtype, n), rank_cutoff(values.clamp(min=0), spectrum.dtype, n)
    kept = values > cutoff
    inverse = torch.where(kept, 1 / torch.where(kept, values, 1.0), 0.0)
    rank = int(kept.sum())
    # A negative eigenvalue says how wrong all others are. Where that costs the targets something, it is said.
    lost = (projected[(values.abs() > usual) & ~kept].norm(dim=0) > _LOST * task.right.norm(dim=0)).any()
    note = (
        f"The kernel has an eigenvalue {number(smallest, task.source.exponent):.2g} below zero, so that its {n - rank} "
        f"eigenvalues up to {number(cutoff, task.source.exponent):.2g} count as zero."
        if bool(lost)
        else ""
    )
    return Solved(vectors @ (inverse[:, None] * projected), rank, "eigen", cutoff if rank < n else 0.0, note)


_METHODS: dict[str, Callable[[_Task], Solved]] = {
    "cholesky": _cholesky,
    "mixed": _mixed,
    "eigen": _eigen,
    "cg": _cg,
}
