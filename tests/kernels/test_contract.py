"""Tiles put together are the kernel, whatever their shape."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tangentlab.kernels import _contract as contraction
from tangentlab.kernels._contract import contract, ranges, tile_shape
from tangentlab.kernels.factors import Direct, Factors, Hadamard
from tangentlab.kernels.rules._outer import LinearPairs


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def factors(count: int, readouts: int, seed: int = 0) -> Factors:
    return Factors(
        {
            ("", 0): Direct(normal(seed, count, readouts, 4)),
            ("a", 1): Hadamard(normal(seed + 1, count, 3), normal(seed + 2, count, readouts, 2), 1.0),
            ("b", 2): LinearPairs(normal(seed + 3, count, readouts, 3, 2), 0.5, normal(seed + 4, count, 3, 4)),
        }
    )


def gram(left: Factors, right: Factors) -> Tensor:
    out = torch.zeros(left.count * left.readouts, right.count * right.readouts, dtype=torch.float64)
    left.add_gram(right, out)
    return out


@pytest.fixture(
    params=[(1 << 20, (128, 512), 10), (12, (1, 4), 3), (1, (1, 1), 1), (40, (6, 6), 2), (64, (4, 32), 2)], ids=str
)
def shape(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of other shapes than a large kernel has."""
    for name, value in zip(("TILE", "_ROWS", "_PANELS"), request.param, strict=True):
        monkeypatch.setattr(contraction, name, value)


@pytest.fixture(params=[None, False, (1 << 24, 4096), (1, 1), (30, 5), (100, 6)], ids=str, autouse=True)
def late(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Factors written out late or not, in pieces of other sizes than a large network's."""
    if request.param is not None:
        wanted = bool(request.param)
        monkeypatch.setattr(
            contraction, "expanding_is_cheaper", lambda part, *_: wanted and part.expand_operations != math.inf
        )
    if request.param:
        for name, value in zip(("EXPANDED", "EXPANDED_ROWS"), request.param, strict=True):
            monkeypatch.setattr(contraction, name, value)


@pytest.mark.usefixtures("shape")
@pytest.mark.parametrize("readouts", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 2, 7, 12])
def test_symmetric(count: int, readouts: int) -> None:
    """Equal to the whole product, symmetric to the last bit, every entry written once; all pairs are told of."""
    some, told = factors(count, readouts), []
    out = torch.full((count * readouts, count * readouts), torch.nan, dtype=torch.float64)
    contract(some, some, out, True, told.append)
    expected = gram(some, some)
    assert (out - expected).norm() <= 1e-13 * expected.norm()
    assert torch.equal(out, out.T)
    assert sum(told) == count * count
    assert all(pairs > 0 for pairs in told)


@pytest.mark.usefixtures("shape")
@pytest.mark.parametrize("readouts", [1, 2, 3])
@pytest.mark.parametrize("counts", [(1, 1), (2, 5), (9, 4)])
def test_two_sets(counts: tuple[int, int], readouts: int) -> None:
    left, right, told = factors(counts[0], readouts), factors(counts[1], readouts, 10), []
    room = torch.full((counts[0] * readouts + 2, counts[1] * readouts + 2), torch.nan, dtype=torch.float64)
    contract(left, right, room[1:-1, 1:-1], False, told.append)
    expected = gram(left, right)
    assert (room[1:-1, 1:-1] - expected).norm() <= 1e-13 * expected.norm()
    assert int(room.isnan().sum()) == room.numel() - expected.numel()
    assert sum(told) == counts[0] * counts[1]


def test_one_triangle_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A symmetric kernel of many panels takes little more than half of the products."""
    monkeypatch.setattr(contraction, "TILE", 1)
    monkeypatch.setattr(contraction, "_ROWS", (2, 2))
    computed: dict[Any, int] = {}
    original = Factors.add_gram

    def watched(self: Factors, other: Factors, out: Tensor) -> None:
        keys = tuple(self.parts)
        computed[keys] = computed.get(keys, 0) + out.numel()
        original(self, other, out)

    some = factors(20, 1)
    with monkeypatch.context() as patch:
        patch.setattr(Factors, "add_gram", watched)
        contract(some, some, torch.zeros(20, 20, dtype=torch.float64), True, lambda _: None)
    assert computed
    for entries in computed.values():  # of factors with one row per sample and, unless written out, of those with more
        assert entries == 2 * 2 * (10 * 11) // 2


@pytest.mark.parametrize(
    ("count", "readouts", "symmetric", "expected"),
    [
        (100_000, 1, True, (512, 2048)),
        (2_000, 1, True, (200, 5242)),
        (100, 1, True, (128, 8192)),
        (100, 1, False, (512, 2048)),
        (100_000, 10, True, (51, 204)),
        (300, 10, True, (30, 349)),
        (10, 1000, True, (1, 2)),
        (10, 5000, False, (1, 1)),
    ],
)
def test_shapes_of_tiles(count: int, readouts: int, symmetric: bool, expected: tuple[int, int]) -> None:
    """A tenth of the rows of a symmetric kernel, within limits, and as many columns as make 2^20 entries."""
    assert tile_shape(count, readouts, symmetric) == expected
    assert tile_shape(count, readouts) == tile_shape(count, readouts, True)


@pytest.mark.parametrize(
    ("count", "readouts", "rows", "expected"),
    [(16, 1, 64, 2), (16, 1, 128, 1), (16, 1, 1000, 1), (64, 2, 64, 6), (100, 1, 3, 43), (2_000, 1, 64, 200)],
)
def test_samples_of_many_rows_make_smaller_tiles(count: int, readouts: int, rows: int, expected: int) -> None:
    """A panel has 128 rows of products, so that a triangle is skipped for few samples, too."""
    height, width = tile_shape(count, readouts, True, rows)
    assert height == expected
    assert width >= count
    assert tile_shape(count, readouts, False, rows) == tile_shape(count, readouts, False)


def test_ranges() -> None:
    assert list(ranges(3, 10, 3)) == [slice(3, 6), slice(6, 9), slice(9, 10)]
    assert list(ranges(0, 4, 2)) == [slice(0, 2), slice(2, 4)]
    assert not list(ranges(5, 5, 2))
