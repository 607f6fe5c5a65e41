"""Outputs and gradients are those of f(x) + J(x)(theta - theta0), for every layer of the kernel engine's list."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tangentlab.linearized import linearize
from tangentlab.linearized._rules import _convolution, _memory_format
from tests.kernels.cases import CASES, Case, build
from tests.linearized.reference import difference, flat, jacobian, move


def check(network: nn.Module, inputs: tuple[Any, ...], tolerance: float, bias: bool = True) -> None:
    """Compare output and gradient of a displaced linearized model with the explicit Jacobian's."""
    lin = linearize(network, bias=bias)
    start, rows = jacobian(network, *inputs)
    move(lin)
    displacement = flat(lin.displacement().values())
    output = lin(*inputs)
    expected = rows @ displacement + (start if bias else 0)
    assert difference(output.detach().reshape(-1), expected) < tolerance
    generator = torch.Generator().manual_seed(5)
    cotangent = torch.randn(output.shape, generator=generator, dtype=torch.float64).to(output)
    output.backward(cotangent)
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in lin.parameters()]
    assert difference(flat(grads), rows.T @ cotangent.reshape(-1)) < tolerance
    with torch.no_grad():
        assert difference(lin(*inputs).reshape(-1), expected) < tolerance


# PyTorch has no forward-mode derivative of an embedding bag's maximum, and linearize refuses it.
LINEARIZABLE = [case for case in CASES if case.name != "embedding bag, maxima"]


@pytest.mark.parametrize("case", LINEARIZABLE, ids=lambda case: case.name)
def test_kernel_engines_layers(case: Case) -> None:
    network, x = build(case, 3, torch.float64)
    check(network, x if isinstance(x, tuple) else (x,), 1e-10)


def _sequence(*layers: nn.Module) -> Callable[[], nn.Module]:
    return lambda: copy.deepcopy(nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(2)))


# What the rules single out, and what lies just beyond each of their conditions.
LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "few channels": (_sequence(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 5, 3, bias=False)), (3, 7, 7)),
    "few channels, strided": (
        _sequence(nn.Conv2d(3, 4, 3, stride=(2, 1), padding=(1, 2), dilation=2), nn.Tanh(), nn.Conv2d(4, 2, 2)),
        (3, 9, 9),
    ),
    "many channels": (_sequence(nn.Conv2d(2, 116, 1), nn.ReLU(), nn.Conv2d(116, 34, 3, padding=1)), (2, 4, 4)),
    "many channels, grouped": (
        _sequence(nn.Conv2d(2, 232, 1), nn.Tanh(), nn.Conv2d(232, 34, 3, groups=2, stride=2)),
        (2, 5, 5),
    ),
    "middle": (_sequence(nn.Conv2d(2, 40, 3), nn.Tanh(), nn.Conv2d(40, 36, 2)), (2, 5, 5)),
    "few channels 1d": (_sequence(nn.Conv1d(2, 4, 3), nn.ReLU(), nn.Conv1d(4, 3, 2, stride=2)), (2, 9)),
    "few channels 3d": (_sequence(nn.Conv3d(2, 4, 2), nn.ReLU(), nn.Conv3d(4, 2, 2)), (2, 4, 4, 4)),
    "average pooling": (_sequence(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2)), (2, 6, 6)),
    "average pooling 3 x 1": (_sequence(nn.Conv2d(2, 3, 1), nn.Tanh(), nn.AvgPool2d((3, 1))), (2, 6, 4)),
    "average pooling, ragged": (_sequence(nn.Conv2d(2, 3, 1), nn.Tanh(), nn.AvgPool2d(2)), (2, 5, 6)),
    "average pooling, overlapping": (_sequence(nn.Conv2d(2, 3, 1), nn.Tanh(), nn.AvgPool2d(3, 2)), (2, 7, 7)),
    "average pooling, padded": (_sequence(nn.Conv2d(2, 3, 1), nn.Tanh(), nn.AvgPool2d(2, padding=1)), (2, 6, 6)),
    "average pooling, divisor": (
        _sequence(nn.Conv2d(2, 3, 1), nn.Tanh(), nn.AvgPool2d(2, divisor_override=3)),
        (2, 6, 6),
    ),
    "average pooling of inputs": (_sequence(nn.AvgPool2d(2), nn.Conv2d(2, 3, 1)), (2, 6, 6)),
    "max pooling": (_sequence(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(2)), (2, 8, 8)),
    "max pooling, ragged": (_sequence(nn.Conv2d(2, 3, 3), nn.MaxPool2d(2), nn.Tanh()), (2, 7, 9)),
    "batch norm without scale": (_sequence(nn.Linear(4, 5), nn.BatchNorm1d(5, affine=False), nn.Tanh()), (4,)),
    "batch norm first": (_sequence(nn.BatchNorm2d(2), nn.Tanh()), (2, 3, 3)),
    "relu in place": (_sequence(nn.Linear(4, 5), nn.ReLU(inplace=True), nn.Linear(5, 5)), (4,)),
    "relu of inputs": (_sequence(nn.ReLU(), nn.Linear(4, 5)), (4,)),
}


def _layer(name: str, dtype: torch.dtype) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(3)
    make, shape = LAYERS[name]
    x = torch.randn(4, *shape)
    network = make().eval()
    network(x)  # settles lazy layers
    for module in network.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return network.to(dtype), x.to(dtype)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("fused", [False, True])
def test_rules_in_double_precision(name: str, fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also along the paths that are chosen in float32 only."""
    monkeypatch.setattr(_convolution, "onednn", lambda tensor: fused)
    monkeypatch.setattr(_memory_format, "onednn", lambda tensor: fused)
    network, x = _layer(name, torch.float64)
    check(network, (x,), 1e-10)


@pytest.mark.parametrize("name", LAYERS)
def test_rules_in_single_precision(name: str) -> None:
    network, x = _layer(name, torch.float32)
    check(network, (x,), 2e-5)


def test_the_fast_convolutions_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guards the tests above against silently testing the general path twice."""
    general = 0
    original = _convolution._by_terms

    def counting(*args: Any) -> Tensor:
        nonlocal general
        general += 1
        return original(*args)

    monkeypatch.setattr(_convolution, "_by_terms", counting)
    for name, expected in (("few channels", 0), ("many channels", 2), ("few channels 3d", 0)):
        network, x = _layer(name, torch.float32)
        lin = linearize(network)
        lin(x)  # the first call compares forward mode with a backward pass
        general = 0
        lin(x)
        assert general == expected, name


@pytest.mark.parametrize("frozen", ["0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "5.weight", "5.bias"])
@pytest.mark.parametrize("moved", [False, True])
def test_frozen_parameters(frozen: str, moved: bool) -> None:
    """They get no gradient, and count as soon as somebody moves them."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3), nn.ReLU(), nn.Conv2d(3, 3, 2, bias=False), nn.Flatten(), nn.Linear(12, 2)
    )
    network.double().eval()
    network.get_parameter(frozen).requires_grad_(False)
    x = torch.randn(3, 2, 4, 4, dtype=torch.float64)
    for parameter in network.parameters():
        parameter.requires_grad_(True)
    start, rows = jacobian(network, x)
    network.get_parameter(frozen).requires_grad_(False)
    lin = linearize(network)
    move(lin)
    if not moved:
        with torch.no_grad():
            lin.get_parameter(frozen).copy_(network.get_parameter(frozen))
    output = lin(x)
    assert difference(output.detach().reshape(-1), start + rows @ flat(lin.displacement().values())) < 1e-10
    output.sum().backward()
    expected = rows.sum(0)
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in lin.parameters()]
    mask = flat(torch.full_like(p, float(p.requires_grad)) for p in lin.parameters())
    assert lin.get_parameter(frozen).grad is None
    assert difference(flat(grads), expected * mask) < 1e-10


@pytest.mark.parametrize("case", ["mlp", "conv2d", "attention", "tied embedding", "gru"])
def test_unbiased_form(case: str) -> None:
    network, x = build(next(c for c in CASES if c.name == case), 3, torch.float64)
    check(network, (x,), 1e-10, bias=False)


def test_expansion_at_a_checkpoint_started_elsewhere() -> None:
    torch.manual_seed(0)
    initial = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).double()
    solution = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    start, rows = jacobian(solution, x)
    for bias in (True, False):
        lin = linearize(initial, at=solution.state_dict(), bias=bias, theta0=initial)
        assert torch.equal(flat(lin.parameters()), flat(initial.parameters()))
        assert difference(lin(x).detach().reshape(-1), start * bias) < 1e-12
        move(lin)
        distance = flat(lin.parameters()) - flat(initial.parameters())
        assert difference(lin(x).detach().reshape(-1), start * bias + rows @ distance) < 1e-10


def test_where_it_starts_by_default() -> None:
    torch.manual_seed(0)
    here, there = nn.Linear(3, 2), nn.Linear(3, 2)
    assert torch.equal(linearize(here, at=there).weight, there.weight)
    assert torch.equal(linearize(here, at=there, bias=False).weight, here.weight)
    x = torch.randn(4, 3)
    torch.testing.assert_close(linearize(here, at=there)(x), there(x))
    assert torch.equal(linearize(here, at=there, bias=False)(x), torch.zeros(4, 2))


def test_outputs_of_any_structure() -> None:
    class Several(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 2), nn.Linear(3, 4)
            self.register_buffer("count", torch.tensor([3]))

        def forward(self, x: Tensor, *, scale: Tensor) -> dict[str, Any]:
            return {
                "a": F.gelu(self.a(x)) * scale,
                "rest": [self.b(x).argmax(1), (x * 2, self.b(x)), self.count],
                "name": "several",
            }

    torch.manual_seed(0)
    network = Several().double()
    x, scale = torch.randn(5, 3, dtype=torch.float64), torch.tensor(2.0, dtype=torch.float64)
    lin = linearize(network)
    move(lin)
    output = lin(x, scale=scale)
    plain = network(x, scale=scale)
    assert output["name"] == "several"
    assert torch.equal(output["rest"][0], plain["rest"][0])
    assert torch.equal(output["rest"][1][0], 2 * x)
    assert torch.equal(output["rest"][2], torch.tensor([3]))
    expected = F.linear(x, lin.b.weight, lin.b.bias)  # linear in its weights already
    torch.testing.assert_close(output["rest"][1][1], expected)
    (output["a"].sum() + output["rest"][1][1].square().sum()).backward()
    torch.testing.assert_close(lin.b.bias.grad, 2 * expected.sum(0).detach())
    (network(x, scale=scale)["a"].sum()).backward()
    torch.testing.assert_close(lin.a.weight.grad, network.a.weight.grad)
