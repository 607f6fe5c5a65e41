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
from tangentlab.linalg._eigen import eigh
from tangentlab.linalg._low_rank import LowRank
from tangentlab.linalg._nystrom import NystromPreconditioner
from tangentlab.linalg._regression import Regression, as_columns
from tangentlab.linalg._source import Source, as_source
from tangentlab.linalg._symmetry import lifted, not_positive, rank_cutoff, require_positive

Method = Literal["auto", "cholesky", "mixed", "eigen", "cg"]
_SMALL = 4096
"""Operators up to this size are written out, and singular kernels up to four times this decomposed, by "auto"."""
_FAITHFUL = 0.9
"""Share of the ridge that the smallest eigenvalue of a factor of K + ridge must have."""


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
    r"""Kernel regression with prior mean f0: :math:`(K + \rho) a = y - f_0`, :math:`f(x) = f_0(x) + K(x, X)\, a`.

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
        targets: y, (N,) or (N, R); (N, L) for a kernel (N, L, N, L) or an operator of N L rows.
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
            with the smallest eigenvalue and the ridge to try.
    """
    if not (ridge >= 0 and math.isfinite(ridge)):
        raise TangentError(f"ridge={ridge} is not a number from 0 on.", remedy="Use 0, or a small positive number.")
    source = as_source(kernel)
    data = as_columns(source, targets, f0)
    chosen = _choose(kernel, source) if method == "auto" else method
    solve = _METHODS.get(chosen)
    if solve is None:
        raise TangentError(
            f"There is no method {method!r}.", remedy='Use "auto", "cholesky", "mixed", "eigen" or "cg".'
        )
    if chosen in ("cholesky", "mixed") and not source.readable:
        source = as_source(source.dense())
    task = _Task(kernel, source, data.columns, ridge, method == "auto", tolerance, rank, iterations, seed, progress)
    coefficients, used, chosen = solve(task)
    image = source.accurate_product(coefficients)
    norm = (coefficients * image).sum(0).clamp(min=0).sqrt()
    size = data.columns.norm(dim=0)
    gap = (image + ridge * coefficients - data.columns).norm(dim=0)
    residual = float((gap / torch.where(size > 0, size, 1.0)).max())
    return Regression(coefficients, float(ridge), chosen, used, residual, norm, data.trailing, data.outputs, data.prior)


class _Task:
    """A system to solve, and the options."""

    def __init__(
        self,
        kernel: Any,
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
        self.kernel, self.source, self.right, self.ridge = kernel, source, right, ridge
        self.auto, self.rank, self.iterations, self.seed, self.progress = auto, rank, iterations, seed, progress
        self.tolerance = tolerance or (1e-5 if source.accuracy > 1e-10 else 1e-10)

    def product(self, block: Tensor) -> Tensor:
        """(K + ridge) times a block."""
        return self.source.accurate_product(block) + self.ridge * block


def _choose(kernel: Any, source: Source) -> str:
    if isinstance(kernel, LowRank):
        return "eigen"
    if not source.readable and source.n > _SMALL:
        return "cg"
    return "cholesky" if packed_bytes(source.n) < available(source.device) else "mixed"


_Answer = tuple[Tensor, int, str]
"""Coefficients, rank and method."""


def _cholesky(task: _Task) -> _Answer:
    factor = _factor(task, torch.float64, task.ridge)
    n, seen = task.source.n, math.inf
    if factor.failed is None:
        # A random column beside the right-hand sides: two solutions with it give the smallest eigenvalue. The pivots do
        # not: one may be far above it, where the null vector has a small entry there.
        generator = torch.Generator().manual_seed(task.seed)
        start = torch.randn(n, 1, generator=generator, dtype=torch.float64).to(task.right.device)
        solved = factor.solve(torch.cat([task.right, start], 1))
        direction = solved[:, -1:] / solved[:, -1:].norm()
        seen = 1 / float(factor.solve(direction).norm())
        rounding = n * torch.finfo(torch.float64).eps * (_largest(task.source) + task.ridge)
        # LAPACK's level of rounding is far above what a factor loses. K + ridge has no eigenvalue below the ridge: a
        # factor that shows the ridge has not lost it, however small it is.
        if seen > min(rounding, _FAITHFUL * task.ridge or math.inf):
            return solved[:, :-1], n, "cholesky"
    del factor
    if task.auto and n <= 4 * _SMALL:
        return _eigen(task)
    smallest, largest = _extremes(task)
    smallest = min(smallest, seen - task.ridge)
    then = ', or method="eigen" for the minimum-norm solution' if smallest > -1e-4 * largest else ""
    raise not_positive(smallest, largest, n, task.ridge, then)


def _largest(source: Source) -> float:
    """About the largest eigenvalue, from below: the largest diagonal entry, or the quotient of the constant vector."""
    ones = torch.ones(source.n, 1, dtype=torch.float64, device=source.device)
    return max(float(source.diagonal().max()), float(source.accurate_product(ones).mean()))


def _factor(task: _Task, dtype: torch.dtype, ridge: float) -> PackedCholesky:
    own = task.source.tile
    tile = own * max(1, TILE // own)  # whole tiles of a kernel on disk are read once
    panels = -(-task.source.n // tile)
    with progress_bar("Cholesky", panels**2, task.progress) as tick:
        return PackedCholesky(task.source, ridge, dtype, tile, tick)


def _extremes(task: _Task) -> tuple[float, float]:
    """The smallest and the largest eigenvalue of the kernel, roughly, from a few products."""
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


def _mixed(task: _Task) -> _Answer:
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
        raise not_positive(*_extremes(task), task.source.n, task.ridge)
    return _iterate(task, factor.solve, 100, "mixed")


def _cg(task: _Task) -> _Answer:
    n = task.source.n
    rank = min(n, task.rank or max(16, min(2000, 2 * math.isqrt(n))))
    return _iterate(task, NystromPreconditioner(task.source, rank, task.ridge, task.seed), task.iterations, "cg")


def _iterate(task: _Task, precondition: Product, iterations: int, method: str) -> _Answer:
    with progress_bar(method, iterations, task.progress) as tick:
        found = conjugate_gradients(
            task.product, task.right, precondition, tolerance=task.tolerance, iterations=iterations, tick=tick
        )
    if found.residual <= task.tolerance:
        return found.x, task.source.n, method
    smallest, largest = _extremes(task)
    if found.indefinite and smallest + task.ridge < -1e-4 * largest:
        raise not_positive(smallest, largest, task.source.n, task.ridge)
    raise TangentError(
        f"method={method!r} stopped at a relative residual of {found.residual:.2g} after {found.iterations} products; "
        f"{task.tolerance:.2g} was asked for.",
        why=f"K + ridge has eigenvalues from about {smallest + task.ridge:.3g} to {largest + task.ridge:.3g}: too far "
        "apart for it, or zero.",
        remedy=f"Use ridge={max(-2 * smallest, 1e-6 * largest):.3g} or more, a larger tolerance, "
        + ("a larger rank or more iterations." if method == "cg" else 'or method="cholesky" in float64.'),
    )


def _eigen(task: _Task) -> _Answer:
    spectrum = eigh(task.kernel if isinstance(task.kernel, LowRank) else task.source)
    values, vectors = spectrum.values, spectrum.vectors
    require_positive(values, task.ridge)
    cutoff = rank_cutoff(values, spectrum.dtype)
    kept = values > cutoff
    projected = vectors.T @ task.right
    if task.ridge:
        values = lifted(values, task.ridge)
        coefficients = vectors @ (projected / (values + task.ridge)[:, None])
        if len(values) < spectrum.n:  # features: the rest of the space has eigenvalue zero
            coefficients += (task.right - vectors @ projected) / task.ridge
        return coefficients, spectrum.n, "eigen"
    inverse = torch.where(kept, 1 / torch.where(kept, values, 1.0), 0.0)
    return vectors @ (inverse[:, None] * projected), int(kept.sum()), "eigen"


_METHODS: dict[str, Callable[[_Task], _Answer]] = {
    "cholesky": _cholesky,
    "mixed": _mixed,
    "eigen": _eigen,
    "cg": _cg,
}
