"""Systems at the limit of rounding: what is answered, what is refused, and what a warning says."""

import re
import warnings

import pytest
import torch
from torch import Tensor

from tangentlab import TangentError
from tangentlab.linalg import regress
from tangentlab.linalg._lsqr import lsqr
from tests.linalg.problems import power_law, with_spectrum

EPS = torch.finfo(torch.float64).eps


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_kernels_without_negative_eigenvalues_are_answered_without_a_warning() -> None:
    j = normal(30, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        regress(with_spectrum(power_law(30)), normal(30), method="eigen")
        regress(j @ j.T, j @ normal(8), method="eigen")


def test_the_warning_has_the_negative_eigenvalue_and_what_was_left_out() -> None:
    values = torch.logspace(0, -4, 100, dtype=torch.float64)
    values[-2:] = torch.tensor([7e-6, -5e-6])
    kernel = with_spectrum(values).float()
    smallest = float(torch.linalg.eigvalsh(kernel.double())[0])
    with pytest.warns(RuntimeWarning, match="negative eigenvalue") as caught:
        fit = regress(kernel, normal(100), method="eigen")
    said = re.search(r"eigenvalue, (\S+), so that its (\d+) eigenvalues up to (\S+) count", str(caught[0].message))
    assert said is not None
    assert float(said[1]) == pytest.approx(smallest, rel=0.05)
    assert int(said[2]) == 100 - fit.rank == 2
    assert float(said[3]) == pytest.approx(-2 * smallest, rel=0.05)


def test_a_ridge_below_a_negative_rounding_error_is_refused() -> None:
    values = torch.logspace(0, -8, 40, dtype=torch.float64)
    values[-1] = -1e-13
    kernel, y = with_spectrum(values), normal(40)
    with pytest.raises(TangentError, match="ridge="):
        regress(kernel, y, method="eigen", ridge=5e-14)
    with pytest.warns(RuntimeWarning, match="too far apart"):
        assert regress(kernel, y, method="eigen", ridge=2e-13).rank == 40


def test_a_singular_kernel_is_found_with_many_targets() -> None:
    """The smallest eigenvalue is estimated from one random target, whatever the others are."""
    n = 50
    values = torch.ones(n, dtype=torch.float64)
    values[-1] = 0.3 * n * EPS
    kernel = with_spectrum(values)
    weak = torch.linalg.eigh(kernel).eigenvectors[:, :1]
    for count in (1, 900):
        with pytest.raises(TangentError, match="not positive definite"):
            regress(kernel, weak.expand(n, count), method="cholesky")


def test_an_iteration_that_ends_early_names_the_spectrum_with_the_ridge() -> None:
    values = torch.logspace(0, -3, 80, dtype=torch.float64)
    with pytest.raises(TangentError, match="stopped at a relative residual") as refusal:
        regress(with_spectrum(values), normal(80), ridge=0.5, method="cg", rank=1, iterations=2)
    ends = re.search(r"from about (\S+) to ([0-9.]+)", refusal.value.why)
    step = re.search(r"ridge=(\S+) or more", refusal.value.remedy)
    assert ends is not None
    assert step is not None
    assert (float(ends[1]), float(ends[2]), float(step[1])) == pytest.approx((0.501, 1.5, 1e-6), rel=1e-2)


def test_lsqr_takes_no_more_steps_than_there_are_equations() -> None:
    """Without orthogonalization, rounding makes it repeat itself, and digits are lost."""
    n, tolerance = 40, 1e-13
    left, right = (torch.linalg.qr(normal(n, n, seed=seed)).Q for seed in (0, 1))
    a, b = (left * torch.logspace(0, -4, n, dtype=torch.float64)) @ right, normal(n, seed=2)
    steps: list[int] = []

    def tick(count: int = 1, note: str | None = None) -> None:
        steps.append(count)

    found = lsqr(lambda x: a @ x, lambda y: a.T @ y, b, tolerance=tolerance, rounding=0.0, iterations=500, tick=tick)
    assert found.iterations == len(steps) <= n
    assert float((b - a @ found.x).norm()) <= 1e-12 * float(b.norm())
    torch.testing.assert_close(a.T @ found.y, found.x, rtol=1e-9, atol=0)
