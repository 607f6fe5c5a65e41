"""Sums in chunks: every way to add products gives the sum, in every precision, and keeps its digits."""

import math

import pytest
import torch
from torch import Tensor

from tangentlab.kernels.factors import _total
from tangentlab.kernels.factors._total import Total, add_product, add_wide_product, chunks, product


def positive(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Entries of one sign, whose sums lose most where digits are lost."""
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.fixture(params=[4096, 8, 1], ids="chunks of {}".format)
def chunk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(_total, "CHUNK", request.param)
    return request.param


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 64])
def test_chunks_cover_an_axis_once(chunk: int, length: int) -> None:
    found = [i for piece in chunks(length) for i in range(piece.start, piece.stop)]
    assert found == list(range(length))
    assert all(piece.stop - piece.start <= chunk for piece in chunks(length))


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ((3, 20), (4, 20)),
        ((2, 3, 20), (2, 4, 20)),
        ((5, 1, 3, 20), (2, 4, 20)),
        ((3, 20), (2, 4, 20)),
        ((1, 5), (1, 5)),
    ],
    ids=str,
)
def test_products_over_a_long_axis(chunk: int, one: tuple[int, ...], two: tuple[int, ...]) -> None:
    a, b = positive(0, *one), positive(1, *two)
    torch.testing.assert_close(product(a, b), a @ b.mT, rtol=1e-13, atol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [(1, 1), (3, 2), (20, 17), (5, 40)], ids=str)
@pytest.mark.parametrize("length", [5, 16, 40, 43])
@pytest.mark.parametrize("wide", [0, 4, 128])
def test_wide_products_are_added_to_what_is_there(
    chunk: int, dtype: torch.dtype, rows: tuple[int, int], length: int, wide: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Side by side or one after the other, between other terms."""
    monkeypatch.setattr(_total, "_SIDE_BY_SIDE", wide)
    one, two = positive(0, rows[0], length, dtype=dtype), positive(1, rows[1], length, dtype=dtype)
    start = positive(2, *rows, dtype=dtype)
    total = Total(start.clone())
    add_product(total, one, two)
    add_wide_product(total, one, two)
    add_product(total, one, two)
    found = total.finish()
    assert found.dtype == dtype
    expected = start.double() + 3 * one.double() @ two.double().T
    rounding = {torch.float64: 1e-13, torch.float32: 1e-6, torch.bfloat16: 4e-2}[dtype]
    torch.testing.assert_close(found.double(), expected, rtol=rounding, atol=0)


@pytest.mark.parametrize("shape", [(1, 1), (16, 16)], ids=str)
@pytest.mark.parametrize("before", [0, 1, 30])
def test_many_terms_keep_their_digits(shape: tuple[int, int], before: int) -> None:
    """A thousand rows of terms beside a large one: in float32 alone, each of them would be lost."""
    total = Total(torch.full(shape, 2.0**24))
    for _ in range(before):
        total.room().add_(torch.ones(shape))
        total.room().sub_(torch.ones(shape))
    for _ in range(1000):
        total.add(torch.full((3, *shape), 0.5))
    assert torch.equal(total.finish(), torch.full(shape, 2.0**24 + 1500))


def test_terms_between_two_carries(monkeypatch: pytest.MonkeyPatch) -> None:
    """In single precision a sum is carried over after TERMS terms, one if it is thin; in double precision never."""
    for shape, limit in (((16, 16), _total.TERMS), ((15, 16), 1)):
        total = Total(torch.zeros(shape))
        carried = 0
        for number in range(3 * _total.TERMS):
            exact = total._exact is not None and float(total._exact.sum())
            total.room().add_(1)
            now = total._exact is not None and float(total._exact.sum())
            carried += now != exact
            assert float(total.out.max()) <= limit, number
        assert torch.equal(total.finish(), torch.full(shape, 3.0 * _total.TERMS))
        assert carried == 3 * _total.TERMS / limit - 1
    double = Total(torch.zeros(2, 2, dtype=torch.float64))
    for _ in range(100):
        double.room().add_(1)
    double.add(torch.ones(4, 2, 2, dtype=torch.float64))
    assert double._exact is None
    assert double._limit == math.inf
    assert torch.equal(double.finish(), torch.full((2, 2), 104.0).double())


def test_terms_of_one_row_keep_their_digits() -> None:
    terms = torch.ones(8, 16, 16)
    terms[0] = 2.0**24
    total = Total(torch.zeros(16, 16))
    total.add(terms)
    total.add(torch.full((1, 16, 16), -(2.0**24)))
    assert torch.equal(total.finish(), torch.full((16, 16), 7.0))
