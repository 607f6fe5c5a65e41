"""Every form of a factor against gradients written out one sample, readout and position at a time."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tangentlab.kernels._cost import ENTRYWISE
from tangentlab.kernels.factors import Direct, Factor, Hadamard, PairsSum, Total
from tangentlab.kernels.factors import _pairs as pairs
from tangentlab.kernels.rules._correlate import Geometry
from tangentlab.kernels.rules._lookup import LookupPairs
from tangentlab.kernels.rules._outer import LinearPairs
from tangentlab.kernels.rules._patches import ConvolutionPairs, GroupedPairs

Make = Callable[[int, int, int], Factor]
"""From n, R and a seed to a factor."""


def gram(one: Factor, two: Factor, out: Tensor) -> None:
    """Add J1 J2^T to a matrix."""
    total = Total(out)
    one.add_gram(two, total)
    total.finish()


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def outer_rows(a: Tensor, g: Tensor, bias: float) -> Tensor:
    """Rows (n R, P): sum_t g_t a_t^T, then bias * sum_t g_t, from a (n, T, d_in) and g (n, R, T, d_out)."""
    rows = []
    for n in range(g.shape[0]):
        for r in range(g.shape[1]):
            weight = torch.stack([torch.outer(g[n, r, t], a[n, t]) for t in range(g.shape[2])]).sum(0).flatten()
            rows.append(torch.cat([weight, bias * g[n, r].sum(0)]) if bias else weight)
    return torch.stack(rows)


def convolution_rows(factor: ConvolutionPairs) -> Tensor:
    """Rows by automatic differentiation of the convolution; with the weight in the order (O, kernel, C / groups)."""
    groups = factor.groups if isinstance(factor, GroupedPairs) else 1
    convolve: Any = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[len(factor.kernel)]
    geometry, rows = factor.geometry, []
    channels, d_out = factor.x.shape[2], factor.g.shape[3]
    for n in range(factor.count):
        image = factor.x[n].T.reshape(1, channels, *factor.size)
        weight = torch.zeros(d_out, channels // groups, *factor.kernel, dtype=image.dtype, requires_grad=True)
        options = {"stride": geometry.stride, "padding": geometry.padding, "dilation": geometry.dilation}
        output = convolve(image, weight, groups=groups, **options)[0].flatten(1).T
        assert output.shape == factor.g.shape[2:]
        for r in range(factor.readouts):
            (gradient,) = torch.autograd.grad(output, weight, factor.g[n, r], retain_graph=True)
            row = gradient.movedim(1, -1).flatten()
            rows.append(torch.cat([row, factor.bias * factor.g[n, r].sum(0)]) if factor.bias else row)
    return torch.stack(rows)


def written_out(factor: Factor) -> Tensor:
    """J, (n R, P)."""
    if isinstance(factor, Direct):
        return torch.stack([factor.g[n, r] for n in range(factor.count) for r in range(factor.readouts)])
    if isinstance(factor, Hadamard):
        return outer_rows(factor.a[:, None], factor.g[:, :, None], factor.bias)
    if isinstance(factor, LinearPairs):
        return outer_rows(factor.a, factor.g, factor.bias)
    if isinstance(factor, LookupPairs):
        table = torch.eye(factor.rows, dtype=factor.g.dtype)
        return outer_rows(torch.stack([table[i] for i in factor.index]), factor.g, factor.bias)
    assert isinstance(factor, ConvolutionPairs)
    return convolution_rows(factor)


def convolution(
    size: tuple[int, ...], kernel: tuple[int, ...], geometry: Geometry, bias: float, groups: int = 1
) -> Make:
    spans = zip(size, kernel, geometry.stride, geometry.padding, geometry.dilation, strict=True)
    outputs = tuple((s + 2 * p - d * (k - 1) - 1) // step + 1 for s, k, step, p, d in spans)
    positions, pixels = torch.Size(outputs).numel(), torch.Size(size).numel()

    def make(n: int, readouts: int, seed: int) -> Factor:
        g, x = normal(seed, n, readouts, positions, 2 * groups), normal(seed + 1, n, pixels, 3 * groups)
        form = ConvolutionPairs(g, bias, x, size, outputs, kernel, geometry)
        return form if groups == 1 else GroupedPairs(**vars(form), groups=groups)

    return make


def lookup(n: int, readouts: int, seed: int) -> Factor:
    index = torch.randint(0, 6, (n, 4), generator=torch.Generator().manual_seed(seed))
    index[:, -1] = 5
    return LookupPairs(normal(seed, n, readouts, 4, 3), 0.0, index, 6)


FORMS: dict[str, Make] = {
    "direct": lambda n, r, seed: Direct(normal(seed, n, r, 7)),
    "hadamard": lambda n, r, seed: Hadamard(normal(seed, n, 4), normal(seed + 1, n, r, 3), 0.0),
    "hadamard with bias": lambda n, r, seed: Hadamard(normal(seed, n, 4), normal(seed + 1, n, r, 3), 1.0),
    "hadamard with scaled bias": lambda n, r, seed: Hadamard(normal(seed, n, 4), normal(seed + 1, n, r, 3), -0.3),
    "positions": lambda n, r, seed: LinearPairs(normal(seed, n, r, 5, 3), 0.0, normal(seed + 1, n, 5, 4)),
    "positions with bias": lambda n, r, seed: LinearPairs(normal(seed, n, r, 5, 3), 1.0, normal(seed + 1, n, 5, 4)),
    "positions with scaled bias": lambda n, r, seed: LinearPairs(
        normal(seed, n, r, 2, 3), -0.3, normal(seed + 1, n, 2, 4)
    ),
    "lookup": lookup,
    "convolution of a line": convolution((7,), (3,), Geometry((1,), (0,), (1,)), 0.0),
    "convolution, strided": convolution((7,), (3,), Geometry((2,), (1,), (1,)), -0.3),
    "convolution, wide stride": convolution((8,), (2,), Geometry((3,), (2,), (2,)), 1.0),
    "convolution, mostly padding": convolution((1,), (5,), Geometry((1,), (2,), (1,)), 1.0),
    "convolution, all padding": convolution((2,), (2,), Geometry((3,), (3,), (1,)), 0.0),
    "convolution of an image": convolution((4, 5), (2, 3), Geometry((1, 2), (1, 0), (2, 1)), 0.7),
    "convolution, more positions than pixels": convolution((2, 2), (3, 2), Geometry((1, 1), (2, 2), (1, 1)), 0.0),
    "convolution in groups": convolution((6,), (3,), Geometry((1,), (1,), (1,)), 0.0, groups=3),
    "convolution in groups with bias": convolution((4, 5), (2, 3), Geometry((2, 1), (1, 0), (1, 1)), -0.3, groups=2),
    "convolution of a volume": convolution((3, 2, 4), (2, 1, 3), Geometry((1, 1, 2), (0, 0, 1), (1, 1, 1)), 0.5),
}


@pytest.fixture(params=FORMS)
def make(request: pytest.FixtureRequest) -> Make:
    return FORMS[request.param]


def close(found: Tensor, expected: Tensor) -> None:
    assert found.shape == expected.shape
    assert (found - expected).norm() <= 1e-12 * (1 + expected.norm())


@pytest.mark.parametrize("readouts", [(1, 1), (2, 2), (1, 2), (3, 1)])
@pytest.mark.parametrize("block", [None, 1, 60, 300], ids=lambda block: f"block {block}")
def test_gram(make: Make, readouts: tuple[int, int], block: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products are added to what is there, whatever the size of the blocks, also in a view of a larger matrix."""
    if block is not None:
        monkeypatch.setattr(pairs, "_BLOCK", block)
    one, two = make(5, readouts[0], 0), make(3, readouts[1], 10)
    expected = written_out(one) @ written_out(two).T
    before = normal(5, *expected.shape)
    out = before.clone()
    gram(one, two, out)
    close(out, before + expected)
    room = normal(6, expected.shape[0] + 2, expected.shape[1] + 2)
    whole = room.clone()
    gram(one, two, room[1:-1, 1:-1])
    whole[1:-1, 1:-1] += expected
    close(room, whole)


@pytest.mark.parametrize("readouts", [1, 3])
def test_diagonal(make: Make, readouts: int) -> None:
    factor = make(5, readouts, 0)
    rows = written_out(factor).unflatten(0, (5, readouts))
    close(factor.diagonal(), torch.stack([row @ row.T for row in rows]))


@pytest.mark.parametrize("readouts", [1, 3])
def test_pull_and_push(make: Make, readouts: int) -> None:
    """J^T v and J u, with the parameters in the order of the rows."""
    factor = make(5, readouts, 0)
    rows = written_out(factor)
    v, u = normal(7, 5, readouts, 2), normal(8, 3, rows.shape[1])
    close(factor.pull(v), v.flatten(0, 1).T @ rows)
    close(factor.push(u), (rows @ u.T).unflatten(0, (5, readouts)))


def test_merged_is_the_trace(make: Make) -> None:
    one, two = make(4, 3, 0), make(2, 3, 10)
    blocks = (written_out(one) @ written_out(two).T).view(4, 3, 2, 3)
    expected = torch.stack([blocks[:, r, :, r] for r in range(3)]).sum(0)
    found = torch.zeros_like(expected)
    merged = one.merged()
    assert type(merged) is type(one)
    assert (merged.count, merged.readouts) == (4, 1)
    gram(merged, two.merged(), found)
    close(found, expected)


def test_merged_without_bias_or_with_one_readout(make: Make) -> None:
    one = make(3, 1, 0)
    close(one.merged().diagonal(), one.diagonal())


@pytest.mark.parametrize("readout", [0, 1, 2])
def test_one_readout(make: Make, readout: int) -> None:
    factor = make(4, 3, 0)
    rows = written_out(factor).unflatten(0, (4, 3))[:, readout]
    chosen = factor.select(readout)
    assert (chosen.count, chosen.readouts) == (4, 1)
    close(written_out(chosen), rows)
    assert factor.readouts == 3


def test_some_samples(make: Make) -> None:
    factor = make(5, 2, 0)
    close(written_out(factor[1:3]), written_out(factor).unflatten(0, (5, 2))[1:3].flatten(0, 1))
    assert factor[1:3].count == 2
    assert factor[4:].count == 1


def test_room_for_samples(make: Make) -> None:
    """A factor is put together from parts, and its tensors are those of its fields."""
    one, two = make(3, 2, 0), make(2, 2, 10)
    room = one.allocate(5)
    assert type(room) is type(one)
    assert room.count == 5
    assert {name: tuple(shape)[1:] for name, shape in room.shapes().items()} == {
        name: tuple(tensor.shape)[1:] for name, tensor in one.tensors().items()
    }
    room[:3].write(one)
    room[3:].write(two)
    close(written_out(room), torch.cat([written_out(one), written_out(two)]))
    assert one.shapes() == make(3, 2, 7).shapes() != two.shapes()


def test_tensors_are_listed() -> None:
    assert list(FORMS["hadamard"](2, 1, 0).tensors()) == ["a", "g"]
    assert list(FORMS["lookup"](2, 1, 0).tensors()) == ["g", "index"]
    assert list(FORMS["convolution, strided"](2, 1, 0).tensors()) == ["g", "x"]


def test_inputs_of_positions() -> None:
    """The inputs, written out and as a Gram matrix, whose rows are positions of samples or samples at positions."""
    for name in ("positions", "lookup", "convolution, strided", "convolution of an image"):
        one, two = FORMS[name](3, 2, 0), FORMS[name](2, 2, 10)
        assert isinstance(one, pairs.Pairs)
        assert isinstance(two, pairs.Pairs)
        rows = [pairs.rows_of(some.vectors(), some.positions_first) for some in (one, two)]
        assert one.positions_first == name.startswith("convolution")
        close(one.inputs_gram(two), rows[0] @ rows[1].T)
        assert one.product_rows == (1 if one.positions_first else one.positions)


@pytest.mark.parametrize("name", ["positions", "convolution of an image", "convolution, more positions than pixels"])
def test_blocks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks are square and as large as the limit of pairs of positions, or of pixels, allows."""
    one, two = FORMS[name](9, 1, 0), FORMS[name](12, 1, 10)
    assert isinstance(one, pairs.Pairs)
    pixels = one.x.shape[1] if isinstance(one, ConvolutionPairs) else 0
    original, shapes = type(one).inputs_gram, []

    def watched(self: Any, other: Any) -> Tensor:
        shapes.append((self.count, other.count))
        return original(self, other)

    monkeypatch.setattr(type(one), "inputs_gram", watched)
    monkeypatch.setattr(pairs, "_BLOCK", 16 * max(one.positions, pixels) ** 2)
    gram(one, two, torch.zeros(9, 12, dtype=torch.float64))
    assert shapes == [(height, 4) for height in (4, 4, 1) for _ in range(3)]


@pytest.mark.parametrize("step", [1, 2, 100])
@pytest.mark.parametrize("readouts", [1, 3])
def test_columns_are_the_gradients_written_out(make: Make, readouts: int, step: int) -> None:
    factor = make(4, readouts, 0)
    if factor.expand_operations == math.inf:
        pytest.skip("never written out late")
    other = make(3, readouts, 10)
    pieces, others = list(factor.columns(step)), list(other.columns(step))
    assert [piece.shape[1] for piece in pieces] == [piece.shape[1] for piece in others]
    assert sum(piece.shape[1] for piece in pieces) == written_out(factor).shape[1]
    close(torch.cat(pieces, 1) @ torch.cat(others, 1).T, written_out(factor) @ written_out(other).T)


def test_operations_as_stated() -> None:
    """The counts that the choice between exact forms rests on."""
    direct = Direct(normal(0, 4, 3, 5))
    assert (direct.pair_operations, direct.pull_operations, direct.expand_operations) == (90, 30, math.inf)
    hadamard = Hadamard(normal(0, 2, 4), normal(1, 2, 3, 5), 1.0)
    assert (hadamard.pair_operations, hadamard.pull_operations) == (2 * (4 + 9 * 5), 2 * 5 * (4 + 3))
    assert (hadamard.expand_operations, hadamard.row_size) == (math.inf, 1)
    linear = LinearPairs(normal(0, 2, 3, 6, 5), 0.0, normal(1, 2, 6, 4))
    assert linear.pair_operations == 36 * (2 * 4 + 9 * (2 * 5 + ENTRYWISE))
    assert linear.pull_operations == 2 * 6 * 5 * (4 + 3)
    assert linear.expand_operations == 3 * 5 * 4 * (2 * 6 + ENTRYWISE)
    assert linear.row_size == linear.inputs == 4
    lookup = LookupPairs(normal(0, 2, 3, 6, 5), 0.0, torch.zeros(2, 6, dtype=torch.long), 100)
    assert lookup.pair_operations == 36 * (ENTRYWISE + 9 * (2 * 5 + ENTRYWISE))
    assert (lookup.pull_operations, lookup.expand_operations) == (2 * 3 * 6 * 5, math.inf)
    geometry = Geometry((1, 1), (0, 0), (1, 1))
    image = ConvolutionPairs(normal(0, 2, 3, 4, 5), 0.0, normal(1, 2, 9, 7), (3, 3), (2, 2), (2, 2), geometry)
    assert image.pair_operations == 2 * 81 * 7 + 16 * 4 * ENTRYWISE + 16 * 9 * (2 * 5 + ENTRYWISE)
    assert image.row_size == image.inputs == 7 * 4


def test_operations_of_a_parameter_with_several_uses() -> None:
    """A table of 100 tokens, looked up at 6 positions and the weight of a layer at 3: by pairs, each term meets all."""
    lookup = LookupPairs(normal(0, 2, 4, 6, 5), 0.0, torch.zeros(2, 6, dtype=torch.long), 100)
    layer = LinearPairs(normal(1, 2, 4, 3, 100), 0.0, normal(2, 2, 3, 5))
    both = PairsSum((lookup, layer), (True, False))
    assert [term.matrix for term in both.terms] == [(100, 5), (100, 5)]
    crossed = 4 * (ENTRYWISE + 2 * 5) + 16 * ENTRYWISE
    looked = ENTRYWISE + 16 * (2 * 5 + ENTRYWISE)
    dense = 2 * 5 + 16 * (2 * 100 + ENTRYWISE)
    assert both.pair_operations == 36 * looked + 2 * 18 * crossed + 9 * dense
    assert both.expand_operations == 4 * (500 * ENTRYWISE + 6 * 5 * ENTRYWISE + 3 * 2.0 * 500)
    assert (both.row_count, both.row_size, both.merged().row_size) == (100, 5, 20)
