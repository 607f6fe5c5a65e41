"""Kernels, targets and ridges of every scale that float64 holds: the unit problem's answer, or a refusal.

Scaling by a power of two is exact, so that the answer for 2^e K is that for K, scaled. It must hold to the last digits
as long as the answer itself is in the range of float64.
"""

import math
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tangentlab import TangentError
from tangentlab.linalg import (
    LowRank,
    PackedCholesky,
    as_source,
    condition_number,
    effective_rank,
    eigh,
    extremes,
    nystrom,
    regress,
    ridge_path,
    singular_values,
    spectral_density,
    trace,
)
from tests.linalg.problems import attempt, close, forms, power_law, times, with_spectrum

METHODS = ["auto", "cholesky", "mixed", "eigen", "cg"]
FORMS = ["tensor", "array", "operator", "readable", "scipy"]
KERNEL = with_spectrum(power_law(24, 1.0))
FEATURES = torch.randn(24, 30, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
Y = torch.randn(24, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
SCALES = [-1040, -1000, -500, -300, 0, 300, 500, 1000, 1020]


@pytest.mark.parametrize("scale", SCALES[1:])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("method", METHODS)
def test_regression_of_any_scale(scale: int, form: str, method: Any) -> None:
    kernel = forms(times(KERNEL, scale))[form]
    expected = regress(KERNEL, Y, ridge=0.25, method="eigen")
    found = regress(kernel, Y, ridge=float(times(0.25, scale)), method=method)
    close(times(found.coefficients, scale), expected.coefficients)
    close(times(found.norm, scale // 2), expected.norm)
    assert found.residual < 1e-9
    close(found.predict(times(KERNEL, scale)), expected.predict(KERNEL))
    path = ridge_path(times(KERNEL, scale), Y, [float(times(0.25, scale))])
    close(path.leave_one_out, ridge_path(KERNEL, Y, [0.25]).leave_one_out)


def test_a_kernel_of_subnormal_numbers() -> None:
    """Entries of 2^-1040 have a few digits left; those are answered exactly."""
    tiny = times(KERNEL, -1040)
    exact = times(tiny, 1040)
    ridge = 2.0**-1042
    found, expected = regress(tiny, times(Y, -200), ridge=ridge), regress(exact, Y, ridge=0.25)
    close(times(times(found.coefficients, -1040), 200), expected.coefficients)
    with pytest.raises(TangentError, match="range of float64"):  # eigenvalues with a few digits would be wrong ones
        eigh(tiny)


@pytest.mark.parametrize("scale", [-1000, -600, 600, 1000])
@pytest.mark.parametrize("method", METHODS)
def test_targets_of_any_scale(scale: int, method: Any) -> None:
    expected = regress(KERNEL, Y, ridge=0.25)
    mixed = torch.stack([times(Y[:, 0], scale), Y[:, 1]], 1)
    found = regress(KERNEL, mixed, ridge=0.25, method=method)
    close(times(found.coefficients[:, 0], -scale), expected.coefficients[:, 0])
    close(found.coefficients[:, 1], expected.coefficients[:, 1])
    close(times(found.norm[0], -scale), expected.norm[0])
    assert found.residual < 1e-9
    path, wanted = ridge_path(KERNEL, times(Y, scale // 2), [0.25]), ridge_path(KERNEL, Y, [0.25])
    for name in ("leave_one_out", "gcv", "train"):
        close(times(getattr(path, name), -2 * (scale // 2)), getattr(wanted, name))
    close(times(path.norms, -(scale // 2)), wanted.norms)
    close(path.degrees, wanted.degrees)
    close(times(path.regression(0.25).coefficients, -(scale // 2)), expected.coefficients)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("ridge", [1e-300, 1e-30, 1e12, 1e200, 1e300])
def test_ridges_of_any_size(method: Any, ridge: float) -> None:
    found = regress(KERNEL, Y, ridge=ridge, method=method)
    expected = torch.linalg.solve(KERNEL + ridge * torch.eye(24, dtype=torch.float64), Y)
    close(found.coefficients, expected, 1e-8)
    values, vectors = torch.linalg.eigh(KERNEL)
    projected = vectors.T @ Y
    close(found.norm * max(ridge, 1), ((values.sqrt() / (values / max(ridge, 1) + min(ridge, 1)))[:, None] * projected)
          .norm(dim=0), 1e-8)  # fmt: skip
    path = ridge_path(KERNEL, Y, [ridge])
    assert all(bool(torch.isfinite(getattr(path, name)).all()) for name in ("leave_one_out", "gcv", "train", "norms"))
    if ridge >= 1e200:  # then a = y / ridge: what is left out is predicted as zero
        close(path.leave_one_out[0], Y.square().mean())
        close(path.gcv[0], Y.square().sum(0).mean() / 24)


@settings(max_examples=60, deadline=None)
@given(
    kernel=st.integers(-1000, 1000),
    target=st.integers(-500, 500),
    ridge=st.integers(-30, 30),
    n=st.integers(1, 12),
    width=st.integers(1, 16),
    method=st.sampled_from(METHODS),
    seed=st.integers(0, 99),
)
@example(kernel=-1000, target=500, ridge=0, n=3, width=3, method="auto", seed=0)  # coefficients of 2^1500
def test_any_problem_is_answered_as_the_unit_one_or_refused(
    kernel: int, target: int, ridge: int, n: int, width: int, method: Any, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    j, y = (torch.randn(n, m, generator=generator, dtype=torch.float64) for m in (width, 1))
    unit = j @ j.T
    expected = torch.linalg.solve(unit + 2.0**ridge * torch.eye(n, dtype=torch.float64), y)
    condition = float(torch.linalg.cond(unit + 2.0**ridge * torch.eye(n, dtype=torch.float64)))
    found, refusal = attempt(
        lambda: regress(times(unit, kernel), times(y, target), ridge=float(times(2.0**ridge, kernel)), method=method)
    )
    if refusal:
        assert abs(target - kernel) >= 900 or condition > 1e6, refusal  # the answer is in range and well determined
        return
    assert found.residual < max(1e-9, 1e-14 * condition)
    if condition < 1e8:
        close(times(times(found.coefficients, kernel), -target), expected, 1e-6)


@pytest.mark.parametrize("scale", SCALES[1:])
@pytest.mark.parametrize("form", FORMS)
def test_spectra_of_any_scale(scale: int, form: str) -> None:
    kernel = forms(times(KERNEL, scale))[form]
    expected, found = eigh(KERNEL), eigh(kernel)
    close(times(found.values, -scale), expected.values, 1e-12)
    assert float(times(found.residuals, -scale).max()) < 1e-13
    close(found.vectors.T @ found.vectors, torch.eye(24), 1e-12)
    close(times(eigh(kernel, 3).values, -scale), expected.values[:3], 1e-12)
    ends = extremes(kernel)
    close(times([ends.smallest, ends.largest], -scale), expected.values[[-1, 0]], 1e-12)
    assert condition_number(kernel) == pytest.approx(24, rel=1e-9)
    assert condition_number(found) == pytest.approx(24, rel=1e-9)
    close(times(trace(kernel), -scale), KERNEL.trace(), 1e-12)
    close(times(singular_values(kernel), -(scale // 2)), expected.values.sqrt(), 1e-12)
    rank = effective_rank(expected.values.sqrt())
    assert effective_rank(singular_values(kernel)) == pytest.approx(rank)
    assert effective_rank(eigenvalues=found.values) == pytest.approx(rank)
    assert effective_rank(found.values) == pytest.approx(effective_rank(expected.values))
    low = nystrom(kernel, 6)
    close(times(low.features, -(scale // 2)).abs(), nystrom(KERNEL, 6).features.abs(), 1e-6)
    if scale > -900:
        density = spectral_density(kernel, bins=5)
        close(density.counts, spectral_density(KERNEL, bins=5).counts)
        assert bool(torch.isfinite(density.density).all())
    factor = PackedCholesky(as_source(forms(times(KERNEL, scale))["readable"]), float(times(0.5, scale)), tile=7)
    assert factor.failed is None
    close(times(factor.solve(Y), scale), torch.linalg.solve(KERNEL + 0.5 * torch.eye(24), Y), 1e-9)


@pytest.mark.parametrize("scale", [-600, 600])
def test_block_methods_of_any_scale(scale: int) -> None:
    """Above the size up to which LAPACK decomposes everything."""
    kernel = with_spectrum(power_law(1100))
    for form in ("tensor", "operator"):
        found = eigh(forms(times(kernel, scale))[form], 5)
        assert found.method == "block Krylov"
        close(times(found.values, -scale), power_law(1100)[:5], 1e-9)
    ends = extremes(times(kernel, scale))
    close(times([ends.smallest, ends.largest], -scale), power_law(1100)[[-1, 0]], 1e-6)


@pytest.mark.parametrize("scale", [-500, -80, 80, 500])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_features_of_any_scale(scale: int, dtype: torch.dtype) -> None:
    """K = F F^T may be out of the range of F's own type."""
    if dtype == torch.float32 and abs(scale) > 100:
        return
    features = times(FEATURES.to(dtype).double(), scale).to(dtype)
    exact = FEATURES.to(dtype).double()
    low = LowRank(features)
    close(times(eigh(low).values, -2 * scale), torch.linalg.svdvals(exact).square(), 1e-9)
    assert condition_number(low) == pytest.approx(float(torch.linalg.cond(exact)) ** 2, rel=1e-6)
    close(times(trace(low), -2 * scale), exact.square().sum(), 1e-9)
    expected = torch.linalg.solve(exact @ exact.T + 0.25 * torch.eye(24, dtype=torch.float64), Y)
    for method in ("auto", "eigen", "cg", "cholesky"):
        found = regress(low, Y, ridge=float(times(0.25, 2 * scale)), method=method)  # type: ignore[arg-type]
        close(times(found.coefficients, 2 * scale), expected, 1e-4 if dtype == torch.float32 else 1e-8)


@pytest.mark.parametrize("scale", [2.0**-120, 2.0**-100, 2.0**100, 2.0**124])
def test_float32_kernels_of_any_scale(scale: float) -> None:
    kernel = (KERNEL * scale).float()
    exact = kernel.double() / scale
    expected = torch.linalg.solve(exact + 0.25 * torch.eye(24, dtype=torch.float64), Y)
    for method in METHODS:
        found = regress(kernel, Y, ridge=0.25 * scale, method=method)  # type: ignore[arg-type]
        close(found.coefficients * scale, expected, 1e-8)
    close(eigh(kernel).values / scale, torch.linalg.eigvalsh(exact).flip(0), 1e-9)


def test_what_is_out_of_range_is_refused() -> None:
    huge, tiny = times(KERNEL, 1020), times(KERNEL, -1000)
    for case in (
        lambda: eigh(8 * torch.full((4, 4), 1e307, dtype=torch.float64)),  # an eigenvalue of 3.2e308
        lambda: trace(8 * torch.full((4, 4), 1e307, dtype=torch.float64)),
        lambda: regress(huge, times(Y, -1000)),
        lambda: regress(tiny, times(Y, 1000)),
        lambda: ridge_path(KERNEL, times(Y, 600)),
        lambda: ridge_path(KERNEL, times(Y, -600)),
    ):
        with pytest.raises(TangentError, match="range of float64"):
            case()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1.0, -1e-300, "1", None, True, 1j, [1.0]])
def test_ridges_that_are_none(bad: Any) -> None:
    with pytest.raises(TangentError, match="ridge"):
        regress(KERNEL, Y, ridge=bad)
    with pytest.raises(TangentError, match="ridge"):
        ridge_path(KERNEL, Y, [0.5]).regression(bad) if bad is not None else regress(KERNEL, Y, ridge=bad)


def rational(kernel: list[list[Fraction]], right: list[Fraction]) -> list[Fraction]:
    """The exact solution, by Gauss's elimination in rational numbers."""
    n = len(right)
    rows = [[*row, b] for row, b in zip(kernel, right, strict=True)]
    for i in range(n):
        pivot = next(r for r in range(i, n) if rows[r][i])
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for r in range(n):
            if r != i and rows[r][i]:
                rows[r] = [a - rows[r][i] * b for a, b in zip(rows[r], rows[i], strict=True)]
    return [row[-1] for row in rows]


@settings(max_examples=60, deadline=None)
@given(
    j=st.integers(1, 5).flatmap(
        lambda n: st.lists(st.lists(st.integers(-9, 9), min_size=6, max_size=6), min_size=n, max_size=n)
    ),
    y=st.lists(st.integers(-9, 9), min_size=5, max_size=5),
    ridge=st.fractions(min_value=Fraction(1, 1024), max_value=1024),
    kernel=st.integers(-900, 900),
    target=st.integers(-100, 100),
    method=st.sampled_from(METHODS),
)
@example(j=[[0, 2, 2, 2, 0, 2]] * 2, y=[7, -7, 0, 0, 0], ridge=Fraction(339, 51712), kernel=0, target=0, method="auto")
def test_against_rational_arithmetic(
    j: list[list[int]], y: list[int], ridge: Fraction, kernel: int, target: int, method: Any
) -> None:
    """Coefficients, norm, leave-one-out and RKHS form without any rounding in the reference."""
    n, rho = len(j), Fraction(float(ridge))
    gram = [[Fraction(sum(a * b for a, b in zip(one, two, strict=True))) for two in j] for one in j]
    lifted = [[gram[r][c] + rho * (r == c) for c in range(n)] for r in range(n)]
    right = [Fraction(value) for value in y[:n]]
    exact = rational(lifted, right)
    unit = torch.tensor([[float(v) for v in row] for row in gram], dtype=torch.float64)
    scaled, b = times(unit, kernel), times([float(v) for v in right], target)
    step = float(times(float(rho), kernel))
    fit = regress(scaled, b, ridge=step, method=method)
    close(times(times(fit.coefficients[:, 0], kernel), -target), [float(v) for v in exact], 1e-7)
    square = sum(exact[r] * gram[r][c] * exact[c] for r in range(n) for c in range(n))
    found = float(times(times(fit.norm[0], kernel // 2 * 1), -target)) * 2.0 ** ((kernel % 2) / 2)
    # Rounding of a^T K a is relative to |a|^2 |K|: for a in the kernel's null space, that is all there is.
    scale = math.sqrt(float(sum(v * v for v in exact)) * float(unit.trace()))
    assert found == pytest.approx(math.sqrt(square), rel=1e-6, abs=1e-12 + 1e-14 * scale)
    inverse = [rational(lifted, [Fraction(r == c) for r in range(n)]) for c in range(n)]
    errors = [(exact[i] / inverse[i][i]) ** 2 for i in range(n)]
    path = ridge_path(scaled, b, [step])
    left_out = float(times(path.leave_one_out[0], -2 * target))
    assert left_out == pytest.approx(float(sum(errors) / n), rel=1e-6, abs=1e-12)
