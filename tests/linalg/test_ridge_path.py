"""Leave-one-out and generalized cross-validation against doing it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from tangentlab import TangentError
from tangentlab.linalg import LowRank, eigh, regress, ridge_path
from tests.linalg.problems import eye, power_law, times, with_spectrum


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def left_out(kernel: Tensor, gap: Tensor, ridge: float) -> float:
    """Fit without each sample in turn."""
    errors = []
    for i in range(len(kernel)):
        keep = [j for j in range(len(kernel)) if j != i]
        a = torch.linalg.solve(kernel[keep][:, keep] + ridge * eye(len(keep)), gap[keep])
        errors.append((kernel[i, keep] @ a - gap[i]).square())
    return float(torch.stack(errors).mean())


@pytest.mark.parametrize("columns", [1, 3])
def test_against_brute_force(columns: int) -> None:
    kernel, y, f0 = with_spectrum(power_law(25)), normal(25, columns), normal(25, columns, seed=1)
    path = ridge_path(kernel, y, [1.0, 0.0, 1e-3], f0=f0)
    assert path.ridges.tolist() == [0, 1e-3, 1]
    for row, ridge in enumerate(path.ridges.tolist()):
        assert float(path.leave_one_out[row]) == pytest.approx(left_out(kernel, y - f0, ridge), rel=1e-7)
        a = torch.linalg.solve(kernel + ridge * eye(25), y - f0)
        hat = kernel @ torch.linalg.inv(kernel + ridge * eye(25))
        rest = torch.eye(25, dtype=torch.float64) - hat
        assert float(path.degrees[row]) == pytest.approx(float(hat.trace()))
        assert float(path.train[row]) == pytest.approx(float((rest @ (y - f0)).square().mean()), abs=1e-12)
        assert float(path.norms[row]) == pytest.approx(float((a * (kernel @ a)).sum().sqrt()))
        if ridge:
            gcv = (rest @ (y - f0)).square().sum(0).mean() / 25 / (rest.trace() / 25).square()
            assert float(path.gcv[row]) == pytest.approx(float(gcv), rel=1e-8)


def test_low_rank_and_singular_kernels_agree() -> None:
    j, y = normal(30, 6), normal(30, 2, seed=1)
    thin, full, again = (ridge_path(k, y, [0.1, 1.0]) for k in (LowRank(j), j @ j.T, eigh(j @ j.T)))
    for name in ("leave_one_out", "gcv", "train", "degrees", "norms"):
        torch.testing.assert_close(getattr(thin, name), getattr(full, name))
        torch.testing.assert_close(getattr(again, name), getattr(full, name))
    assert float(full.leave_one_out[0]) == pytest.approx(left_out(j @ j.T, y, 0.1))
    fit = thin.regression(1.0)
    torch.testing.assert_close(fit.coefficients, regress(j @ j.T, y, ridge=1.0).coefficients)


def test_the_best_ridge_fits() -> None:
    """Noisy targets from the kernel's own functions: neither end of the path wins, and the fit is at hand."""
    kernel = with_spectrum(power_law(80))
    y = kernel @ normal(80) + 0.3 * normal(80, seed=1)
    path = ridge_path(kernel, y)
    assert len(path.ridges) == 31
    assert float(path.ridges[0]) < path.best < float(path.ridges[-1])
    assert path.best == float(path.ridges[path.leave_one_out.argmin()])
    assert path.best_by_gcv == float(path.ridges[path.gcv.argmin()])
    fit = path.regression()
    torch.testing.assert_close(fit.coefficients, regress(kernel, y, ridge=path.best).coefficients)
    assert fit.residual < 1e-10
    assert fit.predict(kernel[:3]).shape == (3,)
    assert list(path.table.columns) == ["ridge", "leave_one_out", "gcv", "train", "degrees", "norm"]
    np.testing.assert_array_equal(path.table["gcv"], path.gcv)
    assert "31 ridges" in repr(path)


def test_full_kernels_leave_out_one_output_of_one_sample() -> None:
    kernel, y = with_spectrum(power_law(12)), normal(6, 2)
    path = ridge_path(kernel.reshape(6, 2, 6, 2), y, [0.2])
    assert float(path.leave_one_out[0]) == pytest.approx(left_out(kernel, y.reshape(-1), 0.2))
    assert path.regression().predict(kernel.reshape(6, 2, 6, 2)).shape == (6, 2)


def test_a_ridge_may_lift_an_indefinite_kernel() -> None:
    kernel, y = with_spectrum(power_law(20)) - 0.1 * eye(20), normal(20)
    path = ridge_path(kernel, y, [0.5, 2.0])
    assert float(path.leave_one_out[0]) == pytest.approx(left_out(kernel, y, 0.5))
    torch.testing.assert_close(path.regression(0.5).coefficients[:, 0], torch.linalg.solve(kernel + 0.5 * eye(20), y))


def test_refusals() -> None:
    j, y = normal(10, 3), normal(10)
    regular = with_spectrum(power_law(10))
    with pytest.raises(TangentError, match="rank 3"):
        ridge_path(j @ j.T, y, [0.0, 1.0])
    with pytest.raises(TangentError, match="rank 3"):
        ridge_path(j @ j.T, y, [1.0]).regression(0.0)
    with pytest.raises(TangentError, match="ridge="):
        ridge_path(regular - eye(10), y, [0.1, 10.0])
    with pytest.raises(TangentError, match="4 of 10"):
        ridge_path(eigh(regular, 4), y)
    for ridges in ([], [-1.0], [float("nan")]):
        with pytest.raises(TangentError, match="ridges"):
            ridge_path(regular, y, ridges)


def test_the_ridges_that_are_tried_by_default() -> None:
    """From 1e-9 of the largest eigenvalue, or from the rounding of the kernel, to the largest eigenvalue."""
    kernel, y = 3 * with_spectrum(power_law(40)), normal(40)
    ridges = ridge_path(kernel, y).ridges
    expected = np.geomspace(3e-9, 3, 31)
    np.testing.assert_allclose(ridges, expected, rtol=1e-9)
    np.testing.assert_allclose(ridge_path(kernel.float(), y).ridges, np.geomspace(3 * 2.0**-23, 3, 31), rtol=1e-4)
    np.testing.assert_allclose(ridge_path(times(kernel, 200), y).ridges, expected * 2.0**200, rtol=1e-9)
    np.testing.assert_allclose(ridge_path(eigh(times(kernel, -200)), y).ridges, expected * 2.0**-200, rtol=1e-9)


def test_a_kernel_of_zeros_predicts_nothing() -> None:
    y = normal(6, 2)
    path = ridge_path(torch.zeros(6, 6), y)
    np.testing.assert_allclose(path.ridges, np.geomspace(1e-9, 1, 31), rtol=1e-9)
    for error in (path.leave_one_out, path.gcv, path.train):
        torch.testing.assert_close(error, y.square().mean().expand(31))
    assert not path.degrees.any()
    assert not path.norms.any()


@pytest.mark.parametrize("ridge", [0.0, 1e-3, 1e12, 1e18, 1e24, 1e40])
@pytest.mark.parametrize("features", [20, 6])
def test_a_fit_of_the_path_is_that_of_regress(ridge: float, features: int) -> None:
    """Columns of very different size; a ridge may be far above the kernel."""
    j, y = normal(20, 60)[:, : 3 * features], normal(20, 3, seed=1) * torch.tensor([1e-30, 1.0, 1e30])
    if features < 20:
        if ridge == 0:
            return  # singular, which is refused
        path = ridge_path(LowRank(j), y, [ridge])
    else:
        path = ridge_path(j @ j.T, y, [ridge])
    fit, other = path.regression(), regress(j @ j.T, y, ridge=ridge, method="cholesky")
    assert (fit.method, fit.rank, fit.ridge, fit.cutoff) == ("eigen", 20, ridge, 0.0)
    assert fit.residual < 1e-6
    for one, two in ((fit.coefficients, other.coefficients), (fit.norm, other.norm)):
        torch.testing.assert_close(one / two.abs().max(0).values, two / two.abs().max(0).values, rtol=1e-6, atol=1e-8)
    root = float(other.norm.square().sum().sqrt())
    assert float(path.norms[0]) == pytest.approx(root, rel=1e-6)
    rest = y - (j @ j.T) @ other.coefficients
    assert float(path.train[0]) == pytest.approx(float(rest.square().mean()), rel=1e-6, abs=1e-9 * float(y.max()) ** 2)


def test_a_ridge_that_misses_what_a_singular_kernel_needs() -> None:
    """The refusal names the rank, the smallest eigenvalue and a ridge that works."""
    kernel, y = with_spectrum(torch.linspace(0, 4, 20, dtype=torch.float64)), normal(20)
    with pytest.raises(TangentError, match=r"size 20 has rank 19") as refusal:
        ridge_path(times(kernel, 200), y, [0.0])
    ridge = float(refusal.value.remedy.split("ridge=")[1].split(";")[0])
    assert ridge == pytest.approx(4e-8 * 2.0**200, rel=1e-2)
    assert bool(torch.isfinite(ridge_path(times(kernel, 200), y, [ridge]).leave_one_out).all())
    lifted = ridge_path(with_spectrum(torch.linspace(-1e-14, 4, 20, dtype=torch.float64)), y, [1e-3])
    assert float(lifted.degrees[0]) == pytest.approx(
        float((torch.linspace(0, 4, 20) / (torch.linspace(0, 4, 20) + 1e-3)).sum()), rel=1e-6
    )


def test_ridges_in_any_form_and_order() -> None:
    kernel, y = with_spectrum(power_law(10)), normal(10)
    for ridges in ([2.0, 0.5], torch.tensor([[2.0], [0.5]]), np.array([0.5, 2.0]), (0.5, 2)):
        assert ridge_path(kernel, y, ridges).ridges.tolist() == [0.5, 2.0]  # type: ignore[arg-type]
    for ridges in ([0.5, float("inf")], [0.5, -1e-300], "many", [None]):
        with pytest.raises(TangentError, match="ridges"):
            ridge_path(kernel, y, ridges)  # type: ignore[arg-type]


def test_a_path_in_a_notebook() -> None:
    path = ridge_path(with_spectrum(power_law(10)), normal(10), [0.25, 0.5])
    page = path._repr_html_()
    assert "RidgePath" in page
    assert "best by leave-one-out" in page
    assert "<th>0</th>" not in page
    for name, value in path.table.iloc[1].items():
        assert str(name) in page
        assert f"{value:.4g}" in page
    assert repr(path).startswith("RidgePath(2 ridges from 0.25 to 0.5; best by leave-one-out ")


def test_indefinite_kernels_are_told_from_singular_ones() -> None:
    indefinite = with_spectrum(torch.cat([power_law(9), torch.tensor([-0.5])]))
    with pytest.raises(TangentError, match="no negative eigenvalues"):
        ridge_path(indefinite, torch.ones(10, dtype=torch.float64), [0.1])
    thin = LowRank(torch.randn(10, 3, dtype=torch.float64))
    with pytest.raises(TangentError, match="rank 3 and smallest eigenvalue 0"):
        ridge_path(thin, torch.ones(10, dtype=torch.float64), [0.0])


def test_a_ridge_below_a_negative_rounding_error_is_refused() -> None:
    """An eigenvalue of -1e-17 is zero; with a ridge below it, K + ridge is not positive."""
    spectrum = eigh(with_spectrum(power_law(10)))
    spectrum = replace(spectrum, values=torch.cat([spectrum.values[:-1], torch.tensor([-1e-17])]))
    with pytest.raises(TangentError, match="too small"):
        ridge_path(spectrum, torch.ones(10, dtype=torch.float64), [1e-18])
