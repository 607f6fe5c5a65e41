"""Measures of kernels and functions of every scale, and of many entries: the unit problem's numbers, or a refusal."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tangentlab import TangentError, analysis
from tangentlab.training import GradientFlow
from tests.analysis.problems import rows
from tests.linalg.problems import attempt, close, power_law, times, with_spectrum

KERNEL, OTHER = with_spectrum(power_law(12, 0.5)), with_spectrum(power_law(12, 0.8), seed=1)
F = rows(12, 2)


@settings(max_examples=60, deadline=None)
@given(kernel=st.integers(-1000, 1000), function=st.integers(-1000, 1000))
def test_measures_of_any_scale(kernel: int, function: int) -> None:
    k, f = times(KERNEL, kernel), times(F, function)
    powers = {"alignment": kernel + 2 * function, "rkhs_norm": 2 * function - kernel}
    powers |= {"lemma1_bound": 2 * function - kernel, "generalization_bound": function}
    for name, power in powers.items():
        measure = getattr(analysis, name)
        found, refusal = attempt(lambda measure=measure: measure(k, f))
        if refusal:
            assert "range of float64" in refusal
            assert abs(power) > 900 or (name != "alignment" and abs(function - kernel) > 900)
        else:
            close(times(found, -power), measure(KERNEL, F), 1e-8)
    close(analysis.energy_concentration(k, f, k=3), analysis.energy_concentration(KERNEL, F, k=3), 1e-9)


@pytest.mark.parametrize("scale", [-1000, -600, 600, 1000])
def test_comparisons_of_any_scale(scale: int) -> None:
    one, two = times(KERNEL, scale), times(OTHER, scale)
    assert analysis.kernel_distance(one, two) == pytest.approx(analysis.kernel_distance(KERNEL, OTHER), rel=1e-12)
    assert analysis.kernel_distance(one, OTHER) == pytest.approx(analysis.kernel_distance(KERNEL, OTHER), rel=1e-12)
    assert analysis.rotation(one, two, 3).overlap == pytest.approx(analysis.rotation(KERNEL, OTHER, 3).overlap)
    full, pseudo = with_spectrum(power_law(12, 0.5)).reshape(6, 2, 6, 2), with_spectrum(power_law(6))
    found, expected = analysis.agreement(times(full, scale), times(pseudo, scale)), analysis.agreement(full, pseudo)
    for name in ("off_diagonal", "frobenius_difference"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-9)
    for name in ("frobenius", "lambda_max", "lambda_min", "condition"):
        a, b = getattr(found, name), getattr(expected, name)
        assert a.difference == pytest.approx(b.difference, rel=1e-6)
    assert float(times(found.frobenius.pntk, -scale)) == pytest.approx(expected.frobenius.pntk)
    cross = with_spectrum(power_law(12, 0.3))
    test = analysis.predicted_error(one, F, [float(times(0.5, scale))], test=(times(cross, scale), F))
    unit = analysis.predicted_error(KERNEL, F, [0.5], test=(cross, F))
    np.testing.assert_allclose(test.table[["gcv", "leave_one_out", "test_error"]],
                               unit.table[["gcv", "leave_one_out", "test_error"]], rtol=1e-9)  # fmt: skip


@pytest.mark.parametrize("kernel", [-1000, -600, 0, 600, 1000])
@pytest.mark.parametrize("loss", [-500, 0, 500])
def test_gradient_flow_of_any_scale(kernel: int, loss: int) -> None:
    """exp(-c K t) depends on the product alone, however small or large its factors are."""
    time = -kernel - loss
    if abs(time) > 1020:
        return
    unit = GradientFlow(KERNEL, F)
    flow = GradientFlow(times(KERNEL, kernel), F, loss_scale=2.0**loss)
    close(flow.predict(2.0**time), unit.predict(1.0), 1e-12)
    close(flow.predict(2.0**time, times(OTHER, kernel)), unit.predict(1.0, OTHER), 1e-10)
    close(flow.predict(math.inf, times(OTHER, kernel)), unit.predict(math.inf, OTHER), 1e-10)
    assert flow.rank == 12
    assert float(times(flow.largest_stable_lr, -time)) == pytest.approx(unit.largest_stable_lr)
    close(times(flow.eigenvalues, -kernel), unit.eigenvalues, 1e-12)
    close(flow.predict_after(5, 2.0**time), unit.predict_after(5, 1.0), 1e-12)
    assert flow.loss(2.0**time) == pytest.approx(unit.loss(1.0) * 2.0**loss)
    big = GradientFlow(KERNEL, times(F, 800))
    close(times(big.predict(1.0), -800), unit.predict(1.0), 1e-12)
    with pytest.raises(TangentError, match="range of float64"):
        big.loss(1.0)


def test_the_distance_of_kernels_that_hardly_differ() -> None:
    """1 - cosine has lost every digit where kernels differ by 1e-9; half the squared chord has not."""
    for step in (1e-3, 1e-6, 1e-9):
        other = KERNEL + step * OTHER
        a, b = KERNEL.flatten(), OTHER.flatten()
        across = b - a * (a @ b) / (a @ a)  # what is not along the kernel itself
        expected = float((step * across).norm() / a.norm()) ** 2 / 2
        assert analysis.kernel_distance(KERNEL, other) == pytest.approx(expected, rel=1e-2 if step > 1e-4 else 1e-5)
    assert analysis.kernel_distance(KERNEL, KERNEL) == 0
    assert analysis.kernel_distance(KERNEL, -KERNEL) == pytest.approx(2)


@pytest.mark.parametrize("off", [1e-3, 1e-7, 1e-12])
def test_small_off_diagonal_blocks_are_not_lost(off: float) -> None:
    pseudo = with_spectrum(power_law(5))
    full = torch.einsum("ij,ab->iajb", pseudo, torch.eye(2, dtype=torch.float64))
    full[:, 0, :, 1] = full[:, 1, :, 0] = off * pseudo
    found = analysis.agreement(full, pseudo)
    assert found.off_diagonal == pytest.approx(off, rel=1e-9)
    assert found.frobenius_difference == pytest.approx(off / math.sqrt(1 + off**2), rel=1e-9)


class _Big:
    """A float32 kernel of n^2 equal entries, as one on disk."""

    dtype, device, tile = torch.float32, torch.device("cpu"), 2000

    def __init__(self, n: int, entry: float) -> None:
        self.shape, self.entry = (n, n), torch.tensor([[entry]])

    def read(self, rows: slice, columns: slice) -> Tensor:
        start, stop, _ = rows.indices(self.shape[0])
        left, right, _ = columns.indices(self.shape[0])
        return self.entry.expand(stop - start, right - left)

    def diagonal(self) -> Tensor:
        return self.entry[0].expand(self.shape[0])

    def __matmul__(self, block: Tensor) -> Tensor:
        raise NotImplementedError


def test_sums_over_many_entries() -> None:
    """1e8 entries of float32, 0.1 being none that float32 adds up exactly."""
    n = 10_000
    one, two = _Big(n, 0.1), _Big(n, 0.3)
    assert analysis.kernel_distance(one, two) == pytest.approx(0, abs=1e-12)
    ones: Any = torch.ones(n, dtype=torch.float64)
    assert float(analysis.alignment(one, ones)) == pytest.approx(float(torch.tensor(0.1).double()), rel=1e-12)
