"""The ends of spectra that are known, and of kernels against LAPACK."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tangentlab import TangentError
from tangentlab.linalg import LowRank, condition_number, extremes
from tangentlab.linalg import _extremes as module
from tests.linalg.problems import forms, power_law, with_spectrum

N = 1100
"""Above the size up to which everything is decomposed."""


def never(*_: object) -> torch.Tensor:
    raise AssertionError("all eigenvalues were computed")


@pytest.mark.parametrize("form", ["tensor", "array", "readable"])
def test_ends_of_a_power_law_without_the_rest(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "eigenvalues", never)
    found = extremes(forms(with_spectrum(power_law(N)))[form])
    assert found.largest == pytest.approx(1, rel=1e-9)
    assert found.smallest == pytest.approx(N**-1.5, rel=1e-9)
    assert found.condition == pytest.approx(N**1.5, rel=1e-9)


@pytest.mark.parametrize("form", ["operator", "scipy"])
def test_kernels_known_by_their_products(form: str) -> None:
    found = extremes(forms(with_spectrum(power_law(N)))[form])
    assert (found.smallest, found.largest) == (pytest.approx(N**-1.5), pytest.approx(1))


@pytest.mark.parametrize("gap", [1e-2, 1e-5, 0.0])
def test_crowded_small_eigenvalues(gap: float) -> None:
    """The smallest of a hundred that differ by a part in a hundred, in a hundred thousand, and not at all."""
    values = torch.cat([power_law(N - 100) + 1, 1e-4 * (1 + gap * torch.arange(100, dtype=torch.float64))])
    assert extremes(with_spectrum(values)).smallest == pytest.approx(1e-4, rel=1e-6)


@settings(max_examples=15, deadline=None)
@given(n=st.integers(1025, 1200), excess=st.floats(1.01, 3), seed=st.integers(0, 1000), single=st.booleans())
def test_kernels_of_random_features_against_lapack(n: int, excess: float, seed: int, single: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(n, int(n * excess), generator=generator, dtype=torch.float64)
    kernel = (features @ features.T).to(torch.float32 if single else torch.float64)
    values = torch.linalg.eigvalsh(kernel.double())
    found = extremes(kernel, seed=seed)
    assert found.largest == pytest.approx(float(values[-1]), rel=1e-6)
    assert found.smallest == pytest.approx(float(values[0]), rel=1e-6, abs=1e-9 * float(values[-1]))


def test_singular_kernels_have_no_condition_number() -> None:
    j = torch.randn(N, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for kernel in (j @ j.T, LowRank(j), (j @ j.T).float()):
        found = extremes(kernel)
        assert found.condition == condition_number(kernel) == math.inf
        assert abs(found.smallest) < 1e-6 * found.largest
        assert found.largest == pytest.approx(float(torch.linalg.svdvals(j)[0]) ** 2, rel=1e-5)
    full = torch.randn(30, 60, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert extremes(LowRank(full)).condition == pytest.approx(condition_number(full @ full.T))


def test_negative_eigenvalues_are_refused() -> None:
    values = torch.cat([power_law(N - 1), torch.tensor([-0.5], dtype=torch.float64)])
    with pytest.raises(TangentError, match="ridge"):
        extremes(with_spectrum(values))
