"""The random maps of sketches: unbiased, with the variance that their docstrings state."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tangentlab.kernels import _projection
from tangentlab.kernels._projection import CountSketch, Projection, TensorSketch, generator
from tangentlab.kernels.factors import Direct, Hadamard
from tangentlab.kernels.rules._lookup import LookupPairs
from tangentlab.kernels.rules._outer import LinearPairs

DOUBLE = torch.empty((), dtype=torch.float64)
CPU = torch.device("cpu")
SEEDS = 2000


def estimates(sketches: Callable[[int], Tensor]) -> Tensor:
    """<S u, S v> for many seeds, from the sketches (2, k) of u and v."""
    return torch.stack([torch.prod(sketches(seed), 0).sum() for seed in range(SEEDS)])


def agrees(found: Tensor, mean: Tensor, variance: Tensor) -> None:
    """Mean and variance of a sample are as expected, within four standard errors."""
    squares = (found - mean).square()
    assert (found.mean() - mean).abs() < 4 * (variance / len(found)).sqrt()
    assert (squares.mean() - variance).abs() < 4 * squares.std() / len(found) ** 0.5


def vectors(*shape: int, close: float = 0.7) -> Tensor:
    """Two tensors with very uneven entries, not orthogonal to each other."""
    draw = torch.Generator().manual_seed(5)
    u = torch.randn(2, *shape, generator=draw, dtype=torch.float64)
    u = u.sign() * u.abs() ** 2
    u[1] = close * u[0] + u[1]
    return u


@pytest.mark.parametrize(("size", "k", "wide"), [(40, 16, 16), (40, 8, 32), (50, 7, 28), (20, 16, 16)])
def test_entries(size: int, k: int, wide: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Collisions: 1/k between blocks of W entries; within a block by whether folding to k parts the two."""
    monkeypatch.setattr(_projection, "_WIDE", wide)
    u = vectors(size)

    def sketched(seed: int) -> Tensor:
        projection = Projection(k, seed, wide, torch.float64, CPU)
        assert projection.width == wide
        return projection([(("w",), Direct(u.unsqueeze(1)))], 2, 1)[:, 0]

    index = torch.arange(size)
    block, place = index // wide, index % wide
    distance = (place[:, None] - place).abs()
    distance = torch.minimum(distance, wide - distance).double()
    parted = (distance / k).clamp(max=1) if wide > k else torch.zeros_like(distance)
    collision = torch.where(block[:, None] == block, parted / k, 1 / k)
    collision.fill_diagonal_(0)
    squares, products = u.square(), u[0] * u[1]
    variance = squares[0] @ collision @ squares[1] + products @ collision @ products
    assert variance <= (squares[0].sum() * squares[1].sum() + (u[0] @ u[1]) ** 2) / k
    agrees(estimates(sketched), u[0] @ u[1], variance)


@pytest.mark.parametrize("rank_one", [True, False])
def test_products(rank_one: bool) -> None:
    """The exact variance of a product of hashes without collisions of their own."""
    d_out, d_in, k = 12, 8, 16
    if rank_one:  # the worst case for dependent signs
        a, g = vectors(1, d_in), vectors(1, d_out)
    else:
        a, g = vectors(5, d_in), vectors(5, d_out)
    factor = LinearPairs(g.unsqueeze(1), 0.0, a)
    u = torch.einsum("nto,nti->noi", g, a)

    def sketched(seed: int) -> Tensor:
        return Projection(k, seed, 1, torch.float64, CPU)([(("w",), factor)], 2, 1)[:, 0]

    def apart(left: Tensor, right: Tensor) -> Tensor:
        """Sum of left_ij right_i'j' over i != i' and j != j'."""
        same_row, same_column = (left.sum(1) * right.sum(1)).sum(), (left.sum(0) * right.sum(0)).sum()
        return left.sum() * right.sum() - same_row - same_column + (left * right).sum()

    inner = (u[0] * u[1]).sum()
    variance = (apart(u[0].square(), u[1].square()) + apart(u[0] * u[1], u[0] * u[1])) / (k - 1)
    assert variance <= (u[0].square().sum() * u[1].square().sum() + inner**2) / (k - 1)
    agrees(estimates(sketched), inner, variance)


def test_products_of_more_inputs_and_outputs_than_places() -> None:
    a, g = vectors(3, 21), vectors(3, 18)
    u, k = torch.einsum("nto,nti->noi", g, a), 8
    factor = LinearPairs(g.unsqueeze(1), 0.0, a)
    found = estimates(lambda seed: Projection(k, seed, 1, torch.float64, CPU)([(("w",), factor)], 2, 1)[:, 0])
    inner = (u[0] * u[1]).sum()
    bound = (u[0].square().sum() * u[1].square().sum() + inner**2) / k
    extra = 2 * ((u[0].T @ u[1]).square().sum() + (u[0] @ u[1].T).square().sum()) / k
    squares = (found - inner).square()
    assert (found.mean() - inner).abs() < 4 * squares.mean().sqrt() / SEEDS**0.5
    assert squares.mean() < bound + extra


@pytest.mark.parametrize("k", [5, 8, 64])
def test_product_forms_are_one_linear_map(k: int) -> None:
    """A dense layer, positions, and look-ups of an embedding by the same map: that of the matrix entries."""
    n, readouts, positions, d_out, d_in = 3, 2, 4, 6, 9
    make = torch.Generator().manual_seed(0)
    g = torch.randn(n, readouts, positions, d_out, dtype=torch.float64, generator=make)
    index = torch.randint(0, d_in, (n, positions), generator=make)
    lookup = LookupPairs(g, 0.0, index, d_in)
    pairs = LinearPairs(g, 0.0, lookup.vectors())
    projection = Projection(k, 3, 1, torch.float64, CPU)
    found = projection([(("w",), lookup)], n, readouts)
    torch.testing.assert_close(found, projection([(("w",), pairs)], n, readouts), rtol=0, atol=1e-12)
    summed = sum(
        projection([(("w",), Hadamard(pairs.a[:, t], g[:, :, t].contiguous(), 0.0))], n, readouts)
        for t in range(positions)
    )
    torch.testing.assert_close(found, summed, rtol=0, atol=1e-12)
    tensor_sketch = TensorSketch(d_out, d_in, k, generator(3, "w", "matrix"), DOUBLE)
    rows, columns = tensor_sketch.row_places, tensor_sketch.columns.places(torch.arange(d_in))
    signs = tensor_sketch.row_signs[:, None] * tensor_sketch.columns.signs
    gradients = torch.einsum("nrto,nti->nroi", g, pairs.a)
    places = ((rows[:, None] + columns) % k).flatten().expand(n, readouts, -1)
    expected = torch.zeros(n, readouts, k, dtype=torch.float64).scatter_add_(2, places, (gradients * signs).flatten(2))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_places_of_a_block_differ() -> None:
    for seed in range(20):
        columns = CountSketch(30, 12, generator(seed, "a"), DOUBLE)
        places = columns.places(torch.arange(30))
        rows = TensorSketch(30, 4, 12, generator(seed, "b"), DOUBLE).row_places
        for found in (places, rows):
            assert int(found.min()) >= 0
            assert int(found.max()) < 12
            assert all(len(block.unique()) == len(block) for block in found.split(12))


def test_names_and_seeds_are_told_apart() -> None:
    draws = [torch.rand(1, generator=generator(*key)) for key in [(0, "a"), (1, "a"), (0, "b"), (0, "a", "b"), (0,)]]
    assert len({float(d) for d in draws}) == len(draws)


@pytest.mark.parametrize("positions", [1, 3])
def test_a_bias_has_a_map_of_its_own(positions: int) -> None:
    """A weight with its bias is sketched as the two are sketched by themselves, under their own names."""
    source = torch.Generator().manual_seed(0)
    g = torch.randn(4, 2, positions, 5, generator=source, dtype=torch.float64)
    a = torch.randn(4, positions, 3, generator=source, dtype=torch.float64)
    both: Hadamard | LinearPairs
    if positions == 1:
        both = Hadamard(a[:, 0], g[:, :, 0], 0.5)
    else:
        both = LinearPairs(g, 0.5, a)
    projection = Projection(16, 0, 64, torch.float64, torch.device("cpu"))
    found = projection([(("weight", "bias"), both)], 4, 2)
    weight = projection([(("weight",), replace(both, bias=0.0))], 4, 2)
    bias = projection([(("bias",), Direct(0.5 * g.sum(2)))], 4, 2)
    torch.testing.assert_close(found, weight + bias, rtol=1e-12, atol=1e-12)
    other = projection([(("weight",), Direct(0.5 * g.sum(2)))], 4, 2)
    assert not torch.allclose(bias, other)
