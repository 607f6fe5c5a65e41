"""Kernel regression against LAPACK, scikit-learn and explicit Jacobians."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.kernel_ridge import KernelRidge
from torch import Tensor, nn

from tangentlab import NTKOperator, TangentError, ntk
from tangentlab.linalg import LowRank, nystrom, regress, ridge_path
from tangentlab.linalg import _solvers as module
from tangentlab.linalg._regression import Solved
from tests.linalg.problems import Operator, eye, forms, power_law, with_spectrum

METHODS = ["auto", "cholesky", "mixed", "eigen", "cg"]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_every_method_solves_the_system(method: str, ridge: float) -> None:
    kernel, y, f0 = with_spectrum(power_law(90)), normal(90, 3), normal(90, 3, seed=1)
    fit = regress(kernel, y, f0=f0, ridge=ridge, method=method)  # type: ignore[arg-type]
    expected = torch.linalg.solve(kernel + ridge * eye(90), y - f0)
    torch.testing.assert_close(fit.coefficients, expected, rtol=1e-6, atol=1e-6 * float(expected.abs().max()))
    assert fit.residual < 1e-9
    assert fit.rank == 90
    assert fit.ridge == ridge
    assert fit.method == ("cholesky" if method == "auto" else method)
    norm = (expected * (kernel @ expected)).sum(0).sqrt()
    torch.testing.assert_close(fit.norm, norm, rtol=1e-6, atol=0)


@pytest.mark.parametrize("form", ["tensor", "array", "operator", "readable", "scipy"])
@pytest.mark.parametrize("method", METHODS)
def test_every_form_of_a_kernel(form: str, method: str) -> None:
    kernel, y = with_spectrum(power_law(40)), normal(40)
    fit = regress(forms(kernel)[form], y, ridge=0.1, method=method)  # type: ignore[arg-type]
    torch.testing.assert_close(fit.coefficients[:, 0], torch.linalg.solve(kernel + 0.1 * eye(40), y))
    assert fit.predict(kernel[:5]).shape == (5,)


def test_against_scikit_learn() -> None:
    j, new = normal(50, 80), normal(12, 80, seed=2)
    y, f0, f0_new = normal(50, 4, seed=3), normal(50, 4, seed=4), normal(12, 4, seed=5)
    fit = regress(j @ j.T, y, f0=f0, ridge=0.7)
    peer = KernelRidge(alpha=0.7, kernel="precomputed").fit((j @ j.T).numpy(), (y - f0).numpy())
    np.testing.assert_allclose(fit.coefficients, peer.dual_coef_, rtol=1e-9, atol=1e-12)
    expected = peer.predict((new @ j.T).numpy()) + f0_new.numpy()
    np.testing.assert_allclose(fit.predict(new @ j.T, f0_new), expected, rtol=1e-9)


@pytest.mark.parametrize("samples", [10, 30])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_minimum_norm_solution_of_an_explicit_jacobian(samples: int, dtype: torch.dtype) -> None:
    """u = J^T a against LAPACK's gelsd: more weights than samples, and fewer (a singular kernel)."""
    j, y = normal(samples, 20).to(dtype), normal(samples, 2, seed=1)
    fit = regress(j @ j.T, y)
    u = torch.linalg.lstsq(j.double(), y, driver="gelsd").solution
    close = {"rtol": 1e-8, "atol": 1e-8} if dtype == torch.float64 else {"rtol": 2e-4, "atol": 2e-4}
    torch.testing.assert_close(j.double().T @ fit.coefficients, u, **close)
    torch.testing.assert_close(fit.norm, u.norm(dim=0), **close)
    assert fit.rank == min(samples, 20)
    assert fit.method == ("cholesky" if samples < 20 else "eigen")
    fitted = fit.predict(j @ j.T)
    torch.testing.assert_close(fitted, j.double() @ u, **close)


def test_a_point_twice_with_two_targets() -> None:
    j = normal(6, 20)
    j[1] = j[0]
    y = normal(6, seed=1)
    fit = regress(j @ j.T, y)
    assert fit.rank == 5
    fitted = fit.predict(j @ j.T)
    assert float(fitted[0]) == pytest.approx(float(y[:2].mean()))
    torch.testing.assert_close(fitted[2:], y[2:])
    assert fit.residual == pytest.approx(float((fitted - y).norm() / y.norm()))


def test_a_network_and_its_operator() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 30), nn.Tanh(), nn.Linear(30, 2)).double()
    x, new, y = normal(9, 3), normal(4, 3, seed=1), normal(9, 2, seed=2)
    full, cross = ntk(network, x), ntk(network, new, x)
    fit = regress(full, y, ridge=0.01)
    flat = torch.linalg.solve(full.reshape(18, 18) + 0.01 * eye(18), y.reshape(-1))
    expected = (cross.reshape(8, 18) @ flat).reshape(4, 2)
    torch.testing.assert_close(fit.predict(cross), expected)
    torch.testing.assert_close(fit.predict(cross.reshape(8, 18)), expected)
    other = regress(NTKOperator(network, x), y, ridge=0.01)
    torch.testing.assert_close(other.predict(cross), expected)
    torch.testing.assert_close(other.predict(NTKOperator(network, new, x)), expected)
    torch.testing.assert_close(regress(NTKOperator(network, x), y, ridge=0.01, method="cg").predict(cross), expected)


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 40), width=st.integers(1, 50), seed=st.integers(0, 99), columns=st.integers(1, 3))
@example(n=15, width=14, seed=5, columns=1)  # one eigenvalue is zero, and no pivot is near rounding
@example(n=40, width=39, seed=3, columns=2)
def test_auto_gives_the_minimum_norm_solution(n: int, width: int, seed: int, columns: int) -> None:
    j, y = normal(n, width, seed=seed), normal(n, columns, seed=seed + 1)
    u = torch.linalg.lstsq(j, y, driver="gelsd").solution
    fit = regress(j @ j.T, y)
    scale = float(torch.linalg.cond(j @ j.T)) if width >= n else 1e4
    torch.testing.assert_close(j.T @ fit.coefficients, u, rtol=1e-12 * max(scale, 1e3), atol=1e-13 * max(scale, 1e3))
    low = regress(LowRank(j), y)
    torch.testing.assert_close(j.T @ low.coefficients, u, rtol=1e-12 * max(scale, 1e3), atol=1e-13 * max(scale, 1e3))
    ridge = regress(LowRank(j), y, ridge=0.5)
    torch.testing.assert_close(ridge.coefficients, regress(j @ j.T, y, ridge=0.5, method="cholesky").coefficients)


@pytest.mark.parametrize("method", ["cholesky", "mixed", "cg"])
def test_singular_kernels_are_refused_where_the_method_cannot_cope(method: str) -> None:
    j, y = normal(50, 10), normal(50, seed=1)
    with pytest.raises(TangentError, match="ridge="):
        regress(j @ j.T, y, method=method)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", METHODS)
def test_indefinite_kernels_are_refused_with_the_ridge_that_helps(method: str) -> None:
    values = torch.linspace(-0.5, 3, 30, dtype=torch.float64)
    kernel, y = with_spectrum(values), normal(30)
    with pytest.raises(TangentError, match=r"-0\.5") as refusal:
        regress(kernel, y, method=method)  # type: ignore[arg-type]
    ridge = float(refusal.value.remedy.split("ridge=")[1].split()[0])
    fit = regress(kernel, y, ridge=ridge, method=method)  # type: ignore[arg-type]
    torch.testing.assert_close(fit.coefficients[:, 0], torch.linalg.solve(kernel + ridge * eye(30), y))


@pytest.mark.parametrize("seed", range(5))
def test_a_ridge_below_lapacks_rounding_gives_the_minimum_norm_solution(seed: int) -> None:
    """Singular kernels too large to be decomposed are solved with eps tr K, a thousandth of n eps lambda_1."""
    features, new = normal(1500, 400, seed=seed) * torch.arange(1, 401) ** -0.5, normal(20, 400, seed=seed + 9)
    y = features @ normal(400, seed=seed + 20)
    kernel = features @ features.T
    ridge = torch.finfo(torch.float64).eps * float(kernel.trace())
    fit = regress(kernel, y, ridge=ridge, method="cholesky")
    weights = torch.linalg.lstsq(features, y[:, None], driver="gelsd").solution[:, 0]
    torch.testing.assert_close(fit.predict(new @ features.T), new @ weights, rtol=1e-6, atol=1e-6)
    with pytest.raises(TangentError, match="ridge"):
        regress(kernel, y, ridge=1e-6 * ridge, method="cholesky")


def test_a_large_singular_kernel_is_refused_without_decomposing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SMALL", 10)
    j, y = normal(60, 10), normal(60, seed=1)
    with pytest.raises(TangentError, match='method="eigen"') as refusal:
        regress(j @ j.T, y)
    assert float(refusal.value.what.split("largest ")[1].rstrip(".")) == pytest.approx(
        float(torch.linalg.eigvalsh(j @ j.T)[-1]), rel=1e-2
    )


def test_mixed_precision_reaches_float64_accuracy_or_refuses() -> None:
    """Conditioning 1e6: float32 alone would have no digit. At 1e13 there is nothing to refine."""
    y = normal(80)
    good = with_spectrum(torch.logspace(0, -6, 80, dtype=torch.float64))
    fit = regress(good, y, method="mixed")
    assert fit.residual < 1e-10
    torch.testing.assert_close(fit.coefficients[:, 0], torch.linalg.solve(good, y), rtol=1e-5, atol=1e-3)
    hopeless = with_spectrum(torch.logspace(0, -13, 80, dtype=torch.float64))
    with pytest.raises(TangentError, match="cholesky"):
        regress(hopeless, y, method="mixed")


def test_float32_kernels_are_solved_in_float64() -> None:
    kernel, y = with_spectrum(power_law(60)).float(), normal(60)
    exact = kernel.double()
    expected = torch.linalg.solve((exact + exact.T) / 2 + 1e-3 * eye(60), y)
    for method in ("cholesky", "mixed", "eigen", "cg"):
        fit = regress(kernel, y, ridge=1e-3, method=method)  # type: ignore[arg-type]
        torch.testing.assert_close(fit.coefficients[:, 0], expected, rtol=1e-3, atol=1e-2)


def test_the_preconditioner_saves_products() -> None:
    kernel, y = with_spectrum(power_law(400, 2.0)), normal(400)
    with pytest.raises(TangentError, match="rank"):  # 40 products are not enough without its help
        regress(kernel, y, ridge=1e-5, method="cg", rank=1, iterations=40)
    fit = regress(kernel, y, ridge=1e-5, method="cg", rank=200, iterations=40)
    expected = torch.linalg.solve(kernel + 1e-5 * eye(400), y)
    torch.testing.assert_close(fit.coefficients[:, 0], expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


def test_large_operators_go_to_conjugate_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SMALL", 10)
    kernel, y = with_spectrum(power_law(60)), normal(60, 2)
    y[:, 1] = 0
    fit = regress(Operator(kernel), y, ridge=0.01)
    assert fit.method == "cg"
    torch.testing.assert_close(fit.coefficients, torch.linalg.solve(kernel + 0.01 * eye(60), y))
    single = regress(Operator(kernel.float()), y, ridge=0.01)
    assert single.residual < 1e-5


def test_nystrom_is_near_the_best_approximation() -> None:
    values = power_law(300, 2.0)
    kernel = with_spectrum(values)
    low = nystrom(kernel, 60)
    gap = kernel - low.features @ low.features.T
    smallest = float(torch.linalg.eigvalsh(gap)[0])
    assert smallest > -1e-8
    assert float(gap.trace()) < (1 + 30 / 29) * float(values[30:].sum())
    exact = nystrom(LowRank(normal(50, 5)), 10)
    torch.testing.assert_close(exact.read(slice(None), slice(None)), normal(50, 5) @ normal(50, 5).T)
    assert float(nystrom(torch.zeros(4, 4), 2).features.abs().max()) == 0
    for k in (0, 301, True):
        with pytest.raises(TangentError):
            nystrom(kernel, k)


def test_refusals() -> None:
    unit, y = torch.eye(3), torch.ones(3)
    fit = regress(unit, y)
    full = regress(torch.eye(6).reshape(3, 2, 3, 2), torch.ones(3, 2))
    assert "3 points" in repr(fit)
    cases = [
        lambda: regress(unit, torch.ones(4)),
        lambda: regress(unit, torch.ones(3, 2, 2)),
        lambda: regress(torch.eye(6).reshape(3, 2, 3, 2), y),
        lambda: regress(unit, y, f0=torch.ones(3, 1)),
        lambda: regress(unit, y * float("nan")),
        lambda: regress(unit, y, ridge=-1.0),
        lambda: regress(unit, y, ridge=float("nan")),
        lambda: regress(unit, y, method="lu"),  # type: ignore[arg-type]
        lambda: regress(unit, torch.tensor([0, 1, 2])),
        lambda: fit.predict(torch.ones(2, 4)),
        lambda: fit.predict(torch.ones(3)),
        lambda: fit.predict(unit, f0=torch.ones(2)),
        lambda: full.predict(torch.ones(3, 6)),
        lambda: LowRank(torch.ones(3)),
        lambda: LowRank(torch.tensor([[float("inf")]])),
    ]
    for case in cases:
        with pytest.raises(TangentError):
            case()


def test_a_prior_mean_is_not_forgotten() -> None:
    """Predictions without f0 would be the difference from the network alone."""
    kernel, y, f0 = torch.eye(3).double(), torch.tensor([1.0, 2, 3]), torch.full((3,), 5.0)
    for fit in (regress(kernel, y, f0=f0), ridge_path(kernel, y, [0.0, 1.0], f0=f0).regression(0.0)):
        with pytest.raises(TangentError, match="prior mean"):
            fit.predict(kernel)
        torch.testing.assert_close(fit.predict(kernel, f0=f0), y.double())
        torch.testing.assert_close(fit.predict(kernel, f0=0), (y - f0).double())


def test_class_numbers_are_no_targets() -> None:
    kernel = torch.eye(4)
    for kind in (torch.int64, torch.uint8):
        with pytest.raises(TangentError, match=r"integers of 3 values[\s\S]*one_hot"):
            ridge_path(kernel, torch.tensor([0, 1, 2, 1], dtype=kind))
    signs = torch.tensor([-1, 1, 1, -1])
    torch.testing.assert_close(regress(kernel, signs).predict(kernel), signs.double())
    classes = torch.nn.functional.one_hot(torch.tensor([0, 1, 2, 1]))
    torch.testing.assert_close(regress(kernel, classes).predict(kernel), classes.double())


def test_the_smallest_rank() -> None:
    kernel, y = with_spectrum(power_law(30)), normal(30)
    found = regress(kernel, y, ridge=0.1, method="cg", rank=1).coefficients
    torch.testing.assert_close(found[:, 0], torch.linalg.solve(kernel + 0.1 * eye(30), y), rtol=0, atol=1e-8)


@pytest.mark.parametrize(("error", "warns"), [(0.7e-6, False), (1.5e-6, True)])
def test_a_residual_above_one_millionth_is_reported(
    error: float, warns: bool, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    solve = module.SOLVERS["cholesky"]

    def inexact(system: module.System) -> Solved:
        found = solve(system)
        return replace(found, coefficients=found.coefficients * (1 + error))

    monkeypatch.setitem(module.SOLVERS, "cholesky", inexact)
    fit = regress(with_spectrum(power_law(20)), normal(20), ridge=0.1, method="cholesky")
    assert fit.residual == pytest.approx(error, rel=1e-6)
    assert bool(recwarn.list) is warns
