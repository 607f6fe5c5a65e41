"""Kernels that are none, or not quite: indefinite, singular, zero, not symmetric, of few digits, not finite."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tangentlab import NTKOperator, TangentError, linalg
from tangentlab.training import GradientFlow
from tests.linalg.problems import attempt, close, eye, forms, power_law, with_spectrum

METHODS = ["auto", "cholesky", "mixed", "eigen", "cg"]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [1e-10, 1e-8, 1e-6, 1e-4, 1e-2])
def test_float64_kernels_below_zero_are_refused(method: Any, size: float) -> None:
    """At 1e-4 of the largest eigenvalue half of the target was left out silently."""
    values = torch.logspace(0, -8, 40, dtype=torch.float64)
    values[-1] = -size
    kernel, y = with_spectrum(values), normal(40)
    with pytest.raises(TangentError, match="ridge="):
        linalg.regress(kernel, y, method=method)
    fit, refusal = attempt(lambda: linalg.regress(kernel, y, method=method, ridge=3 * size))
    if refusal:  # the iterations may find the conditioning too bad
        assert method in ("mixed", "cg")
        assert size < 1e-6
    else:
        expected = torch.linalg.solve(kernel + 3 * size * eye(40), y)
        close(fit.coefficients[:, 0], expected, 1e-5)
        assert fit.residual < 1e-6
    with pytest.raises(TangentError, match="ridge="):  # K + ridge still is not positive
        linalg.regress(kernel, y, method=method, ridge=0.5 * size)
    for case in (
        lambda: linalg.ridge_path(kernel, y, [0.5 * size]),
        lambda: GradientFlow(kernel, y),
        lambda: linalg.extremes(kernel),
        lambda: linalg.condition_number(kernel),
        lambda: linalg.singular_values(kernel),
    ):
        with pytest.raises(TangentError, match="ridge="):
            case()
    assert float(linalg.eigh(kernel).values[-1]) == pytest.approx(-size, rel=1e-4)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(2, 40),
    negative=st.floats(-9, -2),
    low=st.floats(-9, 0),
    method=st.sampled_from(METHODS),
    dtype=st.sampled_from([torch.float64, torch.float32]),
    ridge=st.sampled_from([0.0, 1e-9, 1e-7, 1e-5, 1e-3]),
    seed=st.integers(0, 99),
)
def test_every_answer_meets_its_equation_or_says_so(
    n: int, negative: float, low: float, method: Any, dtype: torch.dtype, ridge: float, seed: int
) -> None:
    values = torch.logspace(0, low, n, dtype=torch.float64)
    values[-1] = -(10.0**negative)
    kernel, y = with_spectrum(values, seed).to(dtype), normal(n, 2, seed=seed)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            fit = linalg.regress(kernel, y, ridge=ridge, method=method)
        except TangentError:
            return
    exact = (kernel.double() + kernel.double().T) / 2
    gap = exact @ fit.coefficients + ridge * fit.coefficients - y
    residual = float((gap.norm(dim=0) / y.norm(dim=0)).max())
    assert fit.residual == pytest.approx(residual, rel=1e-3, abs=1e-7)
    told = any("residual" in str(w.message) and f"{residual:.2g}" in str(w.message) for w in said)
    if fit.rank == n:
        assert told or residual < 1e-5
        return
    # What rounding of this precision alone would not have left out.
    found, vectors = torch.linalg.eigh(exact)
    usual = max(n * torch.finfo(torch.float64).eps, torch.finfo(dtype).eps) * float(found[-1])
    doubtful = (found.abs() > 1.01 * usual) & (found <= 0.99 * fit.cutoff)
    lost = float(((vectors[:, doubtful].T @ y).norm(dim=0) / y.norm(dim=0)).max())
    assert told or lost < 1.01e-3


def test_float32_kernels_below_zero_by_rounding_are_answered_with_what_was_done() -> None:
    values = torch.logspace(0, -4, 400, dtype=torch.float64)
    values[-1] = -1e-5
    kernel, y = with_spectrum(values).float(), normal(400, seed=5)
    with pytest.warns(RuntimeWarning, match=r"residual[\s\S]*eigenvalue"):
        fit = linalg.regress(kernel, y)
    assert fit.rank < 400
    assert fit.cutoff == pytest.approx(2e-5, rel=0.1)
    assert fit.residual > 1e-3
    values[-1] = -1e-3
    with pytest.raises(TangentError, match="float64"):
        linalg.regress(with_spectrum(values).float(), y)


@settings(max_examples=40, deadline=None)
@given(n=st.integers(2, 60), missing=st.integers(1, 30), seed=st.integers(0, 999), method=st.sampled_from(METHODS))
def test_a_singular_kernel_gives_the_least_norm_or_a_refusal(n: int, missing: int, seed: int, method: Any) -> None:
    """Targets in the range of the kernel, so that a residual tells nothing: "mixed" gave twice the least norm."""
    width = max(1, n - missing)
    j = normal(n, width, seed=seed)
    y = j @ normal(width, 1, seed=seed + 1)
    kernel = j @ j.T
    if float(torch.linalg.cond(j)) > 1e3:
        return
    try:
        fit = linalg.regress(kernel, y, method=method)
    except TangentError:
        assert method in ("cholesky", "mixed", "cg")
        return
    least = torch.linalg.pinv(j @ j.T, rcond=1e-12, hermitian=True) @ y
    torch.testing.assert_close(fit.coefficients, least, rtol=1e-5, atol=1e-6 * float(least.abs().max()))
    if method in ("auto", "eigen"):
        assert fit.rank == width


@pytest.mark.parametrize("width", [20, 39, 59])
def test_mixed_precision_refuses_singular_kernels(width: int) -> None:
    j = normal(60, width)
    with pytest.raises(TangentError, match="ridge="):
        linalg.regress(j @ j.T, j @ normal(width), method="mixed")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_zero_kernels_and_zero_rows(n: int, dtype: torch.dtype) -> None:
    zero, y = torch.zeros(n, n, dtype=dtype), torch.ones(n)
    fit = linalg.regress(zero, y)
    assert (fit.rank, fit.residual) == (0, 1.0)
    assert torch.equal(fit.coefficients, torch.zeros(n, 1, dtype=torch.float64))
    assert float(fit.norm) == 0
    for method in METHODS:
        torch.testing.assert_close(
            linalg.regress(zero, y, ridge=0.5, method=method).coefficients, 2 * torch.ones(n, 1).double()
        )
        if method in ("cholesky", "mixed", "cg"):
            with pytest.raises(TangentError, match=r"ridge=[1-9]"):
                linalg.regress(zero, y, method=method)
    assert float(linalg.eigh(zero).values.abs().max()) == 0
    assert linalg.condition_number(zero) == float("inf")
    assert float(linalg.singular_values(zero).abs().max()) == 0
    assert float(linalg.nystrom(zero, 1).features.abs().max()) == 0
    if n > 2:
        kernel = torch.block_diag(with_spectrum(power_law(n - 1)), torch.zeros(1, 1)).to(dtype)
        fit = linalg.regress(kernel, y)
        assert fit.rank == n - 1
        assert float(fit.coefficients[-1].abs()) < 1e-5
        torch.testing.assert_close(fit.predict(kernel)[:-1], y[:-1].double(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_one_point(method: Any) -> None:
    fit = linalg.regress(torch.tensor([[4.0]]), torch.tensor([2.0]), method=method)
    assert float(fit.coefficients) == pytest.approx(0.5)
    assert float(fit.norm) == pytest.approx(1.0)
    path = linalg.ridge_path(torch.tensor([[4.0]]), torch.tensor([2.0]), [4.0])
    assert float(path.leave_one_out) == pytest.approx(4.0)
    assert linalg.extremes(torch.tensor([[4.0]])).condition == 1


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("form", ["tensor", "array", "operator", "readable", "scipy", "part"])
def test_entries_that_are_not_finite(bad: float, form: str) -> None:
    kernel = eye(5)
    kernel[3, 1] = kernel[1, 3] = bad
    source = linalg.Part(kernel, 0, 5) if form == "part" else forms(kernel)[form]
    calls = [lambda m=m: linalg.regress(source, torch.ones(5), method=m) for m in METHODS]
    calls += [
        lambda: linalg.eigh(source),
        lambda: linalg.extremes(source),
        lambda: linalg.nystrom(source, 2),
        lambda: linalg.eigh(source, 2),
    ]
    calls += [lambda: linalg.spectral_density(source), lambda: linalg.ridge_path(source, torch.ones(5))]
    for call in calls:
        with pytest.raises(TangentError, match=r"NaN|finite"):
            call()
    with pytest.raises(TangentError, match=r"NaN|finite"):
        linalg.regress(eye(5), torch.ones(5)).predict(kernel)


@pytest.mark.parametrize("form", ["tensor", "array", "operator", "scipy", "part"])
@pytest.mark.parametrize("method", METHODS)
def test_matrices_that_are_not_symmetric(form: str, method: Any) -> None:
    kernel = with_spectrum(power_law(20))
    kernel[0, 1] += 1e-3
    source = linalg.Part(kernel, 0, 20) if form == "part" else forms(kernel)[form]
    for call in (
        lambda: linalg.regress(source, torch.ones(20), ridge=0.1, method=method),
        lambda: linalg.nystrom(source, 3),
    ):
        with pytest.raises(TangentError, match="transpose"):
            call()


def test_an_operator_of_two_sets_of_samples_is_no_kernel() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).double()
    operator = NTKOperator(model, normal(6, 3), normal(6, 3, seed=1))
    for call in (
        lambda: linalg.regress(operator, torch.ones(6), ridge=0.1, method="cg"),
        lambda: linalg.nystrom(operator, 2),
    ):
        with pytest.raises(TangentError, match="transpose"):
            call()


@pytest.mark.parametrize("method", METHODS)
def test_the_symmetric_part_is_what_every_method_uses(method: Any) -> None:
    """Rounding may leave a kernel slightly asymmetric, and a Cholesky factor reads one triangle."""
    kernel = with_spectrum(torch.logspace(0, -5, 30, dtype=torch.float64)).float()
    kernel = kernel + 3e-6 * torch.randn(30, 30, generator=torch.Generator().manual_seed(0)).tril(-1)
    exact, y = kernel.double(), normal(30)
    expected = torch.linalg.solve((exact + exact.T) / 2 + 1e-4 * eye(30), y)
    fit = linalg.regress(kernel, y, ridge=1e-4, method=method)
    torch.testing.assert_close(fit.coefficients[:, 0], expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))
    assert fit.residual < 1e-8


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_kernels_of_few_digits_know_it(dtype: torch.dtype) -> None:
    """Rounding of half precision must not become directions: as many as the features have, not one more."""
    j = normal(60, 5)
    kernel = (j @ j.T).to(dtype)
    spectrum = linalg.eigh(kernel)
    assert spectrum.dtype == dtype
    assert int((linalg.singular_values(kernel) > 0).sum()) == 5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = linalg.regress(kernel, j @ normal(5, seed=1))
    assert fit.rank == 5
    assert fit.residual < 0.05
    assert linalg.condition_number(kernel) == float("inf")


@pytest.mark.parametrize("kind", [torch.int64, torch.int32, torch.uint8, torch.bool, np.int64, np.float16])
def test_other_types_of_numbers(kind: Any) -> None:
    matrix = torch.diag(torch.tensor([1, 1, 1]))
    kernel = matrix.numpy().astype(kind) if not isinstance(kind, torch.dtype) else matrix.to(kind)
    torch.testing.assert_close(
        linalg.regress(kernel, torch.ones(3)).coefficients, torch.ones(3, 1, dtype=torch.float64)
    )
    assert linalg.eigh(kernel).values.tolist() == [1, 1, 1]
    whole = torch.tensor([[2, 1], [1, 3]])
    torch.testing.assert_close(
        linalg.regress(whole, torch.ones(2)).coefficients[:, 0],
        torch.linalg.solve(whole.double(), torch.ones(2).double()),
    )


def test_noise_is_no_effective_rank() -> None:
    j = normal(200, 3).float()
    values = linalg.eigh(j @ j.T).values
    expected = linalg.effective_rank(torch.linalg.svdvals(j.double()))
    assert linalg.effective_rank(eigenvalues=values) == pytest.approx(expected, rel=1e-4)


def test_residuals_of_a_path_are_those_of_the_kernel() -> None:
    kernel, y = with_spectrum(power_law(30)), normal(30)
    fit = linalg.ridge_path(kernel, y, [0.1]).regression(0.1)
    gap = kernel @ fit.coefficients[:, 0] + 0.1 * fit.coefficients[:, 0] - y
    assert fit.residual == pytest.approx(float(gap.norm() / y.norm()), abs=1e-12)
    thin = linalg.ridge_path(linalg.LowRank(normal(30, 4)), y, [0.1]).regression(0.1)
    assert thin.residual < 1e-12


@pytest.mark.parametrize("columns", [1, 3])
def test_float32_products_are_summed_in_float64(columns: int) -> None:
    """Rows of 200,000 positive entries, as views of a few: a plain float32 product loses four digits."""
    n = 200_000
    row = torch.rand(1, 1, generator=torch.Generator().manual_seed(0))
    matrix, block = row.expand(4, n), torch.rand(n, columns, generator=torch.Generator().manual_seed(1)).double()
    from tangentlab.linalg._source import float64_product

    expected = float(row) * block.float().double().sum(0)
    found = float64_product(matrix, block)
    assert float(((found - expected) / expected).abs().max()) < 1e-7


@pytest.mark.parametrize("size", [1e-8, 1e-3, 0.5])
def test_nystrom_refuses_indefinite_kernels(size: float) -> None:
    """That K - F F^T is positive semidefinite has no meaning there."""
    values = power_law(30)
    values[-3:] = -size
    with pytest.raises(TangentError, match="positive semidefinite"):
        linalg.nystrom(with_spectrum(values), 30)
    fit = linalg.regress(with_spectrum(values), normal(30), ridge=1.0, method="cg")  # where it only preconditions
    assert fit.residual < 1e-9


@pytest.mark.parametrize(
    "options",
    [
        {"tolerance": -1.0},
        {"tolerance": 0.0},
        {"tolerance": 1.0},
        {"tolerance": float("nan")},
        {"tolerance": 2.0},
        {"rank": 0},
        {"rank": 1.5},
        {"iterations": 0},
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(TangentError, match=next(iter(options))):
        linalg.regress(eye(4), torch.ones(4), ridge=0.1, method="cg", **options)


@pytest.mark.parametrize("ridges", [["a"], [None], "loo", [1j], [[1.0], [1.0, 2.0]]])
def test_paths_of_no_ridges(ridges: Any) -> None:
    with pytest.raises(TangentError, match="ridges"):
        linalg.ridge_path(eye(4), torch.ones(4), ridges)


def test_a_cross_kernel_of_other_outputs_is_refused() -> None:
    full = with_spectrum(power_law(6)).reshape(3, 2, 3, 2)
    for targets in (torch.ones(3, 2), torch.ones(6)):
        for predict in (
            linalg.regress(full, targets).predict,
            lambda c, t=targets: GradientFlow(full, t).predict(1.0, c),
        ):
            assert torch.as_tensor(predict(full)).numel() == 6
            with pytest.raises(TangentError, match="kernel of"):
                predict(torch.ones(2, 4, 3, 2))
