"""Random networks with regions without gradients, hooks and functions of their own, against an explicit Jacobian."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tangentlab
from tangentlab.linearized import linearize
from tests.linearized.reference import difference, flat, jacobian, move
from tests.linearized.test_agreement import _function

_WIDTH = 4
_cube = _function(lambda x: x**3 / 3, lambda x, g: x * x * g)
_wrong = _function(torch.tanh, lambda x, g: 0.5 * g, lambda x, t: t / torch.cosh(x) ** 2)
_clip = _function(torch.sign, lambda x, g: g * (x.abs() < 1))


class Block(nn.Module):
    """A layer, an activation and a way to treat gradients, chosen at random."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self.layer = draw.choice(_LAYERS)()
        self.side = nn.Linear(_WIDTH, _WIDTH)
        self.activation = draw.choice([torch.tanh, F.silu, F.gelu, F.softplus, torch.sin, lambda h: F.softmax(h, -1)])
        self.treat = draw.choice(_TREATMENTS)

    def forward(self, h: Tensor) -> Tensor:
        return h + self.treat(self, self.activation(self.layer(h)))


class Convolved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv1d(1, 1, 3, padding=1)

    def forward(self, h: Tensor) -> Tensor:
        return self.layer(h.unsqueeze(1)).squeeze(1)


class Pooled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 2, 3, padding=1)

    def forward(self, h: Tensor) -> Tensor:
        image = self.layer(h[:, None, None, :].expand(-1, 1, 4, -1))
        return F.avg_pool2d(image, 2).flatten(1)[:, :_WIDTH]


class Attended(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(2, 1, batch_first=True)

    def forward(self, h: Tensor) -> Tensor:
        tokens = h.unflatten(1, (2, 2))
        return self.layer(tokens, tokens, tokens, need_weights=False)[0].flatten(1)


class Tabled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, _WIDTH, padding_idx=1, sparse=True)

    def forward(self, h: Tensor) -> Tensor:
        return h * self.table((h.detach().sum(1) > 0).long() + 1)


_LAYERS: list[Callable[[], nn.Module]] = [
    lambda: nn.Linear(_WIDTH, _WIDTH),
    lambda: nn.Sequential(nn.Linear(_WIDTH, _WIDTH), nn.LayerNorm(_WIDTH)),
    lambda: nn.Sequential(nn.Linear(_WIDTH, _WIDTH), nn.GroupNorm(2, _WIDTH)),
    lambda: nn.Sequential(nn.BatchNorm1d(_WIDTH), nn.Linear(_WIDTH, _WIDTH, bias=False)),
    Convolved,
    Pooled,
    Attended,
    Tabled,
]


def _without(m: Any, h: Tensor) -> Tensor:
    with torch.no_grad():
        gate = torch.sigmoid(m.side(h))
    return h * gate


def _mixed(m: Any, h: Tensor) -> Tensor:
    with torch.no_grad():
        a = m.side(h)
        with torch.enable_grad():
            b = m.side(h) * 2
        c = a[:, :2] + b[:, :2]
    return torch.cat([c * h[:, :2], b[:, 2:]], 1)


def _hooked(m: Any, h: Tensor) -> Tensor:
    h = m.side(h)
    if h.requires_grad:
        h.register_hook(lambda g: 0.3 * g)
    return h


def _sometimes(m: Any, h: Tensor) -> Tensor:
    if float(h.detach().sum()) > 0:
        return _without(m, h)
    return m.side(h)


_TREATMENTS: list[Callable[[Any, Tensor], Tensor]] = [
    *[lambda m, h: h] * 4,
    _without,
    _mixed,
    _sometimes,
    lambda m, h: h.detach() * m.side(h),
    lambda m, h: m.side(h) + (torch.round(h) - h).detach(),
    lambda m, h: _cube(m.side(h)),
    lambda m, h: _wrong(m.side(h)),
    lambda m, h: _clip(m.side(h)),
    _hooked,
]


@pytest.mark.parametrize("seed", range(40))
def test_random_networks(seed: int) -> None:
    check(seed)


def check(seed: int) -> None:
    """Values, gradients and kernel of one random network, in both precisions and modes."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    network = nn.Sequential(*(Block(draw) for _ in range(draw.randint(1, 4))), nn.Linear(_WIDTH, 2)).eval()
    x = torch.randn(3, _WIDTH)
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 2e-4)):
        network, x = network.to(dtype), x.to(dtype)
        dense = network
        for module in dense.modules():
            if isinstance(module, nn.Embedding):
                module.sparse = False
        start, rows = jacobian(dense, x)
        for module in network.modules():
            if isinstance(module, nn.Embedding):
                module.sparse = True
        lin = linearize(network)
        move(lin, seed=seed)
        expected = start + rows @ flat(lin.displacement().values())
        if draw.random() < 0.5:
            with torch.no_grad():
                assert difference(lin(x).reshape(-1), expected) < tolerance
        for _ in range(2):
            lin.zero_grad()
            output = lin(x)
            assert difference(output.detach().reshape(-1), expected) < tolerance
            output.square().sum().backward()
            grads = [torch.zeros_like(p) if p.grad is None else p.grad.to_dense() for p in lin.parameters()]
            assert difference(flat(grads), 2 * rows.T @ expected) < 10 * tolerance
        if dtype == torch.float64 and all(getattr(block, "treat", None) is not _sometimes for block in network):
            kernel = tangentlab.ntk(network, x).reshape(6, 6)
            assert difference(kernel, rows @ rows.T) < 1e-8
