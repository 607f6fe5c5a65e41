"""Leave-one-out and generalized cross-validation against doing it."""

import numpy as np
import pytest
import torch
from torch import Tensor

from tangentlab import TangentError
from tangentlab.linalg import LowRank, eigh, regress, ridge_path
from tests.linalg.problems import eye, power_law, with_spectrum


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
