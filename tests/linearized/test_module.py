"""The linearized model behaves like any other module."""

import copy
import io
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, jvp, vmap

from tangentlab.linearized import Linearized, linearization_error, linearize
from tests.linearized.reference import difference, flat, jacobian, move


class Net(nn.Module):
    """Parameters at the root and below, a tied one, buffers of two kinds, BatchNorm."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.register_buffer("steps", torch.tensor(7))
        self.register_buffer("mask", torch.ones(6), persistent=False)
        self.first = nn.Linear(4, 6)
        self.norm = nn.BatchNorm1d(6)
        self.second = nn.Linear(6, 6)
        self.second.weight = nn.Parameter(torch.randn(6, 6))
        self.third = nn.Linear(6, 6, bias=False)
        self.third.weight = self.second.weight
        self.out = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.norm(self.first(x))) * self.mask
        x = torch.tanh(self.third(torch.tanh(self.second(x)) * self.scale))
        return self.out(x)


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    net = Net()
    net(torch.randn(32, 4))  # gives BatchNorm statistics
    return net.double()


@pytest.fixture
def x() -> Tensor:
    torch.manual_seed(1)
    return torch.randn(5, 4, dtype=torch.float64)


def moved(network: nn.Module, **options: Any) -> Linearized:
    lin = linearize(network, **options)
    move(lin)
    return lin


def test_names_and_state_are_the_networks(net: Net, x: Tensor) -> None:
    lin = linearize(net)
    assert [n for n, _ in lin.named_parameters()] == [n for n, _ in net.named_parameters()]
    assert [n for n, _ in lin.named_buffers()] == [n for n, _ in net.named_buffers()]
    assert list(lin.state_dict()) == list(net.state_dict())
    assert lin.second.weight is lin.third.weight
    other = Net().double()
    lin.load_state_dict(other.state_dict())
    assert torch.equal(flat(lin.parameters()), flat(other.parameters()))
    third = Net().double()
    third.load_state_dict(lin.state_dict())
    assert torch.equal(flat(third.parameters()), flat(other.parameters()))
    start, rows = jacobian(net.eval(), x)
    expected = start + rows @ (flat(other.parameters()) - flat(net.parameters()))
    assert difference(lin(x).detach().reshape(-1), expected) < 1e-10


def test_state_inside_a_larger_module(net: Net) -> None:
    whole = nn.Sequential(linearize(net), nn.Linear(3, 2).double())
    state = whole.state_dict()
    assert "0.second.weight" in state
    state["0.scale"] = torch.tensor(9.0, dtype=torch.float64)
    whole.load_state_dict(state)
    assert whole[0].scale.item() == 9.0


def test_the_network_is_not_changed(net: Net, x: Tensor) -> None:
    before = copy.deepcopy(net.state_dict())
    lin = moved(net)
    lin(x).sum().backward()
    torch.optim.SGD(lin.parameters(), lr=1.0).step()
    assert net.training
    assert all(parameter.grad is None for parameter in net.parameters())
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_changing_the_network_later_does_not_change_the_linearization(net: Net, x: Tensor) -> None:
    lin = moved(net)
    before = lin(x)
    move(net, seed=8)
    net(torch.randn(64, 4, dtype=torch.float64))
    assert torch.equal(lin(x), before)


@pytest.mark.parametrize("how", ["deepcopy", "pickle", "torch.save"])
@pytest.mark.parametrize("bias", [True, False])
def test_copies_keep_the_base_point(net: Net, x: Tensor, how: str, bias: bool) -> None:
    lin = moved(net, at=Net().double(), bias=bias)
    if how == "deepcopy":
        twin = copy.deepcopy(lin)
    elif how == "pickle":
        twin = pickle.loads(pickle.dumps(lin))
    else:
        file = io.BytesIO()
        torch.save(lin, file)
        file.seek(0)
        twin = torch.load(file, weights_only=False)
    assert torch.equal(twin(x), lin(x))
    before = lin(x)
    twin.load_state_dict(net.state_dict())  # the copy's tree must still be shared with what it evaluates
    assert torch.equal(twin.scale, net.scale)
    assert not torch.equal(twin(x), before)
    assert torch.equal(lin(x), before)
    twin.float()
    assert twin(x.float()).dtype == torch.float32
    assert torch.equal(lin(x), before)


def test_moving_to_another_type(net: Net, x: Tensor) -> None:
    lin = moved(net, at=Net().double(), theta0=net)
    exact = lin(x)
    lin.float()
    assert {t.dtype for t in lin.parameters()} == {torch.float32}
    assert lin.steps.dtype == torch.int64
    single = lin(x.float())
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), exact, rtol=1e-4, atol=1e-4)
    single.sum().backward()
    assert lin.scale.grad is not None
    assert lin.scale.grad.dtype == torch.float32


def test_to_another_device() -> None:
    lin = linearize(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), theta0=None).to("meta")
    output = lin(torch.empty(5, 4, device="meta"))
    assert output.shape == (5, 3)
    assert output.is_meta


def test_training_mode_does_not_matter(net: Net, x: Tensor) -> None:
    lin = moved(net)
    one = lin.train()(x)
    assert lin.training
    assert not lin.norm.training
    two = lin.eval()(x)
    assert not lin.training
    assert torch.equal(one, two)
    nn.Sequential(lin).train()
    assert not lin.norm.training
    assert torch.equal(lin(x), one)
    statistics = lin.norm.running_mean.clone()
    lin.train()(x)
    assert torch.equal(lin.norm.running_mean, statistics)


def test_batch_norm_policies(net: Net, x: Tensor) -> None:
    frozen, live = moved(net), moved(net, batch_norm="eval")
    assert torch.equal(frozen(x), live(x))
    before = frozen(x)
    for lin in (frozen, live):
        state = lin.state_dict()
        state["norm.running_mean"] = state["norm.running_mean"] + 1
        lin.load_state_dict(state)
    assert torch.equal(frozen(x), before)
    assert not torch.allclose(live(x), before)
    shifted = copy.deepcopy(net)
    shifted.norm.running_mean += 1
    assert torch.equal(live(x), moved(shifted)(x))


def test_statistics_come_from_the_checkpoint(net: Net, x: Tensor) -> None:
    other = copy.deepcopy(net)
    other.norm.running_var *= 2
    torch.testing.assert_close(linearize(net, at=other)(x), other.eval()(x))
    torch.testing.assert_close(linearize(net, at=other.state_dict())(x), other.eval()(x))


def test_hooks(net: Net, x: Tensor) -> None:
    lin = moved(net)
    seen: dict[str, Any] = {}
    handles = [
        lin.register_forward_pre_hook(lambda module, args: (args[0] * 2,)),
        lin.register_forward_hook(lambda module, args, output: seen.update(output=output)),
        lin.first.register_forward_hook(lambda module, args, output: seen.update(first=output.detach().clone())),
        lin.register_full_backward_hook(lambda module, inputs, outputs: seen.update(gradient=outputs[0])),
        lin.scale.register_hook(lambda g: seen.update(scale=g)),
    ]
    output = lin(x)
    assert torch.equal(seen["output"], output)
    torch.testing.assert_close(seen["first"], net.first(2 * x))
    output.sum().backward()
    assert torch.equal(seen["gradient"], torch.ones_like(output))
    assert torch.equal(seen["scale"], lin.scale.grad)
    for handle in handles:
        handle.remove()
    assert not torch.equal(lin(x), output)


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


def test_a_step_costs_one_forward_and_one_backward_pass(x: Tensor) -> None:
    """Whatever the number of outputs: one call of the network, one backward pass through it."""
    counts = {"forward": 0, "backward": 0}

    class Count(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            counts["forward"] += 1
            return x * 1

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            counts["backward"] += 1
            return g * 1

        @staticmethod
        def jvp(ctx: Any, t: Tensor) -> Tensor:
            return t * 1

    class Middle(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return Count.apply(x)

    lin = moved(nn.Sequential(nn.Linear(4, 6), Middle(), nn.Linear(6, 50)).double())
    lin(x).square().sum().backward()
    assert counts == {"forward": 1, "backward": 1}


def test_merge(net: Net, x: Tensor) -> None:
    lin = moved(net)
    merged = lin.merge()
    assert isinstance(merged, Net)
    assert merged.norm.training
    assert torch.equal(merged.steps, net.steps)
    torch.testing.assert_close(flat(merged.parameters()), flat(lin.parameters()))
    half = lin.merge(scale=0.5)
    torch.testing.assert_close(flat(half.parameters()), (flat(net.parameters()) + flat(lin.parameters())) / 2)
    solution = Net().double()
    unbiased = moved(net, at=solution, bias=False)
    step = flat(unbiased.parameters()) - flat(net.parameters())
    torch.testing.assert_close(flat(unbiased.merge().parameters()), flat(solution.parameters()) + step)
    torch.testing.assert_close(flat(unbiased.merge(into=net).parameters()), flat(net.parameters()) + step)
    merged.scale.data += 1
    assert not torch.equal(merged.scale, lin.scale)


def test_linearization_error_falls_with_the_square_of_the_displacement(net: Net, x: Tensor) -> None:
    errors = []
    for size in (1e-2, 1e-3):
        lin = linearize(net)
        move(lin, size)
        error = linearization_error(lin, x)
        change = net.eval()(x)
        moved_by = lin.merge().eval()(x) - change
        torch.testing.assert_close(error.absolute, (lin.merge().eval()(x) - lin(x)).norm(dim=1).detach())
        torch.testing.assert_close(error.relative, (error.absolute / moved_by.norm(dim=1)).detach())
        errors.append(error)
    ratio = float(errors[0].absolute.norm() / errors[1].absolute.norm())
    assert 80 < ratio < 125
    assert 8 < errors[0].overall / errors[1].overall < 12.5
    zero = linearization_error(linearize(net), x)
    assert zero.overall == 0
    assert not zero.relative.any()
    unbiased = moved(net, bias=False)
    torch.testing.assert_close(linearization_error(unbiased, x).absolute, linearization_error(moved(net), x).absolute)
    assert "relative" in str(error)


def test_expand_gives_both_terms(net: Net, x: Tensor) -> None:
    lin = moved(net)
    primal, tangent = lin.expand(x)
    torch.testing.assert_close(primal, net.eval()(x).detach())
    torch.testing.assert_close(primal + tangent, lin(x).detach())
    assert not primal.requires_grad
    base = lin.base_state_dict()
    assert torch.equal(base["scale"], net.scale)
    base["scale"].zero_()
    assert torch.equal(lin(x).detach(), primal + tangent)


def test_weights_from_a_file(net: Net, x: Tensor, tmp_path: Path) -> None:
    torch.save(net.state_dict(), tmp_path / "weights.pt")
    torch.save({"model": net.state_dict(), "step": 3}, tmp_path / "checkpoint.pt")
    for name in ("weights.pt", "checkpoint.pt"):
        lin = linearize(Net().double(), at=tmp_path / name)
        torch.testing.assert_close(lin(x), net.eval()(x))
        assert torch.equal(lin.scale, net.scale)


def test_repr_says_what_it_is(net: Net) -> None:
    text = repr(linearize(net, bias=False))
    assert text.startswith("Linearized(")
    assert "Net, bias=False, batch_norm='frozen'" in text


def test_autocast(net: Net) -> None:
    network = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    lin = moved(network)
    x = torch.randn(5, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = lin(x)
    torch.testing.assert_close(output.float(), lin(x), rtol=0.05, atol=0.05)
    output.float().sum().backward()
    assert lin.get_parameter("0.weight").grad is not None
