"""Singular values of J, effective rank, condition number, trace and spectral density of known matrices."""

import math

import pytest
import torch

from tangentlab import TangentError
from tangentlab.linalg import (
    LowRank,
    condition_number,
    effective_rank,
    eigh,
    singular_values,
    spectral_density,
    trace,
)
from tests.linalg.problems import Operator, forms, power_law, with_spectrum


def jacobian(rows: int, columns: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(dtype)


def test_singular_values_of_an_explicit_jacobian() -> None:
    j = jacobian(20, 50)
    torch.testing.assert_close(singular_values(j @ j.T), torch.linalg.svdvals(j))
    torch.testing.assert_close(singular_values(LowRank(j)), torch.linalg.svdvals(j))
    torch.testing.assert_close(singular_values(eigh(j @ j.T)), torch.linalg.svdvals(j))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_does_not_become_singular_values(dtype: torch.dtype) -> None:
    """More samples than parameters: exactly as many singular values as parameters."""
    j = jacobian(60, 7, dtype)
    found = singular_values(j @ j.T)
    assert int((found > 0).sum()) == 7
    torch.testing.assert_close(found[:7], torch.linalg.svdvals(j.double()), rtol=1e-5, atol=0)


def test_effective_rank_of_known_matrices() -> None:
    assert effective_rank(torch.ones(7)) == pytest.approx(7)
    assert effective_rank([3.0, 0.0, 0.0]) == pytest.approx(1)
    assert effective_rank([5.0] * 4 + [0.0] * 9) == pytest.approx(4)
    p = torch.tensor([0.5, 0.25, 0.25])
    assert effective_rank(10 * p) == pytest.approx(2**1.5)  # an entropy of 1.5 bits
    geometric = 0.5 ** torch.arange(60, dtype=torch.float64)
    assert effective_rank(geometric) == pytest.approx(4)  # an entropy of 2 bits
    assert effective_rank(eigenvalues=geometric.square()) == pytest.approx(4)
    assert effective_rank(eigenvalues=[1.0, -1e-17]) == pytest.approx(1)


def test_effective_rank_refuses() -> None:
    for bad in (lambda: effective_rank(), lambda: effective_rank([1.0], eigenvalues=[1.0])):
        with pytest.raises(TangentError, match="either"):
            bad()
    for values in ([], [0.0, 0.0], [1.0, -1.0], [float("nan")]):
        with pytest.raises(TangentError):
            effective_rank(values)
    with pytest.raises(TangentError, match="ridge"):
        effective_rank(eigenvalues=[1.0, -0.5])


def test_condition_number() -> None:
    matrix = with_spectrum(torch.tensor([8.0, 4, 2], dtype=torch.float64))
    assert condition_number(matrix) == pytest.approx(4)
    assert condition_number(eigh(matrix)) == pytest.approx(4)
    j = jacobian(6, 3)
    assert condition_number(j @ j.T) == math.inf
    assert condition_number(LowRank(j)) == math.inf
    with pytest.raises(TangentError, match="-1"):
        condition_number(with_spectrum(torch.tensor([2.0, -1], dtype=torch.float64)))
    with pytest.raises(TangentError, match="2 of 3"):
        condition_number(eigh(matrix, 2))


@pytest.mark.parametrize("form", ["tensor", "array", "operator", "readable", "scipy"])
def test_trace_is_the_sum_of_eigenvalues(form: str) -> None:
    matrix = with_spectrum(power_law(530))
    assert trace(forms(matrix)[form]) == pytest.approx(float(power_law(530).sum()))


def test_density_counts_eigenvalues() -> None:
    values = torch.tensor([1.0, 0.5, 0.09, 0.05, 1e-6, 0, 0], dtype=torch.float64)
    density = spectral_density(with_spectrum(values), bins=2, floor=1e-2)
    assert density.exact
    torch.testing.assert_close(density.edges, torch.tensor([0.01, 0.1, 1.0], dtype=torch.float64))
    assert density.counts.tolist() == [2, 2]
    assert density.below == 3
    mass = (density.density * density.edges.diff()).sum()
    assert float(mass) == pytest.approx(4 / 7)
    linear = spectral_density(eigh(with_spectrum(values)), bins=4, log=False)
    assert linear.counts.sum() + linear.below == 7
    assert list(linear.to_pandas()["count"]) == linear.counts.tolist()


def test_density_of_a_large_operator_is_estimated() -> None:
    """Stochastic quadrature against the truth: isolated eigenvalues exactly, the bulk within its error."""

    class Diagonal(Operator):
        def __init__(self, values: torch.Tensor) -> None:
            super().__init__(values)
            self.shape = (len(values), len(values))

        def __matmul__(self, block: torch.Tensor) -> torch.Tensor:
            return self.matrix[:, None] * block

    values = torch.cat([torch.linspace(0, 1, 5000, dtype=torch.float64), torch.tensor([50.0, 100.0]).double()])
    density = spectral_density(Diagonal(values), bins=20, log=False, probes=8, steps=60)
    assert not density.exact
    assert float(density.counts.sum()) + density.below == pytest.approx(5002)
    assert float(density.counts[-1]) == pytest.approx(1, abs=1)
    assert float(density.counts[0]) == pytest.approx(5000, abs=5)
    fine = spectral_density(Diagonal(values[:5000]), bins=4, log=False, probes=16, steps=60)
    torch.testing.assert_close(fine.counts, torch.full((4,), 1250.0, dtype=torch.float64), rtol=0.05, atol=0)


def test_density_refuses() -> None:
    matrix = with_spectrum(power_law(5))
    for call in (
        lambda: spectral_density(matrix, bins=0),
        lambda: spectral_density(matrix, floor=2.0),
        lambda: spectral_density(torch.zeros(3, 3)),
        lambda: spectral_density(eigh(matrix, 2)),
    ):
        with pytest.raises(TangentError):
            call()
