"""Forward passes that use transforms of ``torch.func`` themselves."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import tangentlab
from tangentlab.linearized import linearize
from tests.linearized.reference import difference, flat, jacobian, move


class Inner(nn.Module):
    """The gradient of an energy for each sample, by transforms of ``torch.func``."""

    def __init__(self, mapped: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.mapped = nn.Linear(4, 3), mapped

    def energy(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x)).square().sum()

    def forward(self, x: Tensor) -> Tensor:
        if self.mapped:
            return torch.func.vmap(torch.func.grad(self.energy))(x)
        return torch.func.grad(lambda inputs: torch.tanh(self.layer(inputs)).square().sum())(x)


class Jacobians(Inner):
    def forward(self, x: Tensor) -> Tensor:
        return torch.func.vmap(torch.func.jacrev(lambda s: torch.tanh(self.layer(s))))(x).flatten(1)


class Forwards(Inner):
    def forward(self, x: Tensor) -> Tensor:
        return torch.func.jvp(lambda s: torch.tanh(self.layer(s)), (x,), (torch.ones_like(x),))[1]


class Hessians(Inner):
    def forward(self, x: Tensor) -> Tensor:
        return torch.func.vmap(torch.func.hessian(self.energy))(x).flatten(1)


_MAKE = [lambda: Inner(True), lambda: Inner(False), *(partial(c, True) for c in (Jacobians, Forwards, Hessians))]


@pytest.mark.parametrize("make", _MAKE)
@pytest.mark.parametrize("dtype", [None, torch.float64])
def test_transforms_inside_the_forward_pass(make: Callable[[], nn.Module], dtype: torch.dtype | None) -> None:
    model, x = make(), torch.randn(4, 4, generator=torch.Generator().manual_seed(1))
    kernel = tangentlab.ntk(model, x, dtype=dtype)
    expected = _plain(make().to(dtype), x.to(dtype))
    torch.testing.assert_close(kernel.reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)


def _plain(model: nn.Module, x: Tensor) -> Tensor:
    parameters = list(model.parameters())
    rows = []
    for sample in x:
        for value in model(sample[None]).reshape(-1):
            grads = torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True)
            pairs = zip(grads, parameters, strict=True)
            rows.append(torch.cat([(torch.zeros_like(p) if g is None else g).reshape(-1) for g, p in pairs]))
    matrix = torch.stack(rows)
    return matrix @ matrix.T


@pytest.mark.parametrize("make", _MAKE)
def test_linearized_transforms_inside_the_forward_pass(make: Callable[[], nn.Module]) -> None:
    model, x = make().double(), torch.randn(4, 4, dtype=torch.float64)
    lin = linearize(model)
    move(lin)
    start, rows = jacobian(model, x)
    expected = start + rows @ flat(lin.displacement().values())
    output = lin(x)
    assert difference(output.detach().reshape(-1), expected) < 1e-9
    output.square().sum().backward()
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in lin.parameters()]
    assert difference(flat(grads), 2 * rows.T @ expected) < 1e-9
