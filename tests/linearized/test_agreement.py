"""The values, the gradients and the kernel of a linearized model come from one Jacobian: that of backward passes.

Forward mode differs from backward mode where gradients are cut or replaced: under no_grad, in hooks, in functions with
a derivative of their own.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tangentlab
from tangentlab import TangentError
from tangentlab.linearized import linearize
from tests.linearized.reference import difference, flat, jacobian, move, moved


class Functional(nn.Module):
    """Two layers and a function between them."""

    def __init__(self, function: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.middle, self.last = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.gain = nn.Parameter(torch.tensor(1.3))
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.function(self, torch.tanh(self.first(x)))) * self.gain


def _function(
    value: Callable[[Tensor], Tensor],
    slope: Callable[[Tensor, Tensor], Tensor],
    jvp: Callable[[Tensor, Tensor], Tensor] | None = None,
    once: bool = False,
) -> Callable[[Tensor], Tensor]:
    """An autograd function of a value, a backward pass and perhaps a forward-mode derivative."""

    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        if jvp is not None:
            ctx.save_for_forward(x)
        return value(x)

    def backward(ctx: Any, g: Tensor) -> Tensor:
        return slope(ctx.saved_tensors[0], g)

    def forwards(ctx: Any, t: Tensor) -> Tensor:
        assert jvp is not None
        return jvp(ctx.saved_tensors[0], t)

    members: dict[str, Any] = {
        "forward": staticmethod(forward),
        "backward": staticmethod(torch.autograd.function.once_differentiable(backward) if once else backward),
    }
    if jvp is not None:
        members["jvp"] = staticmethod(forwards)
    return type("Own", (torch.autograd.Function,), members).apply  # type: ignore[attr-defined,no-any-return]


_square = _function(torch.square, lambda x, g: 2 * x * g)
_square_jvp = _function(torch.square, lambda x, g: 2 * x * g, lambda x, t: 2 * x * t)
_square_once_jvp = _function(torch.square, lambda x, g: 2 * x * g, lambda x, t: 2 * x * t, once=True)
_inconsistent = _function(torch.square, lambda x, g: x * g, lambda x, t: 2 * x * t)
_straight = _function(torch.round, lambda x, g: g)
_straight_jvp = _function(torch.round, lambda x, g: g, lambda x, t: torch.zeros_like(t))
_straight_jvp_none = _function(torch.sign, lambda x, g: g * (x.abs() < 1), lambda x, t: t)
_reversal = _function(lambda x: x.view_as(x), lambda x, g: -g, lambda x, t: t.view_as(t))


def _no_grad(m: Functional, h: Tensor) -> Tensor:
    with torch.no_grad():
        scale = m.middle(h).abs().mean(1, keepdim=True)
    return h / scale


def _decorated(m: Functional, h: Tensor) -> Tensor:
    @torch.no_grad()
    def gate(h: Tensor) -> Tensor:
        return torch.sigmoid(m.middle(h))

    return h * gate(h) + m.middle(h)


def _set_grad_enabled(m: Functional, h: Tensor) -> Tensor:
    with torch.set_grad_enabled(False):
        a = m.middle(h)
        with torch.enable_grad():
            b = m.middle(h).sin()
        a = a * b
    return h * a + b


def _inference(m: Functional, h: Tensor) -> Tensor:
    with torch.inference_mode():
        scale = m.middle(h).abs()
    return h + scale.clone()


def _convolved_without(m: Functional, h: Tensor) -> Tensor:
    """Operations that have rules of their own."""
    with torch.no_grad():
        part = F.conv1d(h.unsqueeze(1), m.middle.weight[:, :1, None]).mean(1)
        part = part + F.avg_pool2d(h[:, None, None, :], (1, 2)).mean((1, 2, 3)).unsqueeze(1)
        part = part + F.batch_norm(h, torch.zeros_like(h[0]), torch.ones_like(h[0]), m.middle.bias, m.middle.bias)
        part = part + F.embedding(torch.zeros(len(h), dtype=torch.long), m.middle.weight)
    return h * part


def _in_place_without(m: Functional, h: Tensor) -> Tensor:
    y = m.middle(h) * 1
    with torch.no_grad():
        y.mul_(3)
        y[:, 0] = h[:, 1]
    return y + h


def _in_place_data(m: Functional, h: Tensor) -> Tensor:
    y = m.middle(h) * 1
    y.data.mul_(3)
    return y + h.data


def _views_without(m: Functional, h: Tensor) -> Tensor:
    with torch.no_grad():
        part = h[:, :3].reshape(-1, 3)
        first, second = m.middle(h).chunk(2, dim=1)
    return torch.cat([part * first, second * h[:, 3:]], 1)


def _tensor_hook(m: Functional, h: Tensor) -> Tensor:
    y = m.middle(h)
    if y.requires_grad:
        y.register_hook(lambda g: g * 0.25)
    return h + y


def _node_hook(m: Functional, h: Tensor) -> Tensor:
    y = m.middle(h)
    if y.grad_fn is not None:
        y.grad_fn.register_hook(lambda inputs, outputs: tuple(None if g is None else 0.5 * g for g in inputs))
    return h + y


def _inner_gradient(m: Functional, h: Tensor) -> Tensor:
    with torch.enable_grad():
        start = h.detach().requires_grad_()
        energy = torch.tanh(m.middle(start)).sum()
        (force,) = torch.autograd.grad(energy, start, create_graph=True)
    return h + force


AGREE: dict[str, Callable[[Functional, Tensor], Tensor]] = {
    "no_grad": _no_grad,
    "decorated": _decorated,
    "set_grad_enabled": _set_grad_enabled,
    "inference mode": _inference,
    "rules under no_grad": _convolved_without,
    "in place under no_grad": _in_place_without,
    "in place through data": _in_place_data,
    "views under no_grad": _views_without,
    "detach": lambda m, h: h * m.middle(h).detach(),
    "data": lambda m, h: h * m.middle(h).data,
    "straight through": lambda m, h: h + (torch.round(m.middle(h)) - m.middle(h)).detach() + m.middle(h),
    "function": lambda m, h: h + _square(m.middle(h)),
    "function with jvp": lambda m, h: h + _square_jvp(m.middle(h)),
    "once differentiable with jvp": lambda m, h: h + _square_once_jvp(m.middle(h)),
    "inconsistent jvp": lambda m, h: h + _inconsistent(m.middle(h)),
    "straight-through function": lambda m, h: h + _straight(m.middle(h)),
    "straight-through function with jvp": lambda m, h: h + _straight_jvp(m.middle(h)),
    "clipped straight through": lambda m, h: h + _straight_jvp_none(m.middle(h)),
    "gradient reversal": lambda m, h: h + _reversal(m.middle(h)),
    "tensor hook": _tensor_hook,
    "node hook": _node_hook,
    "gradient inside": _inner_gradient,
    "ties": lambda m, h: F.relu(h - h) + torch.clamp(m.middle(h) * 0, 0, 1) + h.amax(1, keepdim=True) + (h * 0).abs(),
    "maximum of equals": lambda m, h: torch.maximum(h, h * 1) + torch.minimum(m.middle(h), m.middle(h) * 1),
}


_CUT = ("no_grad", "decorated", "set_grad_enabled", "rules under no_grad", "views under no_grad", "detach", "data")
"""What works inside ``torch.func`` too."""


def unless_refused(name: str, compute: Callable[[], Any]) -> Any:
    """A result that goes through ``torch.func``, or None where the network is refused there with a remedy."""
    try:
        return compute()
    except TangentError as error:
        refusal = error
    assert refusal.remedy
    assert name not in _CUT
    return None


@pytest.mark.parametrize("name", AGREE)
def test_values_gradients_and_kernel_agree(name: str) -> None:
    model = Functional(AGREE[name]).double()
    x = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    lin, expected, rows = moved(model, x)
    kernel = tangentlab.ntk(model, x).reshape(15, 15)
    torch.testing.assert_close(kernel, rows @ rows.T, rtol=1e-8, atol=1e-10)
    for _ in range(2):
        output = lin(x)
        assert difference(output.detach().reshape(-1), expected) < 1e-9
        lin.zero_grad()
        output.square().sum().backward()
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in lin.parameters()]
        assert difference(flat(grads), 2 * rows.T @ expected) < 1e-9
        with torch.no_grad():
            assert difference(lin(x).reshape(-1), expected) < 1e-9
        primal, tangent = lin.expand(x)
        assert difference((primal + tangent).reshape(-1), expected) < 1e-9


@pytest.mark.parametrize("name", AGREE)
def test_without_gradients_from_the_start(name: str) -> None:
    """No call with gradients has told anything about the network."""
    model = Functional(AGREE[name]).double()
    x = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    lin, expected, _ = moved(model, x)
    with torch.no_grad():
        assert difference(lin(x).reshape(-1), expected) < 1e-9
    with torch.inference_mode():
        assert difference(lin(x).reshape(-1), expected) < 1e-9


@pytest.mark.parametrize("name", AGREE)
@pytest.mark.parametrize("first", [True, False])
def test_with_gradients_of_inputs(name: str, first: bool) -> None:
    """They go through ``torch.func``: right or refused."""
    model = Functional(AGREE[name]).double()
    x = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    lin, expected, rows = moved(model, x)
    if not first:
        lin(x)
    output = unless_refused(name, lambda: lin(x.clone().requires_grad_()))
    if output is None:
        return
    assert difference(output.detach().reshape(-1), expected) < 1e-9
    output.square().sum().backward()
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in lin.parameters()]
    assert difference(flat(grads), 2 * rows.T @ expected) < 1e-9


@pytest.mark.parametrize("name", AGREE)
def test_inside_transforms(name: str) -> None:
    model = Functional(AGREE[name]).double()
    x = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    lin, _, rows = moved(model, x)
    parameters = {key: p.detach() for key, p in lin.named_parameters()}

    def output(parameters: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(lin, parameters, x).reshape(-1)

    found = unless_refused(name, lambda: torch.func.jacrev(output)(parameters))
    if found is not None:
        columns = torch.cat([found[key].reshape(15, -1) for key in parameters], 1)
        assert difference(columns, rows) < 1e-9


def test_regions_that_only_some_inputs_reach() -> None:
    """The first call sees nothing odd; a later one does."""

    def sometimes(m: Functional, h: Tensor) -> Tensor:
        y = m.middle(h)
        if float(h.detach().sum()) > 0:
            with torch.no_grad():
                y = y * m.gain
            return h * y + _inconsistent(m.middle(h))
        return h * y

    model = Functional(sometimes).double()
    x = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    signs = {bool(torch.tanh(model.first(value)).sum() > 0) for value in (x, -x)}
    assert signs == {True, False}
    lin = linearize(model)
    move(lin)
    for value in (x, -x, x, -x):
        start, rows = jacobian(model, value)
        expected = start + rows @ flat(lin.displacement().values())
        assert difference(lin(value).detach().reshape(-1), expected) < 1e-9


def _clipping(m: Functional, h: Tensor) -> Tensor:
    y = m.middle(h)
    if y.requires_grad:
        y.register_hook(lambda g: g.clamp(-0.1, 0.1))
    return h + y


def test_a_backward_pass_that_is_not_linear_is_refused() -> None:
    lin = linearize(Functional(_clipping).double())
    move(lin)
    with pytest.raises(TangentError) as refusal:
        lin(torch.randn(5, 4, dtype=torch.float64))
    assert refusal.value.remedy


def test_parameters_held_elsewhere_are_refused() -> None:
    """The linearized model would use theta in the place of theta*."""

    class Held(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.held = [self.layer.weight]

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) * self.held[0].sum()

    lin = linearize(Held().double())
    move(lin)
    x = torch.randn(3, 4, dtype=torch.float64)
    for use in (lambda: lin(x), lambda: lin(x.clone().requires_grad_())):
        with pytest.raises(TangentError, match=r"layer\.weight") as refusal:
            use()
        assert refusal.value.remedy


def test_a_view_of_a_parameter_stays_at_the_base_point() -> None:
    """It does not follow theta, and cannot follow to another base point."""

    class Seen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4, dtype=torch.float64)
            self.seen = {"row": self.layer.weight.detach()[0]}

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) * self.seen["row"].sum()

    model, x = Seen(), torch.randn(3, 4, dtype=torch.float64)
    lin, expected, _ = moved(model, x)
    assert difference(lin(x).detach().reshape(-1), expected) < 1e-9
    with pytest.raises(TangentError, match=r"layer\.weight") as refusal:
        linearize(model, at=Seen().state_dict())
    assert refusal.value.remedy


@pytest.mark.parametrize("called", [False, True])
@pytest.mark.parametrize(
    "name", ["no_grad", "decorated", "detach", "straight through", "function with jvp", "tensor hook", "node hook"]
)
def test_compiled(name: str, called: bool) -> None:
    torch._dynamo.reset()
    lin = linearize(Functional(AGREE[name]).double())
    move(lin)
    x = torch.randn(5, 4, dtype=torch.float64)
    other = linearize(Functional(AGREE[name]).double())
    move(other)
    expected = other(x).detach()
    if called:
        lin(x)
    try:
        found = torch.compile(lin, backend="eager")(x)
    except TangentError as error:
        refusal = error
    else:
        assert difference(found.detach(), expected) < 1e-9
        return
    assert name in ("function with jvp", "tensor hook", "node hook")
    assert refusal.remedy


def _rounded(m: Any, h: Tensor) -> Tensor:
    return torch.softmax(3 * m.middle(h).float(), -1).to(h.dtype)


class _Coarse(torch.autograd.Function):
    """Rounds to float32 inside."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = torch.tanh(x.float())
        ctx.save_for_backward(y)
        return y.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return (g.float() * (1 - y * y)).to(g.dtype)


@pytest.mark.parametrize(
    "function", [_rounded, lambda m, h: _Coarse.apply(_rounded(m, h)), lambda m, h: _Coarse.apply(h)]
)
@pytest.mark.parametrize("width", [4, 400])
def test_rounding_inside_is_no_disagreement(function: Callable[[Any, Tensor], Tensor], width: int) -> None:
    """A softmax in float32 inside of a float64 network, as language models have it."""
    network = Functional(function)
    network.first = nn.Linear(width, 6)
    network.double()
    x = torch.randn(40, width, dtype=torch.float64)
    lin, expected, rows = moved(network, x)
    output = lin(x)
    assert difference(output.detach().reshape(-1), expected) < 1e-5
    grads = torch.autograd.grad(output.square().sum(), list(lin.parameters()), allow_unused=True)
    found = flat(torch.zeros_like(p) if g is None else g for g, p in zip(grads, lin.parameters(), strict=True))
    assert difference(found, 2 * rows.T @ expected) < 1e-5
