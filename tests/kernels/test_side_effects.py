"""A forward pass that changes its model is refused or undone, and the user's model stays what it was."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tangentlab
from tangentlab import TangentError
from tangentlab.kernels import reference
from tangentlab.linearized import linearize
from tests.linearized.reference import difference, flat, jacobian, move


class Net(nn.Module):
    """A layer, state of every kind, and a function that may change it."""

    def __init__(self, act: Callable[[Any, Tensor], Tensor | None], fail: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.frozen = nn.Linear(4, 3), nn.Linear(4, 3).requires_grad_(False)
        self.register_buffer("buffer", torch.ones(3))
        self.register_buffer("empty", None)
        self.plain = torch.ones(3)
        self.array = np.ones(3)
        self.counter = 0
        self.items: list[Any] = [1.0, [2.0]]
        self.table: dict[str, Any] = {"a": 1.0}
        self.act, self.fail = act, fail

    def forward(self, x: Tensor) -> Tensor:
        result = self.act(self, self.layer(x))
        if self.fail:
            raise RuntimeError("the forward pass fails")
        assert result is not None
        return result


def _then(change: Callable[[Any], Any], use: Callable[[Any, Tensor], Tensor]) -> Callable[[Any, Tensor], Tensor]:
    def act(m: Any, h: Tensor) -> Tensor:
        with torch.no_grad():
            change(m)
        return use(m, h)

    return act


def _assign(name: str, value: Callable[[Any], Any]) -> Callable[[Any], None]:
    return lambda m: setattr(m, name, value(getattr(m, name)))


CHANGES: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "buffer reassigned": _then(_assign("buffer", lambda b: b + 1), lambda m, h: h * m.buffer),
    "buffer in place": _then(lambda m: m.buffer.add_(1), lambda m, h: h * m.buffer),
    "buffer in place through data": _then(lambda m: m.buffer.data.add_(1), lambda m, h: h * m.buffer),
    "buffer registered": _then(lambda m: m.register_buffer("late", torch.ones(3)), lambda m, h: h * m.late),
    "buffer filled": _then(lambda m: setattr(m, "empty", torch.ones(3)), lambda m, h: h * m.empty),
    "buffer deleted": _then(lambda m: m.__delattr__("buffer"), lambda m, h: h),
    "plain tensor reassigned": _then(_assign("plain", lambda b: b + 1), lambda m, h: h * m.plain),
    "plain tensor through data": _then(lambda m: m.plain.data.add_(1), lambda m, h: h * m.plain),
    "plain tensor with a graph": lambda m, h: m.plain.mul_(h.sum()) + h,
    "gradients": lambda m, h: (
        m.frozen.requires_grad_(True)(h[:, :1].expand(-1, 4)).sum().backward(retain_graph=True) or h
    ),
    "plain tensor in place": _then(lambda m: m.plain.add_(1), lambda m, h: h * m.plain),
    "array in place": _then(lambda m: m.array.__iadd__(1), lambda m, h: h * float(m.array.sum())),
    "counter": _then(_assign("counter", lambda c: c + 1), lambda m, h: h * m.counter),
    "list": _then(lambda m: m.items.append(1.0), lambda m, h: h * len(m.items)),
    "nested list": _then(lambda m: m.items[1].append(1.0), lambda m, h: h * len(m.items[1])),
    "dictionary": _then(lambda m: m.table.update(a=m.table["a"] + 1), lambda m, h: h * m.table["a"]),
    "parameter reassigned": _then(
        lambda m: setattr(m.layer, "weight", nn.Parameter(m.layer.weight * 1.5)), lambda m, h: h * m.layer.weight.sum()
    ),
    "parameter in place": _then(lambda m: m.layer.weight.mul_(1.5), lambda m, h: h * m.frozen.weight.sum()),
    "parameter in place through data": _then(
        lambda m: m.layer.weight.data.mul_(1.5), lambda m, h: h * m.frozen.weight.sum()
    ),
    "parameter's data reassigned": _then(
        lambda m: setattr(m.layer.weight, "data", m.layer.weight.data * 1.5), lambda m, h: h * m.frozen.weight.sum()
    ),
    "frozen parameter in place": _then(lambda m: m.frozen.weight.mul_(1.5), lambda m, h: h * m.frozen.weight.sum()),
    "parameter registered": _then(
        lambda m: hasattr(m, "late") or m.register_parameter("late", nn.Parameter(torch.ones(3))),
        lambda m, h: h * m.late,
    ),
    "hook registered": _then(
        lambda m: m.layer.register_forward_hook(lambda _m, _a, out: out * 1.01), lambda m, h: torch.tanh(h)
    ),
    "requires_grad": _then(lambda m: m.layer.bias.requires_grad_(False), lambda m, h: h * m.layer.weight.sum()),
    "module added": _then(
        lambda m: m.add_module("late", nn.Linear(3, 3)) if not hasattr(m, "late") else None, lambda m, h: m.late(h)
    ),
    "module replaced": _then(lambda m: setattr(m, "frozen", nn.Identity()), lambda m, h: h),
}
"""Changes that alter outputs, or the model's own tensors."""

HARMLESS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "kept activation": lambda m, h: setattr(m, "last", h) or torch.tanh(h),
    "counted calls": _then(_assign("counter", lambda c: c + 1), lambda m, h: torch.tanh(h)),
    "cache": lambda m, h: torch.tanh(h) * m.table.setdefault("mask", torch.ones(3)),
    "history": lambda m, h: m.items.append(h.detach()) or torch.tanh(h),
    "buffer reassigned to itself": _then(_assign("buffer", lambda b: b.clone()), lambda m, h: h * m.buffer),
    "mode": lambda m, h: m.frozen.eval() is None or torch.tanh(h),
}
"""Changes that leave the function what it is."""


def _state(model: Net) -> dict[str, Any]:
    attributes = {
        name: value
        for name, value in model.__dict__.items()
        if not name.startswith("_") and name not in ("act", "fail")
    }
    return {
        "attributes": repr(attributes),
        "parameters": {n: (id(p), p.data_ptr(), p.requires_grad) for n, p in model.named_parameters()},
        "buffers": {n: id(b) for n, b in model.named_buffers()},
        "modules": [(n, id(m), m.training) for n, m in model.named_modules()],
        "values": repr({name: value.tolist() for name, value in model.state_dict().items()}),
        "plain": id(model.plain),
        "hooks": len(model.layer._forward_hooks),
    }


@pytest.mark.parametrize("fail", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_a_forward_pass_that_changes_the_network_is_refused(name: str, fail: bool) -> None:
    model = Net(CHANGES[name], fail)
    before = _state(model)
    x = torch.randn(5, 4)
    with pytest.raises(TangentError) as refusal:
        tangentlab.ntk(model, x)
    assert refusal.value.remedy
    assert _state(model) == before
    if not fail:
        assert "fails" not in str(refusal.value)


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_changes_are_undone(name: str) -> None:
    model = Net(HARMLESS[name]).double()
    before = _state(model)
    x = torch.randn(5, 4, dtype=torch.float64)
    kernel = tangentlab.ntk(model, x, batch_size=2)
    assert _state(model) == before
    torch.testing.assert_close(kernel, reference.ntk(model, x), rtol=1e-9, atol=1e-10)
    assert _state(model) == before


@pytest.mark.parametrize("name", [name for name in CHANGES if name != "parameter's data reassigned"])
def test_linearized_networks_that_change_are_refused(name: str) -> None:
    model = Net(CHANGES[name])
    before = _state(model)
    lin = linearize(model)
    with pytest.raises(TangentError) as refusal:
        lin(torch.randn(5, 4))
    assert refusal.value.remedy
    assert _state(model) == before


@pytest.mark.parametrize("name", HARMLESS)
def test_linearized_networks_with_harmless_changes(name: str) -> None:
    model = Net(HARMLESS[name]).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    start, rows = jacobian(model, x)
    model = Net(HARMLESS[name]).double()
    before = _state(model)
    lin = linearize(model)
    move(lin)
    expected = start + rows @ flat(lin.displacement().values())
    for _ in range(3):
        assert difference(lin(x).detach().reshape(-1), expected) < 1e-9
    assert _state(model) == before


def test_a_change_in_a_later_batch_is_seen() -> None:
    """Content decides; the probe's samples have seen nothing."""

    def act(m: Any, h: Tensor) -> Tensor:
        if bool((h.detach().abs() > 50).any()):
            m.buffer = m.buffer + 1
        return torch.tanh(h)

    model = Net(act)
    x = torch.randn(40, 4)
    x[13] = 1e3
    before = _state(model)
    with pytest.raises(TangentError, match="buffer"):
        tangentlab.ntk(model, x, batch_size=4)
    assert _state(model) == before


def test_a_forward_pass_may_write_to_its_inputs() -> None:
    """The user's data stay what they are, and every batch is read as it was given."""
    model = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 2)).double()
    x = torch.randn(9, 4, dtype=torch.float64)
    before = x.clone()
    kernel = tangentlab.ntk(model, x, batch_size=4)
    assert torch.equal(x, before)
    rows = torch.cat([before.relu(), torch.ones(9, 1, dtype=torch.float64)], 1)
    expected = torch.einsum("nm,op->nomp", rows @ rows.T, torch.eye(2, dtype=torch.float64))
    torch.testing.assert_close(kernel, expected)
