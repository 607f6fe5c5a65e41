"""Gradients of every kind, and the ways of PyTorch that go through them."""

import threading
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, jvp, vmap

from tangentlab.linearized import linearize
from tests.linearized.networks import Net, moved
from tests.linearized.reference import difference, flat, jacobian


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compile(backend: str) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).double()
    lin = moved(network)
    x = torch.randn(5, 4, dtype=torch.float64)
    lin(x).square().sum().backward()
    expected = [p.grad.clone() for p in lin.parameters() if p.grad is not None]
    lin.zero_grad()
    torch._dynamo.reset()
    compiled = torch.compile(lin, backend=backend)
    output = compiled(x)
    torch.testing.assert_close(output, lin(x))
    output.square().sum().backward()
    torch.testing.assert_close([p.grad for p in lin.parameters()], expected)


def test_functional_call_and_transforms(net: Net, x: Tensor) -> None:
    lin = moved(net)
    start, rows = jacobian(net.eval(), x)
    theta = {name: value.detach() + 0.1 for name, value in lin.named_parameters()}
    reference = {name: value.detach() for name, value in net.named_parameters()}
    d = flat(theta[name] - reference[name] for name in theta)
    expected = (start + rows @ d).view(5, 3)
    torch.testing.assert_close(functional_call(lin, theta, (x,)), expected)

    def loss(weights: dict[str, Tensor], inputs: Tensor) -> Tensor:
        return functional_call(lin, weights, (inputs,)).square().sum()

    gradient = flat(grad(loss)(theta, x).values())
    assert difference(gradient, 2 * rows.T @ expected.reshape(-1)) < 1e-10
    each = vmap(grad(loss), in_dims=(None, 0))(theta, x[:, None])
    assert difference(flat(value.sum(0) for value in each.values()), gradient) < 1e-10
    per_sample = jacrev(lambda weights: functional_call(lin, weights, (x,)))(theta)
    whole = torch.cat([value.reshape(15, -1) for value in per_sample.values()], 1)
    assert difference(whole, rows) < 1e-10
    direction = {name: torch.ones_like(value) for name, value in theta.items()}
    _, tangent = jvp(lambda weights: functional_call(lin, weights, (x,)), (theta,), (direction,))
    assert difference(tangent.reshape(-1), rows.sum(1)) < 1e-10


def test_gradient_with_respect_to_inputs(net: Net, x: Tensor) -> None:
    lin = moved(net)
    x.requires_grad_()
    assert torch.autograd.gradcheck(lin, (x,))
    output = lin(x)
    assert torch.equal(output, output)
    torch.testing.assert_close(output.detach(), lin(x.detach()).detach())
    output.sum().backward()
    through_inputs = [p.grad.clone() for p in lin.parameters() if p.grad is not None]
    lin.zero_grad()
    lin(x.detach()).sum().backward()
    torch.testing.assert_close([p.grad for p in lin.parameters()], through_inputs)


def test_gradient_of_a_gradient(net: Net, x: Tensor) -> None:
    """The Hessian of L(f + J d) is J^T L'' J."""
    lin = moved(net)
    _, rows = jacobian(net.eval(), x)
    output = lin(x)
    parameters = list(lin.parameters())
    first = torch.autograd.grad(output.pow(3).sum(), parameters, create_graph=True)
    sizes = [p.numel() for p in parameters]
    v = torch.randn(sum(sizes), dtype=torch.float64)
    torch.autograd.backward(first, [part.view_as(p) for part, p in zip(v.split(sizes), parameters, strict=True)])
    curvature = (6 * output.detach()).reshape(-1)
    expected = rows.T @ (curvature * (rows @ v))
    assert difference(flat(p.grad for p in parameters), expected) < 1e-10


def test_backward_twice(net: Net, x: Tensor) -> None:
    lin = moved(net)
    output = lin(x).sum()
    output.backward(retain_graph=True)
    once = [p.grad.clone() for p in lin.parameters() if p.grad is not None]
    output.backward()
    torch.testing.assert_close([p.grad for p in lin.parameters()], [2 * g for g in once])
    with pytest.raises(RuntimeError, match="second time"):
        output.backward()


def test_backward_in_another_thread(net: Net, x: Tensor) -> None:
    lin = moved(net)
    output = lin(x).sum()
    thread = threading.Thread(target=output.backward)
    thread.start()
    thread.join()
    assert lin.scale.grad is not None


def test_inside_an_autograd_function(net: Net, x: Tensor) -> None:
    """PyTorch switches forward mode off there, which must not go unnoticed."""
    lin = moved(net)

    class Through(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return lin(x)

    assert torch.equal(Through.apply(x), lin(x))


def test_activations_are_freed_by_the_backward_pass() -> None:
    """A loss that is kept, as every training loop keeps it until the next one, must not keep the activations."""
    torch.manual_seed(0)
    big: list[Any] = []

    class Spy(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            import weakref

            y = torch.exp(x)
            big.append(weakref.ref(y))
            return y

    lin = moved(nn.Sequential(nn.Linear(4, 8), Spy(), nn.Linear(8, 1)))
    loss = lin(torch.randn(3, 4)).sum()
    assert big[-1]() is not None
    loss.backward()
    assert big[-1]() is None


def test_without_gradients(net: Net, x: Tensor) -> None:
    lin = moved(net)
    expected = lin(x)
    with torch.no_grad():
        assert torch.equal(lin(x), expected)
        assert not lin(x).requires_grad
    with torch.inference_mode():
        assert torch.equal(lin(x), expected)
        assert torch.equal(lin(x.clone()), expected)
    lin.requires_grad_(False)
    assert torch.equal(lin(x), expected)
    assert not lin(x).requires_grad


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW", "Adagrad", "RMSprop", "LBFGS"])
def test_any_optimiser(optimizer: str, net: Net, x: Tensor) -> None:
    lin = linearize(net)
    y = torch.randn(5, 3, dtype=torch.float64)
    instance = getattr(torch.optim, optimizer)(lin.parameters(), lr=0.01)

    def closure() -> Tensor:
        instance.zero_grad()
        loss = F.mse_loss(lin(x), y)
        loss.backward()
        return loss

    first = float(closure().detach())
    for _ in range(2 if optimizer == "LBFGS" else 40):
        instance.step(closure)
    assert float(closure().detach()) < 0.9 * first


def test_a_step_costs_one_forward_and_one_backward_pass(x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the number of outputs: one call of the network, one backward pass through it.

    The first call of all compares the two modes, which costs one more of each.
    """
    counts = {"forward": 0, "backward": 0}
    original = torch.autograd.grad

    def counting(*args: Any, **options: Any) -> Any:
        counts["backward"] += 1
        return original(*args, **options)

    class Middle(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            counts["forward"] += 1
            return x * 1

    monkeypatch.setattr(torch.autograd, "grad", counting)
    lin = moved(nn.Sequential(nn.Linear(4, 6), Middle(), nn.Linear(6, 50)).double())
    for expected in ({"forward": 3, "backward": 2}, {"forward": 1, "backward": 1}):
        lin(x).square().sum().backward()
        assert counts == expected
        counts.update(forward=0, backward=0)


def test_autocast(net: Net) -> None:
    network = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    lin = moved(network)
    x = torch.randn(5, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = lin(x)
    torch.testing.assert_close(output.float(), lin(x), rtol=0.05, atol=0.05)
    output.float().sum().backward()
    assert lin.get_parameter("0.weight").grad is not None


def test_the_memory_of_large_displacements_is_used_again() -> None:
    class Large(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(2**18))

        def forward(self, x: Tensor) -> Tensor:
            return self.weight

    lin = linearize(Large(), bias=False)
    outputs = []
    for value in (1.0, 2.0):
        lin.get_parameter("weight").data.fill_(value)
        with torch.no_grad():
            outputs.append(lin(torch.zeros(1)))
    assert [float(output[0]) for output in outputs] == [1.0, 2.0]
