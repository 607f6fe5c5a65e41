"""Sums over very many parameters in single precision: off by at most 1e-6 of sqrt(K_ii K_jj)."""

import warnings
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import tangentlab
from tangentlab.kernels.factors import Direct, Factor, Factors, Hadamard
from tangentlab.kernels.rules._outer import LinearPairs

BOUND = 1e-6
LONG = 8_000_000


def direct(n: int) -> Factor:
    return Direct(_rows(n, LONG).unsqueeze(1))


def hadamard(n: int, d_in: int = 1_000_000, d_out: int = 2_000_000) -> Factor:
    return Hadamard(_rows(n, d_in), _rows(n, d_out).unsqueeze(1), 1.0)


def pairs(n: int, d_in: int = 100_000, d_out: int = 100_000) -> Factor:
    g, a = _rows(n * 8, d_out), _rows(n * 8, d_in)
    return LinearPairs(g.view(n, 1, 8, -1), 0.0, a.view(n, 8, -1))


def _rows(n: int, length: int) -> Tensor:
    """Rows that resemble each other, so that all terms of a sum have one sign and rounding does not cancel."""
    generator = torch.Generator().manual_seed(0)
    base = torch.rand(length, generator=generator)
    return base * (1 + 0.1 * torch.rand(n, 1, generator=generator))


def exact(factor: Factor) -> Tensor:
    """The kernel in double precision."""
    double = factor.map(lambda t: t.double())
    out = torch.zeros(factor.count, factor.count, dtype=torch.float64)
    Factors({("", 0): double}).add_gram(Factors({("", 0): double}), out)
    return out


FACTORS: list[Callable[[int], Factor]] = [direct, hadamard, pairs]


@pytest.mark.parametrize("make", FACTORS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (3, 3)], ids=str)
def test_kernel(make: Callable[[int], Factor], shape: tuple[int, int]) -> None:
    factor = make(3)
    expected = exact(factor)
    scale = expected.diagonal().sqrt()
    one, two = (Factors({("", 0): factor[:count]}) for count in shape)
    out = torch.zeros(shape)
    one.add_gram(two, out)
    error = (out.double() - expected[: shape[0], : shape[1]]).abs() / (scale[: shape[0], None] * scale[: shape[1]])
    assert float(error.max()) < BOUND


@pytest.mark.parametrize("make", FACTORS, ids=lambda f: f.__name__)
def test_diagonal(make: Callable[[int], Factor]) -> None:
    factor = make(2)
    blocks = Factors({("", 0): factor}).diagonal()[:, 0, 0].double()
    assert float((blocks / exact(factor).diagonal() - 1).abs().max()) < BOUND


PRODUCTS = {
    "direct": lambda: direct(2),
    "wide inputs": lambda: hadamard(2, 100_000, 200),
    "wide outputs": lambda: hadamard(2, 200, 100_000),
    "pairs": lambda: pairs(2, 200, 100_000),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str) -> None:
    factor = PRODUCTS[name]()
    double = factor.map(lambda t: t.double())
    expected = exact(factor)
    v = torch.tensor([[1.0], [2.0]]).view(2, 1, 1)
    pulled = factor.pull(v)
    pushed = factor.push(pulled).flatten().double()
    assert float((pulled.double() - double.pull(v.double())).norm() / pulled.double().norm()) < BOUND
    wanted = expected @ v.double().flatten()
    assert float((pushed / wanted - 1).abs().max()) < BOUND


def test_many_small_factors() -> None:
    """A network of very many layers: their kernels are added up in double precision, too."""
    parts = {(str(i), 0): Direct(_rows(2, 64).unsqueeze(1)) for i in range(20_000)}
    out = torch.zeros(2, 2)
    Factors(parts).add_gram(Factors(parts), out)
    expected = exact(next(iter(parts.values()))) * len(parts)
    assert float((out.double() / expected - 1).abs().max()) < BOUND


def test_operator_and_verification() -> None:
    """A network of 17 million parameters, all of whose gradients have one sign: no false alarm, and right products."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4096, 4096, bias=False), torch.nn.Linear(4096, 1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.abs_()
    x = torch.rand(3, 1, 4096)
    with warnings.catch_warnings(action="error"):  # the fallback would warn
        kernel = tangentlab.ntk(model, x, readout=0)
        operator = tangentlab.NTKOperator(model, x, readout=0)
        quadratic = operator.quadratic_form(torch.ones(3))
    expected = tangentlab.reference.ntk(model, x, readout=0, dtype=torch.float64)
    assert float((kernel.double() / expected - 1).abs().max()) < 1e-5
    assert abs(float(quadratic) / float(expected.sum()) - 1) < 1e-5


@pytest.mark.soak
@pytest.mark.parametrize("count", [1, 2])
def test_a_billion_parameters(count: int) -> None:
    length = 1_000_000_000
    row = torch.rand(1, 1, length, generator=torch.Generator().manual_seed(0))
    factor = Direct(row.expand(count, 1, length))
    expected = sum(float(part.double().square().sum()) for part in row.flatten().split(1 << 20))
    out = torch.zeros(count, count)
    Factors({("", 0): factor}).add_gram(Factors({("", 0): factor}), out)
    assert float((out.double() / expected - 1).abs().max()) < BOUND
