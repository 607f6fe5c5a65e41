"""Eigenpairs against LAPACK, for every kind of spectrum and every form of a kernel."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tangentlab import TangentError
from tangentlab.linalg import LowRank, Spectrum, as_source, eigh
from tangentlab.linalg._krylov import BlockKrylov, allowed
from tests.linalg.problems import Operator, forms, power_law, with_spectrum


def check(spectrum: Spectrum, matrix: Tensor, k: int, accuracy: float) -> None:
    """Values, orthonormality and residuals of the k leading pairs."""
    everything = torch.linalg.eigvalsh(matrix).flip(0)
    expected = everything[:k]
    scale = float(everything.abs().max()) or 1.0  # rounding goes with the norm, also where the leading values are zero
    assert spectrum.values.shape == spectrum.residuals.shape == (k,)
    assert spectrum.vectors.shape == (len(matrix), k)
    torch.testing.assert_close(spectrum.values, expected, rtol=0, atol=accuracy * scale)
    unit = spectrum.vectors.T @ spectrum.vectors
    torch.testing.assert_close(unit, torch.eye(k, dtype=torch.float64), rtol=0, atol=1e-10)
    found = (matrix @ spectrum.vectors - spectrum.vectors * spectrum.values).norm(dim=0)
    torch.testing.assert_close(spectrum.residuals, found, rtol=1e-3, atol=1e-12 * scale)


def krylov(kernel: object, k: int, tolerance: float = 1e-8, **options: int) -> Spectrum:
    """The block method whatever the size."""
    source = as_source(kernel)
    found = BlockKrylov(source, k, tolerance, 0, **options).run(lambda steps=1, note=None: None)
    return Spectrum(*found, source.n, source.dtype, "block Krylov")


SPECTRA = {
    "power law": power_law(300),
    "exponential": 0.8 ** torch.arange(300, dtype=torch.float64),
    "clusters": torch.cat([torch.full((100,), v, dtype=torch.float64) for v in (3.0, 2.0, 1.0)]),
    "identity": torch.ones(300, dtype=torch.float64),
    "zero": torch.zeros(300, dtype=torch.float64),
    "rank 5": torch.cat([torch.ones(5), torch.zeros(295)]).double(),
    "repeated 40 times": torch.cat([torch.full((40,), 2.0).double(), power_law(260, 1.0)]),
    "indefinite": torch.linspace(1, -2, 300, dtype=torch.float64),
}


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("k", [1, 30, 60])
def test_block_method_for_every_kind_of_spectrum(name: str, k: int) -> None:
    matrix = with_spectrum(SPECTRA[name])
    check(krylov(matrix, k, block=8), matrix, k, 1e-8)


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 60),
    data=st.data(),
    block=st.integers(1, 12),
    rank=st.floats(0, 1),
    repeat=st.integers(1, 5),
    sign=st.booleans(),
)
def test_block_method_at_any_size(
    n: int, data: st.DataObject, block: int, rank: float, repeat: int, sign: bool
) -> None:
    k = data.draw(st.integers(1, n))
    values = torch.rand(-(-n // repeat), generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    values = values.repeat_interleave(repeat)[:n].clone()
    values[int(rank * n) :] = 0
    if sign:
        values[::3] *= -1
    matrix = with_spectrum(values, seed=k)
    check(krylov(matrix, k, block=block), matrix, k, 1e-7)


@pytest.mark.parametrize("form", ["tensor", "array", "operator", "readable", "scipy"])
def test_every_form_of_a_kernel(form: str) -> None:
    matrix = with_spectrum(power_law(1100))
    small = matrix[:50, :50].contiguous()
    for k in (None, 7):
        check(eigh(forms(small)[form], k), small, k or 50, 1e-12)
    spectrum = eigh(forms(matrix)[form], 20)
    assert spectrum.method == "block Krylov"
    check(spectrum, matrix, 20, 1e-10)


def test_float32_kernels_of_wide_range() -> None:
    """Eigenvalues 1e5 apart, as of a real kernel: each residual below the documented bound."""
    values = power_law(1500, 1.6)
    matrix = with_spectrum(values).float()
    spectrum = eigh(matrix, 150)
    exact = matrix.double()
    exact = (exact + exact.T) / 2
    residuals = (exact @ spectrum.vectors - spectrum.vectors * spectrum.values).norm(dim=0)
    limit = allowed(as_source(matrix), spectrum.values, 1e-5, norm=1.0)
    assert bool((residuals <= 1.5 * limit).all())
    torch.testing.assert_close(spectrum.values, values[:150], rtol=1e-2, atol=1e-7)


def test_few_products() -> None:
    """The point of the method: not many more products than pairs."""
    operator = Operator(with_spectrum(power_law(1200)))
    eigh(operator, 100, tolerance=1e-5)
    assert operator.columns < 400


@pytest.mark.parametrize(
    ("n", "k", "least", "most"), [(5000, 400, 1000, 1100), (5000, 20, 180, 200), (40, 7, 40, 40), (40, 40, 40, 40)]
)
def test_a_basis_of_about_two_and_a_half_vectors_a_pair(n: int, k: int, least: int, most: int) -> None:
    """More for few pairs, so that a search outside has room, and never more than the space has."""
    found = BlockKrylov(as_source(LowRank(torch.ones(n, 1))), k, 1e-5, 0)
    assert least <= len(found.basis) <= most
    assert found.basis.shape == found.images.shape == (found.width, n)


def test_the_same_seed_gives_the_same_pairs() -> None:
    matrix = with_spectrum(power_law(1100))
    one, two = eigh(matrix, 5, seed=3), eigh(matrix, 5, seed=3)
    assert torch.equal(one.vectors, two.vectors)


def test_four_dimensional_kernels_are_flattened() -> None:
    matrix = with_spectrum(power_law(12))
    check(eigh(matrix.reshape(4, 3, 4, 3)), matrix, 12, 1e-12)


def test_low_rank_kernels_go_through_their_features() -> None:
    features = torch.randn(40, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    kernel, matrix = LowRank(features), features @ features.T
    check(eigh(kernel), matrix, 6, 1e-12)
    check(eigh(kernel, 2), matrix, 2, 1e-12)
    assert eigh(kernel).complete
    torch.testing.assert_close(kernel @ torch.eye(40, dtype=torch.float64), matrix)
    torch.testing.assert_close(kernel.diagonal(), matrix.diagonal())
    torch.testing.assert_close(kernel.read(slice(3, 9), slice(0, 4)), matrix[3:9, :4])
    with pytest.raises(TangentError, match="6"):
        eigh(kernel, 7)


def test_tables_and_texts() -> None:
    spectrum = eigh(with_spectrum(power_law(10)), 4)
    table = spectrum.to_pandas()
    assert list(table.index) == [1, 2, 3, 4]
    np.testing.assert_allclose(table["eigenvalue"], power_law(10)[:4])
    assert "4 of 10 eigenpairs" in repr(spectrum)
    assert not spectrum.complete


def test_an_unreachable_tolerance_is_refused() -> None:
    class Noisy(Operator):
        def __matmul__(self, block: Tensor) -> Tensor:
            return super().__matmul__(block) + 1e-3 * torch.randn_like(block)

    with pytest.raises(TangentError, match="residual of eigenpair"):
        krylov(Noisy(with_spectrum(power_law(120))), 20, block=8)


@pytest.mark.parametrize(
    ("kernel", "k"),
    [
        (torch.ones(3, 4), None),
        (torch.ones(2, 3, 4), None),
        (torch.ones(2, 3, 3, 2), None),
        (torch.tensor([[1.0, 2.0], [0.0, 1.0]]), None),
        (torch.full((2, 2), float("nan")), None),
        (torch.eye(2, dtype=torch.complex64), None),
        ("a kernel", None),
        (torch.eye(3), 0),
        (torch.eye(3), 4),
        (torch.eye(3), True),
        (torch.empty(0, 0), None),
    ],
)
def test_refusals(kernel: object, k: int | None) -> None:
    with pytest.raises(TangentError):
        eigh(kernel, k)


def test_operators_that_are_not_finite_are_refused() -> None:
    with pytest.raises(TangentError, match="NaN"):
        eigh(Operator(torch.full((5, 5), float("inf"))))
    with pytest.raises(TangentError, match="tolerance"):
        eigh(torch.eye(3), tolerance=0.0)


def test_operators_that_are_not_symmetric_are_refused() -> None:
    with pytest.raises(TangentError, match="transpose"):
        eigh(Operator(torch.tensor([[1.0, 2.0], [0.0, 1.0]])))
