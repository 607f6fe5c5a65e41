"""Sums over many entries: against exact rational arithmetic, up to a billion entries, for every layout and scale."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tangentlab import _sums
from tangentlab._sums import inner, norm, times_power, total


def uniform(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def exact(a: Tensor, b: Tensor) -> Fraction:
    pairs = zip(a.double().flatten().tolist(), b.double().flatten().tolist(), strict=True)
    return sum((Fraction(x) * Fraction(y) for x, y in pairs), Fraction(0))


def off(found: Tensor, expected: Fraction, scale: Fraction) -> float:
    assert found.shape == ()
    assert found.dtype == torch.float64
    return float(abs(Fraction(float(found)) - expected) / scale)


@pytest.mark.parametrize("rows", [100_000, 1_000_000])
def test_a_billion_float32_entries(rows: int) -> None:
    """Positive terms, where float32 loses most. The entries are views of a thousand, so that they need no memory."""
    a, b = uniform(1000), uniform(1000, seed=1)
    many, other = a.expand(rows, 1000), b.expand(rows, 1000)
    value = rows * exact(a, b)
    assert off(inner(many, other), value, value) < 1e-12
    assert off(total(many), rows * exact(a, torch.ones(1000)), value) < 1e-12
    square = rows * exact(a, a)
    assert abs(float(norm(many)) / math.sqrt(square) - 1) < 1e-12


def test_float32_itself_is_not_good_enough() -> None:
    """What the helper is for: the plain product of the same entries misses the bound by orders of magnitude."""
    a, b = uniform(2**25), uniform(2**25, seed=1)
    expected = inner(a.double(), b.double())
    assert abs(float(torch.dot(a, b) / expected) - 1) > 1e-6
    assert abs(float(inner(a, b) / expected) - 1) < 1e-14


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.integers(0, 9), min_size=0, max_size=4),
    layout=st.sampled_from(["plain", "transposed", "strided", "expanded", "flipped"]),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool]),
    chunk=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_every_layout_and_type(shape: list[int], layout: str, dtype: torch.dtype, chunk: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randint(-8, 9, shape, generator=generator).to(torch.float64) / 4 for _ in range(2))
    a, b = a.to(dtype), b.to(dtype)
    if layout == "transposed" and len(shape) > 1:
        a, b = a.transpose(0, -1), b.clone().transpose(0, -1).contiguous()
    if layout == "strided" and shape:
        a, b = a[::2], b[::2]
    if layout == "expanded" and shape and shape[0]:
        a = a[:1].expand_as(a)
    if layout == "flipped" and shape:
        a = a.flip(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_sums, "CHUNK", chunk)
        found = inner(a, b), total(a), norm(a)
    assert Fraction(float(found[0])) == exact(a, b)  # small whole multiples of 1/16: no rounding at all
    assert Fraction(float(found[1])) == exact(a, torch.ones_like(a))
    assert float(found[2]) == pytest.approx(math.sqrt(exact(a, a)), rel=1e-15)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.int64])
def test_norms_of_zeros_of_any_type(dtype: torch.dtype) -> None:
    assert float(norm(torch.zeros(3, dtype=dtype))) == 0


@pytest.mark.parametrize("scale", [5e-324, 1e-300, 1e-160, 1.0, 1e160, 1e300])
def test_norms_of_any_scale(scale: float) -> None:
    a = scale * torch.tensor([3.0, 4.0, 0.0], dtype=torch.float64)
    assert float(norm(a)) == pytest.approx(5 * scale, rel=1e-15)
    assert float(norm(a.expand(100_000, 3))) == pytest.approx(5 * scale * math.sqrt(1e5), rel=1e-12)


def test_what_is_not_finite_stays_visible() -> None:
    for bad in (math.nan, math.inf):
        a = torch.tensor([1.0, bad])
        for found in (inner(a, a), norm(a), total(a)):
            assert not math.isfinite(float(found))
    assert float(norm(torch.zeros(5))) == float(norm(torch.zeros(0))) == float(total(torch.zeros(0))) == 0
    with pytest.raises(ValueError, match="inner product"):
        inner(torch.zeros(3), torch.zeros(1))


@given(st.integers(-1000, 1000), st.integers(-2100, 2100))
def test_powers_of_two_are_exact(power: int, exponent: int) -> None:
    value = 1.25 * 2.0**power
    found = float(times_power(torch.tensor(value, dtype=torch.float64), exponent))
    if -1022 <= power + exponent <= 1023:
        assert found == math.ldexp(value, exponent)
    elif power + exponent > 1023:
        assert found == math.inf
    else:
        assert found <= 2.0**-1022
