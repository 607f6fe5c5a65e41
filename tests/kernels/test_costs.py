"""What families of operations say about themselves: costs, kinds, and gradients of some of the samples."""

import math

import pytest
import torch
from torch import Tensor

from tangentlab.kernels._cost import ENTRYWISE, FFT, SCATTER, SKETCH, STORE, Cost, Work, compact_is_cheaper, written_out
from tangentlab.kernels.rules import Use
from tangentlab.kernels.rules._broadcast import Broadcast
from tangentlab.kernels.rules._convolution import Convolution
from tangentlab.kernels.rules._correlate import Geometry
from tangentlab.kernels.rules._einsum import Einsum
from tangentlab.kernels.rules._lookup import Lookup
from tangentlab.kernels.rules._outer import Outer

B, R = 4, 3


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def dense(positions: int = 5, transposed: bool = False) -> Outer:
    shape = torch.Size((6, 7)) if not transposed else torch.Size((7, 6))
    return Outer(shape, normal(0, B, positions, 7), transposed)


def convolution(groups: int = 1) -> Convolution:
    shape, geometry = torch.Size((6, 4 // groups, 3, 2)), Geometry((1, 1), (1, 0), (1, 1))
    return Convolution(shape, normal(0, B, 1, 4, 5, 6), geometry, groups, (5, 5))


def lookup() -> Lookup:
    return Lookup(torch.Size((9, 6)), torch.arange(B * 5).view(B, 5) % 9)


USES: dict[str, tuple[Use, Tensor]] = {
    "dense": (dense(), normal(1, B, R, 1, 5, 6)),
    "dense, transposed": (dense(transposed=True), normal(1, B, R, 1, 5, 6)),
    "dense, one position": (dense(1), normal(1, B, R, 1, 6)),
    "convolution": (convolution(), normal(1, B, R, 1, 6, 5, 5)),
    "convolution in groups": (convolution(2), normal(1, B, R, 1, 6, 5, 5)),
    "lookup": (lookup(), normal(1, B, R, 1, 5, 6)),
    "twice": (Outer.merge([dense(), dense()]), normal(1, B, R, 10, 6)),  # type: ignore[dict-item]
    "lookup twice": (Lookup.merge([lookup(), lookup()]), normal(1, B, R, 10, 6)),  # type: ignore[dict-item]
}


def scaled(h: Tensor) -> Broadcast:
    return Broadcast(torch.Size((6,)), (2,), lambda rows: h[rows])


SOME: dict[str, tuple[Use, Tensor]] = {
    **{name: pair for name, pair in USES.items() if "twice" not in name},
    "scale": (scaled(normal(0, B, 1, 5, 6)), normal(1, B, R, 1, 5, 6)),
    "bias": (Broadcast(torch.Size((6,)), (2,)), normal(1, B, R, 1, 5, 6)),
    "einsum": (Einsum(torch.Size((7, 6)), "bZto,tbi->bZio", [normal(0, 5, B, 7)], 0), normal(1, B, R, 1, 5, 6)),
}


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("rows", [slice(2, 3), slice(1, 4)])
def test_some_samples_have_their_gradients(name: str, rows: slice) -> None:
    use, g = SOME[name]
    torch.testing.assert_close(use[rows].gradient(g[rows]), use.gradient(g)[rows], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", SOME)
def test_an_outline_has_the_costs_and_no_numbers(name: str) -> None:
    use, _ = SOME[name]
    outline = use.outline()
    assert outline.written_out_cost(R) == use.written_out_cost(R)
    assert outline.compact_cost(R) == use.compact_cost(R)
    assert (outline.kind, outline.order, outline.is_bias) == (use.kind, use.order, use.is_bias)
    assert all(value.is_meta for value in vars(outline).values() if isinstance(value, Tensor))


@pytest.mark.parametrize("name", USES)
@pytest.mark.parametrize("scale", [1.0, -2.0])
def test_compact_factors_are_the_gradients(name: str, scale: float) -> None:
    use, g = USES[name]
    flat = scale * use.gradient(g).flatten(2).flatten(0, 1)
    out = torch.zeros(B * R, B * R, dtype=torch.float64)
    factor = use.compact(g, scale, 0.0)
    from tangentlab.kernels.factors import Total

    total = Total(out)
    factor.add_gram(factor, total)
    torch.testing.assert_close(total.finish(), flat @ flat.T, rtol=1e-11, atol=1e-11)
    cost = use.compact_cost(R)
    assert cost is not None
    assert cost.floats == sum(t[0].numel() for t in factor.tensors().values())
    assert cost.rows == factor.product_rows


def test_kinds_keep_apart_what_cannot_be_contracted() -> None:
    kinds = {name: use.kind for name, (use, _) in USES.items()}
    assert kinds["dense"] == kinds["dense, transposed"] == kinds["twice"] != kinds["dense, one position"]
    assert kinds["lookup"] == kinds["lookup twice"] not in (None, kinds["dense"])
    assert kinds["convolution"] not in (None, kinds["dense"], kinds["lookup"])
    assert dense().order != dense(transposed=True).order


@pytest.mark.parametrize("k", [0, 64])
def test_costs_as_stated(k: int) -> None:
    """The counts that the choice between exact forms rests on, from the docstrings' formulas."""
    t, d_in, d_out = 5, 7, 6
    transforms = (1 + R) * (FFT * math.log2(max(2, k)) + STORE) * k
    floats = t * (d_in + R * d_out)
    assert dense().compact_cost(R, k) == Cost(
        pair=t * t * (2 * d_in + R * R * (2 * d_out + ENTRYWISE)),
        sample=0,
        floats=floats,
        product=2 * t * d_out * (d_in + R),
        sketch=t * (transforms + SKETCH * d_in + SCATTER * R * d_out) + STORE * floats,
        expand=R * d_in * d_out * (2 * t + ENTRYWISE),
        rows=t,
    )
    assert dense(1).compact_cost(R, k).expand == math.inf
    d, floats = 6, 5 * (1 + R * 6)
    assert lookup().compact_cost(R, k) == Cost(
        pair=25 * (ENTRYWISE + R * R * (2 * d + ENTRYWISE)),
        sample=0,
        floats=floats,
        product=2 * R * 5 * d,
        sketch=(ENTRYWISE + STORE) * floats,
        rows=5,
    )
    t, d_in, d_out, pixels = 25, 4 * 6, 6, 30
    floats = pixels * 4 + R * t * d_out
    whole = convolution().compact_cost(R, k)
    assert whole == Cost(
        pair=2 * pixels**2 * 4 + t * t * ENTRYWISE * 6 + t * t * R * R * (2 * d_out + ENTRYWISE),
        sample=0,
        floats=floats,
        product=2 * t * d_out * (d_in + R),
        sketch=t * (transforms + (STORE + SKETCH) * d_in + SCATTER * R * d_out) + STORE * floats,
        expand=R * d_in * d_out * (2 * t + ENTRYWISE),
    )
    grouped = convolution(2).compact_cost(R, k)
    assert grouped is not None
    assert grouped.floats == floats
    assert grouped.pair == 2 * (2 * pixels**2 * 2 + t * t * ENTRYWISE * 6 + t * t * R * R * (2 * 3 + ENTRYWISE))


def test_costs_without_a_sketch() -> None:
    for use in (dense(), dense(1), convolution(), convolution(2), lookup()):
        assert use.compact_cost(R) == use.compact_cost(R, 0)


def test_a_layer_without_inputs_has_a_cost() -> None:
    cost = Outer(torch.Size((6, 0)), torch.empty(B, 1, 0), False).compact_cost(R)
    assert (cost.pair, cost.floats, cost.product) == (R * R * ENTRYWISE, 0, 0)


def test_written_out_gradients() -> None:
    size, t = 42, 5
    making = 2 * R * size * t
    expected = Cost(2 * R * R * size, making, R * size, 2 * R * size, making + (STORE + SKETCH) * R * size)
    assert dense().written_out_cost(R) == written_out(size, t, R) == expected
    assert convolution().written_out_cost(1).sample == 2 * 6 * 4 * 6 * 25


def test_few_samples_take_pairs_and_many_are_written_out() -> None:
    """One position is always compact; many positions of a small weight are cheaper written out at once."""
    few, many = (Work("gram", n, n, True) for n in (2, 10_000))
    assert compact_is_cheaper(dense(1), 1, few)
    assert compact_is_cheaper(dense(1), 1, many)
    wide = Outer(torch.Size((2, 2)), normal(0, B, 400, 2))
    assert not compact_is_cheaper(wide, 1, few)
    assert not compact_is_cheaper(wide, 1, many)
    large = Outer(torch.Size((700, 700)), normal(0, B, 8, 700))
    for work in (few, many, Work("operator", 9, 9, True), Work("diagonal", 9, 9, True)):
        assert compact_is_cheaper(large, 1, work)


@pytest.mark.parametrize(
    ("rows", "readouts", "product_rows", "symmetric", "expected"),
    [
        (16, 1, 1, False, 256),
        (16, 1, 64, False, 256),
        (16, 1, 1, True, 256),  # one panel has both triangles
        (16, 1, 64, True, 256 * (1 + 1 / 8) / 2),  # two samples with 64 positions each make a panel
        (128, 1, 1, True, 128 * 128),
        (256, 1, 1, True, 256 * 256 * 0.75),
        (64, 4, 1, True, 64 * 64 * 0.75),
        (100_000, 1, 1, True, 1e10 * 0.55),
        (100_000, 1, 64, True, 1e10 * 0.55),
    ],
)
def test_pairs_that_are_computed(rows: int, readouts: int, product_rows: int, symmetric: bool, expected: float) -> None:
    """A triangle is skipped only between panels of rows."""
    assert Work("gram", rows, rows, symmetric).pairs(readouts, product_rows) == pytest.approx(expected)
