"""The linearized model behaves like any other module."""

import copy
import io
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from tangentlab.linearized import linearization_error, linearize
from tests.linearized.networks import Net, moved
from tests.linearized.reference import difference, flat, jacobian, move


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


def test_hooks_of_a_tool_have_no_effect_on_later_calls(net: Net, x: Tensor) -> None:
    lin = moved(net)
    expected = lin(x)
    with FlopCounterMode(display=False):  # adds hooks to all modules, which look at the graph
        assert torch.allclose(lin(x), expected)
    assert not lin._settings.distrust  # else all further calls would take the slower way
    assert torch.equal(lin(x), expected)


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


def test_linearization_error_is_zero_at_the_start_in_single_precision() -> None:
    """Two passes round differently there, and that difference is no error of the expansion."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AvgPool2d(2)]
    layers += [nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)]
    model = nn.Sequential(*layers).eval()
    error = linearization_error(linearize(model), torch.randn(10, 3, 16, 16))
    assert error.overall == 0
    assert not error.absolute.any()


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
