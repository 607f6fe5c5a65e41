"""A family of operations defined in this file alone has everything that the built-in ones have.

``F.bilinear``: y_o = x1^T W_o x2, so the gradient of W is the outer product of three vectors, g (x) x1 (x) x2, and the
kernel is the entrywise product of three Gram matrices.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tangentlab
from tangentlab.kernels._cost import Cost
from tangentlab.kernels._projection import Sketch
from tangentlab.kernels.factors import Factor, Total
from tangentlab.kernels.rules import RULES, TABLE, Call, Use, Uses, rule
from tangentlab.kernels.rules._broadcast import Broadcast


@dataclass
class Triple(Factor):
    """Gradients g (x) a (x) b, with g (n, R, d_out), a (n, d_1) and b (n, d_2)."""

    g: Tensor
    a: Tensor
    b: Tensor

    def add_gram(self, other: Self, total: Total) -> None:
        shape = (self.count, self.readouts, other.count, other.readouts)
        outputs = (self.g.flatten(0, 1) @ other.g.flatten(0, 1).T).view(shape)
        inputs = (self.a @ other.a.T) * (self.b @ other.b.T)
        total.room().add_((outputs * inputs[:, None, :, None]).view(total.out.shape))

    def diagonal(self) -> Tensor:
        inputs = self.a.square().sum(1) * self.b.square().sum(1)
        return (self.g @ self.g.mT) * inputs[:, None, None]

    def pull(self, v: Tensor) -> Tensor:
        return torch.einsum("nrm,nro,ni,nj->moij", v, self.g, self.a, self.b).flatten(1)

    def push(self, u: Tensor) -> Tensor:
        maps = u.unflatten(1, (self.g.shape[2], self.a.shape[1], self.b.shape[1]))
        return torch.einsum("moij,nro,ni,nj->nrm", maps, self.g, self.a, self.b)

    def add_sketch(self, names: Sequence[str], sketch: Sketch) -> None:
        both = torch.einsum("ni,nj->nij", self.a, self.b).flatten(1)
        for rows in sketch.pieces(1):
            sketch.add_outer(names[0], rows, both[rows].unsqueeze(1), self.g[rows].unsqueeze(2))

    def merged(self) -> Self:
        return type(self)(self.g.flatten(1).unsqueeze(1), self.a, self.b)

    @property
    def pair_operations(self) -> float:
        return 2.0 * (self.a.shape[1] + self.b.shape[1] + self.readouts**2 * self.g.shape[2])

    @property
    def pull_operations(self) -> float:
        return 2.0 * self.g.shape[2] * self.a.shape[1] * self.b.shape[1]


@dataclass
class Bilinear(Use):
    """A weight (d_out, d_1, d_2) that meets two vectors of a sample."""

    shape: torch.Size
    a: Tensor
    b: Tensor

    def gradient(self, g: Tensor) -> Tensor:
        return torch.einsum("bro,bi,bj->broij", g.flatten(2), self.a, self.b)

    def compact_cost(self, readouts: int, k: int = 0) -> Cost:
        outputs, one, two = self.shape
        floats = one + two + readouts * outputs
        return Cost(2.0 * (one + two + readouts**2 * outputs), 0, floats, 2.0 * math.prod(self.shape), floats + k)

    def compact(self, g: Tensor, scale: float, bias: float) -> Factor:
        assert bias == 0
        return Triple(g.flatten(2) * scale, self.a, self.b)


def bilinear(call: Call, input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Uses:
    """y = x1^T W x2 + b."""
    uses: Uses = [(weight, Bilinear(weight.shape, call.split(input1)[:, 0], call.split(input2)[:, 0]))]
    if bias is not None:
        uses.append((bias, Broadcast.aligned(bias, call.output, scale=1.0)))
    return uses


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 5), nn.Linear(4, 6, bias=False)
        self.both = nn.Bilinear(5, 6, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.both(torch.tanh(self.one(x)), torch.tanh(self.two(x)))


@pytest.fixture(params=["operation", "same operation, scaled"])
def model(request: Any) -> nn.Module:
    torch.manual_seed(0)
    network = Network().double()
    if request.param != "operation":  # the use is then of a tensor derived from the parameter
        network.both.forward = lambda a, b: F.bilinear(a, b, 0.5 * network.both.weight)  # type: ignore[method-assign]
    return network


X = torch.randn(9, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
Y = torch.randn(5, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    table, own = list(TABLE), RULES[F.bilinear]
    rule(F.bilinear, example="nn.Bilinear", form="gradient")(bilinear)
    yield
    RULES[F.bilinear] = own
    TABLE[:] = table


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_explain_names_its_form(model: nn.Module) -> None:
    rows = tangentlab.explain(model, X).set_index("layer")
    assert rows.loc["both", "form"] == "compact"
    assert "bilinear" in rows.loc["both", "operation"]
    assert rows.loc["both", "floats"] == 5 + 6 + 3 * 3


def test_without_the_rule_it_is_the_fallback() -> None:
    del RULES[F.bilinear]
    try:
        rows = tangentlab.explain(Network().double(), X).set_index("layer")
    finally:
        RULES[F.bilinear] = bilinear
    assert rows.loc["both", "form"] == "fallback"


@pytest.mark.parametrize("readout", ["full", "pntk", "trace", "per_class", 1])
def test_kernels(model: nn.Module, readout: Any) -> None:
    close(tangentlab.ntk(model, X, readout=readout), tangentlab.reference.ntk(model, X, readout=readout))
    close(tangentlab.ntk(model, X, Y, readout=readout), tangentlab.reference.ntk(model, X, Y, readout=readout))


def test_layers_and_diagonal(model: nn.Module) -> None:
    own = tangentlab.reference.ntk(model, X, parameters="both")
    close(tangentlab.ntk(model, X, per_layer=True)["both"], own)
    full = tangentlab.reference.ntk(model, X)
    close(tangentlab.ntk(model, X, diagonal=True), torch.stack([full[n, :, n] for n in range(len(X))]))


def test_products(model: nn.Module) -> None:
    kernel = tangentlab.reference.ntk(model, X, Y).flatten(2).flatten(0, 1)
    operator = tangentlab.NTKOperator(model, X, Y)
    v, w = torch.randn(15, 2).double(), torch.randn(27).double()
    close(operator @ v, kernel @ v)
    close(operator.T @ w, kernel.T @ w)
    own, square = tangentlab.reference.ntk(model, X).flatten(2).flatten(0, 1), tangentlab.NTKOperator(model, X)
    for columns in (1, 400):  # by pulling back, and by tiles
        block = torch.randn(27, columns).double()
        close(square.quadratic_form(block), (block * (own @ block)).sum(0))


def test_sketch_is_unbiased(model: nn.Module) -> None:
    kernel = tangentlab.reference.ntk(model, X, readout="pntk")
    seeds, k = 200, 16
    found = [tangentlab.kernels.sketch(model, X, k, seed=seed, check=False).features for seed in range(seeds)]
    mean = torch.stack([f @ f.T for f in found]).mean(0)
    scale = kernel.diagonal()
    error = (3 * (scale[:, None] * scale + kernel.square()) / (k * seeds)).sqrt()
    assert bool(((mean - kernel).abs() <= 4 * error).all())


def test_a_wrong_factor_is_found(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    right = Triple.add_gram
    monkeypatch.setattr(Triple, "add_gram", lambda self, o, total: right(self, o, total) or total.out.mul_(1.01))
    with pytest.warns(UserWarning, match="fallback"):
        close(tangentlab.ntk(model, X), tangentlab.reference.ntk(model, X))
