"""Solvers of (K + ridge) a = b, one per method of :func:`regress`."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._progress import progress_bar
from tangentlab._scaling import number
from tangentlab.linalg._cg import Product, conjugate_gradients
from tangentlab.linalg._cholesky import TILE, PackedCholesky, packed_bytes
from tangentlab.linalg._eigen import decompose
from tangentlab.linalg._forms import Features
from tangentlab.linalg._nystrom import NystromPreconditioner
from tangentlab.linalg._regression import Solved
from tangentlab.linalg._source import Factor, Source
from tangentlab.linalg._symmetry import negative_allowed, not_positive, rank_cutoff, require_positive

_SMALL = 4096
"""With "auto", operators up to this size are formed, and singular kernels up to four times this size decomposed."""
_FAITHFUL = 0.9
"""The smallest eigenvalue of a factor of K + ridge must be at least this share of the ridge."""
_MINIMUM_NORM = ', or method="eigen" for the minimum-norm solution'
_LOST = 1e-3
"""The share of a target on eigenvalues that a negative eigenvalue makes unreliable, above which there is a warning."""


class System:
    """The system (K + ridge) a = b at unit size, with the options of its solvers."""

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
        # An unusual seed: the data of a test with seed 0 must not coincide with these numbers.
        generator = torch.Generator().manual_seed(0x5EED_0000 + self.seed)
        return torch.randn(self.source.n, 1, generator=generator, dtype=torch.float64).to(self.right.device)

    def refusal(self, smallest: float, largest: float, then: str = "") -> TangentError:
        """Build the refusal of a K + ridge that is not positive definite, in the user's numbers."""
        return not_positive(smallest, largest, self.source.n, self.ridge, then, self.source.exponent)


def choose(source: Source) -> str:
    if isinstance(source, Features):
        return "eigen"
    if not (source.readable or source.remote) and source.n > _SMALL:
        return "cg"
    room = source.room()
    if packed_bytes(source.n) < room:
        return "cholesky"
    return "cg" if source.remote and packed_bytes(source.n, torch.float32) > room else "mixed"


def _cholesky(system: System) -> Solved:
    factor = _factor(system, torch.float64, system.ridge)
    n, seen = system.source.n, math.inf
    if factor.failed is None:
        # A random column in addition to the right-hand sides: two solutions with it give the smallest eigenvalue. The
        # pivots do not: one may be far above it, if the null vector has a small entry there.
        solved = factor.solve(torch.cat([system.right, system.random()], 1))
        direction = solved[:, -1:] / solved[:, -1:].norm()
        seen = 1 / float(factor.solve(direction).norm())
        if seen > _rounding(system):
            return Solved(solved[:, :-1], n, "cholesky")
    del factor
    if system.auto and n <= 4 * _SMALL and not system.source.remote:
        return _eigen(system)
    smallest, largest = _extremes(system)
    smallest = min(smallest, seen - system.ridge)
    allowed = negative_allowed(n, system.source.precision) * largest
    then = _MINIMUM_NORM if smallest > -allowed and not system.source.remote else ""
    raise system.refusal(smallest, largest, then)


def _rounding(system: System) -> float:
    """Return the size below which eigenvalues of K + ridge may be rounding."""
    eps = torch.finfo(torch.float64).eps
    level = system.source.n * eps * (largest(system.source) + system.ridge)
    # LAPACK's level of rounding is far above the error of a factor. K + ridge has no eigenvalue below the ridge: a
    # factor whose smallest eigenvalue is the ridge is accurate, however small the ridge is, unless adding it changed
    # nothing.
    added = system.ridge > 4 * eps * float(system.source.diagonal().max())
    return min(level, _FAITHFUL * system.ridge) if added else level


def largest(source: Source) -> float:
    """Estimate the largest eigenvalue from below: the largest diagonal entry or the quotient of a constant vector."""
    ones = torch.ones(source.n, 1, dtype=torch.float64, device=source.device)
    return max(float(source.diagonal().max()), float(source.accurate_product(ones).mean()))


def _factor(system: System, dtype: torch.dtype, ridge: float) -> Factor:
    own = system.source.tile
    tile = own * max(1, TILE // own)  # whole tiles of a kernel on disk are read once
    panels = -(-system.source.n // tile)
    with progress_bar("Cholesky", panels**2, system.progress) as tick:
        if system.source.remote:
            return system.source.factorize(ridge, dtype, tick)
        return PackedCholesky(system.source, ridge, dtype, tile, tick)


def _extremes(system: System) -> tuple[float, float]:
    """Estimate the smallest and the largest eigenvalue of the kernel roughly, from a few products."""
    source = system.source
    if source.n <= _SMALL and not source.remote:
        values = torch.linalg.eigvalsh(source.dense())
        return float(values[0]), float(values[-1])
    generator = torch.Generator().manual_seed(system.seed)
    basis = torch.linalg.qr(torch.randn(source.n, 8, generator=generator, dtype=torch.float64).to(source.device)).Q
    for _ in range(min(10, source.n // 8 - 1)):
        block = source.accurate_product(basis[:, -8:])
        for _ in range(2):
            block = block - basis @ (basis.T @ block)
        basis = torch.cat([basis, torch.linalg.qr(block).Q], 1)
    basis = torch.linalg.qr(basis).Q  # if the kernel has no more directions, the last ones are arbitrary
    values = torch.linalg.eigvalsh(basis.T @ source.accurate_product(basis))
    return float(values[0]), float(values[-1])


def _mixed(system: System) -> Solved:
    # The factor only preconditions: a shift at the level of float32 rounding lets it exist for kernels near singular.
    shift = torch.finfo(torch.float32).eps * float(system.source.diagonal().max())
    factor = _factor(system, torch.float32, system.ridge)
    for _ in range(6):
        if factor.failed is None:
            break
        del factor
        factor = _factor(system, torch.float32, system.ridge + shift)
        shift *= 10
    if factor.failed is not None:
        raise system.refusal(*_extremes(system))
    # Targets in the range of a singular kernel have many solutions, and the iteration finds any of them. A random
    # column is not in the range: if its system cannot be solved, K + ridge is singular, and the solution found does not
    # have the least norm.
    start = system.random()
    found = _iterate(system, torch.cat([system.right, start], 1), factor.solve, 100, "mixed")
    if float(start.norm() / found[:, -1].norm()) <= _rounding(system):  # at least the smallest eigenvalue
        smallest, largest = _extremes(system)
        raise system.refusal(smallest, largest, "" if system.source.remote else _MINIMUM_NORM)
    return Solved(found[:, :-1], system.source.n, "mixed")


def _cg(system: System) -> Solved:
    n = system.source.n
    rank = min(n, system.rank or max(16, min(2000, 2 * math.isqrt(n))))
    preconditioner = NystromPreconditioner(system.source, rank, system.ridge, system.seed)
    return Solved(_iterate(system, system.right, preconditioner, system.iterations, "cg"), n, "cg")


def _iterate(system: System, right: Tensor, precondition: Product, iterations: int, method: str) -> Tensor:
    with progress_bar(method, iterations, system.progress) as tick:
        found = conjugate_gradients(
            system.product, right, precondition, tolerance=system.tolerance, iterations=iterations, tick=tick
        )
    if found.residual <= system.tolerance:
        return found.x
    smallest, largest = _extremes(system)
    if (
        found.indefinite
        and smallest + system.ridge < -negative_allowed(system.source.n, system.source.precision) * largest
    ):
        raise system.refusal(smallest, largest)
    low, high, step = (
        number(value, system.source.exponent)
        for value in (smallest + system.ridge, largest + system.ridge, max(-2 * smallest, 1e-6 * largest) or 1.0)
    )
    raise TangentError(
        f"The method {method!r} stopped at a relative residual of {found.residual:.2g} after {found.iterations} "
        f"products; {system.tolerance:.2g} was requested.",
        why=f"K + ridge has eigenvalues from about {low:.3g} to {high:.3g}, too far apart for this method, or zero.",
        remedy=f"Use ridge={step:.3g} or more, a larger tolerance, "
        + (
            "a larger rank or more iterations."
            if method == "cg"
            else 'or method="cholesky" in float64.'
            if system.source.remote
            else 'or method="cholesky" in float64; method="eigen" gives the least norm for a singular kernel.'
        ),
    )


def _eigen(system: System) -> Solved:
    spectrum = decompose(system.source)
    values, vectors, n = spectrum.values, spectrum.vectors, spectrum.n
    require_positive(values, system.ridge, spectrum.dtype, system.source.exponent, n)
    smallest, largest = float(values[-1]), float(values[0])
    projected = vectors.T @ system.right
    if system.ridge:
        if smallest + system.ridge <= 0:
            raise system.refusal(smallest, largest)
        coefficients = vectors @ (projected / (values + system.ridge)[:, None])
        if len(values) < n:  # features: the rest of the space has eigenvalue zero
            coefficients += (system.right - vectors @ projected) / system.ridge
        return Solved(coefficients, n, "eigen")
    cutoff, usual = rank_cutoff(values, spectrum.dtype, n), rank_cutoff(values.clamp(min=0), spectrum.dtype, n)
    kept = values > cutoff
    inverse = torch.where(kept, 1 / torch.where(kept, values, 1.0), 0.0)
    rank = int(kept.sum())
    # A negative eigenvalue measures the error of all others. If that affects the targets, there is a warning.
    lost = (projected[(values.abs() > usual) & ~kept].norm(dim=0) > _LOST * system.right.norm(dim=0)).any()
    note = (
        f"The kernel has a negative eigenvalue, {number(smallest, system.source.exponent):.2g}, so that its "
        f"{n - rank} eigenvalues up to {number(cutoff, system.source.exponent):.2g} count as zero."
        if bool(lost)
        else ""
    )
    return Solved(vectors @ (inverse[:, None] * projected), rank, "eigen", cutoff if rank < n else 0.0, note)


SOLVERS: dict[str, Callable[[System], Solved]] = {
    "cholesky": _cholesky,
    "mixed": _mixed,
    "eigen": _eigen,
    "cg": _cg,
}
