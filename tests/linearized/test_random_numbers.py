"""Random numbers that nothing uses are no reason to refuse a network; all others are."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tangentlab import TangentError
from tangentlab.linearized import linearize
from tests.linearized.reference import difference, flat, moved


class Drawing(nn.Module):
    """Two layers and a function of the first's activations."""

    def __init__(self, function: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(self, torch.tanh(self.first(x)))


def _layer_drop(m: Any, h: Tensor) -> Tensor:
    drawn = torch.rand([])
    return h[:, :3] if m.training and drawn < 0.5 else m.last(h)


def _unread(m: Any, h: Tensor) -> Tensor:
    torch.randperm(7)
    torch.randn(3, 4)
    return m.last(h)


def _recomputed(m: Any, h: Tensor) -> Tensor:
    return checkpoint(lambda t: _layer_drop(m, t), h, use_reentrant=False, preserve_rng_state=False)


UNUSED = {"layer drop": _layer_drop, "not even kept": _unread, "in a checkpointed block": _recomputed}


@pytest.mark.parametrize("name", UNUSED)
def test_random_numbers_that_nothing_uses(name: str) -> None:
    network = Drawing(UNUSED[name]).double().eval()
    x = torch.randn(5, 4, dtype=torch.float64)
    lin, expected, rows = moved(network, x)
    state = torch.get_rng_state()
    for _ in range(2):  # the first call and a later one
        output = lin(x)
        assert difference(output.detach().reshape(-1), expected) < 1e-10
        grads = torch.autograd.grad(output.square().sum(), list(lin.parameters()))
        assert difference(flat(grads), 2 * rows.T @ expected) < 1e-10
        assert difference(lin(x.clone().requires_grad_()).detach().reshape(-1), expected) < 1e-10
    assert torch.equal(state, torch.get_rng_state())


@torch.jit.script
def _hidden(h: Tensor, noise: Tensor) -> Tensor:
    return h * noise


def _at_times(m: Any, h: Tensor) -> Tensor:
    drawn = torch.rand([])
    return m.last(h) * drawn if h.sum() > 0 else m.last(h)


USED: dict[str, Callable[[Any, Tensor], Any]] = {
    "layer drop in training mode": lambda m, h: m.last(h) if torch.rand([]) < 0.5 else m.last(h.relu()),
    "noise": lambda m, h: m.last(h + torch.randn_like(h)),
    "dropout": lambda m, h: m.last(F.dropout(h)),
    "returned": lambda m, h: (m.last(h), torch.randn(3)),
    "out of sight": lambda m, h: m.last(_hidden(h, torch.rand(6))),
    "as a number": lambda m, h: m.last(h) * torch.rand([]).item(),
}


@pytest.mark.parametrize("name", USED)
def test_random_numbers_that_change_the_outputs_are_refused(name: str) -> None:
    lin = linearize(Drawing(USED[name]).eval())
    state = torch.get_rng_state()
    for x in (torch.randn(5, 4, generator=torch.Generator().manual_seed(0)), torch.ones(5, 4, requires_grad=True)):
        with pytest.raises(TangentError, match="drew random numbers"):
            lin(x)
    assert torch.equal(state, torch.get_rng_state())


def test_random_numbers_used_for_some_inputs_alone_are_refused_for_these() -> None:
    network = Drawing(_at_times).eval()
    with torch.no_grad():
        network.first.weight.fill_(1.0)
        network.first.bias.zero_()
    lin = linearize(network)
    torch.testing.assert_close(lin(-torch.ones(2, 4)), network(-torch.ones(2, 4)))
    with pytest.raises(TangentError, match="drew random numbers"):
        lin(torch.ones(2, 4))


def test_randomness_is_refused_inside_of_transforms() -> None:
    lin = linearize(Drawing(USED["noise"]).eval())
    parameters = {name: p.detach() for name, p in lin.named_parameters()}
    x = torch.randn(5, 4)
    with pytest.raises(TangentError, match="drew random numbers"):
        torch.func.grad(lambda p: torch.func.functional_call(lin, p, (x,)).sum())(parameters)
