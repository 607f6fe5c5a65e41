"""A copy of a model computes what the model computes, or is refused.

``copy.deepcopy`` shares functions and what they close over, drops hooks of parameters, and can be overridden.
"""

import copy
import functools
import types
import weakref
from collections.abc import Callable
from typing import Any, Self

import pytest
import torch
from torch import Tensor, nn

import tangentlab
from tangentlab import TangentError
from tangentlab._copying import copy_model
from tangentlab.kernels import reference
from tangentlab.linearized import linearize


class Two(nn.Module):
    """Two layers and a place for something odd between them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 2)
        self.register_buffer("scale", torch.full((4,), 1.5))
        self.between: Any = None

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.first(x))
        if self.between is not None:
            h = self.between(h)
        return self.second(h)


class Extractor(nn.Module):
    """Returns what a hook has put aside, as feature extractors do."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Two()
        self.features: dict[str, Tensor] = {}
        self.net.first.register_forward_hook(lambda module, args, output: self.features.update(h=output))

    def forward(self, x: Tensor) -> Tensor:
        self.net(x)
        return self.features.pop("h")


class Reference:
    """Holds a weak reference, which a copy shares."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = weakref.ref(tensor)

    def __call__(self, h: Tensor) -> Tensor:
        return h * self.tensor().sum()  # type: ignore[union-attr]


class Shared(Two):
    """Refers to a layer through its class."""

    layer: nn.Module

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(type(self).layer(x)))


class Same(Two):
    """Its copy is itself."""

    def __deepcopy__(self, memo: Any) -> Self:
        return self


class Views(Two):
    """Its copy shares its memory."""

    def __deepcopy__(self, memo: Any) -> "Two":
        other = Two()
        for mine, theirs in zip(self.parameters(), other.parameters(), strict=True):
            theirs.data = mine.data
        return other


class Forgetful(Two):
    """Its copy has other weights."""

    def __deepcopy__(self, memo: Any) -> "Two":
        other = Two()
        with torch.no_grad():
            other.second.bias.add_(1)
        return other


EVERYWHERE: dict[str, Any] = {}


def _global(h: Tensor) -> Tensor:
    return h * EVERYWHERE["model"].first.weight.sum()


def _indirect(h: Tensor) -> Tensor:
    return _global(h)


def _set(change: Callable[[Two], Any]) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        model = Two()
        change(model)
        return model

    return make


def _with(between: Callable[[Two], Callable[[Tensor], Tensor]]) -> Callable[[], nn.Module]:
    return _set(lambda model: setattr(model, "between", between(model)))


def _own_forward(model: Two) -> None:
    def forward(x: Tensor) -> Tensor:
        return model.second(model.first(x).relu())

    model.forward = forward  # type: ignore[method-assign]


def _default(model: Two) -> Callable[[Tensor], Tensor]:
    def scaled(h: Tensor, weight: Tensor = model.first.weight) -> Tensor:
        return h * weight.sum()

    return scaled


def _keyword_default(model: Two) -> Callable[[Tensor], Tensor]:
    def scaled(h: Tensor, *, layer: nn.Module = model.first) -> Tensor:
        return layer(h)

    return scaled


def _attribute(model: Two) -> Callable[[Tensor], Tensor]:
    def scaled(h: Tensor) -> Tensor:
        return h * scaled.weight.sum()  # type: ignore[attr-defined]

    scaled.weight = model.first.weight  # type: ignore[attr-defined]
    return scaled


def _nested(model: Two) -> Callable[[Tensor], Tensor]:
    holder = {"layers": [model.first]}

    def inner(h: Tensor) -> Tensor:
        return holder["layers"][0](h)

    return functools.partial(lambda function, h: function(h), lambda h: inner(h))


def _shared() -> nn.Module:
    model = Shared()
    Shared.layer = model.first
    return model


def _everywhere(function: Callable[[Tensor], Tensor]) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        model = Two()
        EVERYWHERE["model"] = model
        model.between = function
        return model

    return make


def _wrapped_method(model: Two) -> Callable[[Tensor], Tensor]:
    return functools.wraps(model.first.forward)(lambda h: h * model.first.weight.mean())


UNFAITHFUL: dict[str, Callable[[], nn.Module]] = {
    "forward hook": _set(lambda m: m.first.register_forward_hook(lambda _m, _a, out: out * m.second.weight.sum())),
    "forward hook of a buffer": _set(lambda m: m.first.register_forward_hook(lambda _m, _a, out: out * m.scale)),
    "pre hook": _set(lambda m: m.second.register_forward_pre_hook(lambda _m, args: (args[0] * m.first.bias,))),
    "lambda": _with(lambda m: lambda h: h * m.first.weight.sum()),
    "closure on the parameter": _with(lambda m: (lambda weight: lambda h: h @ weight)(m.first.weight)),
    "closure on a detached weight": _with(lambda m: (lambda weight: lambda h: h @ weight)(m.first.weight.detach())),
    "closure on a view": _with(lambda m: (lambda weight: lambda h: h @ weight)(m.first.weight.T)),
    "default argument": _with(_default),
    "keyword default": _with(_keyword_default),
    "attribute of a function": _with(_attribute),
    "nested": _with(_nested),
    "wrapped": _with(_wrapped_method),
    "partial of a lambda": _with(lambda m: functools.partial(lambda s, h: s * m.first(h), 2.0)),
    "bound method in a closure": _with(lambda m: (lambda f: lambda h: f(h))(m.first.forward)),
    "forward replaced": _set(_own_forward),
    "weak reference": _with(lambda m: Reference(m.first.weight)),
    "class attribute": _shared,
    "global": _everywhere(_global),
    "global through a function": _everywhere(_indirect),
    "feature extractor": Extractor,
    "copy is itself": Same,
    "copy shares memory": Views,
    "copy has other weights": Forgetful,
    "gradient mask": _set(lambda m: m.first.weight.register_hook(lambda g: g * torch.eye(4).to(g))),
}


@pytest.mark.parametrize("name", UNFAITHFUL)
def test_an_unfaithful_copy_is_refused(name: str) -> None:
    """Where the copy is needed; and without one the kernel is that of plain automatic differentiation."""
    model = UNFAITHFUL[name]()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    for use in (
        lambda: copy_model(model),
        lambda: tangentlab.ntk(model, x, dtype=torch.float64),
        lambda: linearize(model),
    ):
        with pytest.raises(TangentError) as refusal:
            use()
        assert refusal.value.what
        assert refusal.value.why
        assert refusal.value.remedy
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key])
        assert value.dtype == before[key].dtype
    if name != "feature extractor":
        kernel = tangentlab.ntk(model, x)
        torch.testing.assert_close(kernel, reference.ntk(model, x), rtol=1e-4, atol=1e-5)


class Listed(nn.Module):
    """Layers in plain containers as well as registered."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)
        self.order = [("first", self.first), ("second", self.second)]
        self.call = self.second.forward
        self.part = functools.partial(nn.functional.linear, weight=self.first.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.call(torch.tanh(self.order[0][1](x)) + self.part(x))


class Marked(nn.Module):
    """Reads an attribute of its parameter, which the copy of a parameter has not."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weight = nn.Parameter(torch.randn(4, 2))
        self.weight.factor = 3.0  # type: ignore[attr-defined]

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ self.weight) * getattr(self.weight, "factor", 1.0)


def _bound() -> nn.Module:
    model = Two()
    model.forward = types.MethodType(lambda self, x: self.second(self.first(x).relu()), model)  # type: ignore
    return model


def _spectral() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)), nn.Tanh(), nn.Linear(4, 2)).eval()


def _weight_norm() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), nn.Tanh(), nn.Linear(4, 2))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.cell = nn.GRU(4, 3, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.cell(x.unsqueeze(1))[0][:, 0]


def _hooked() -> nn.Module:
    """Hooks that close over things of their own, and the layer that they are given."""
    model, seen = Two(), []
    factor = torch.tensor(2.0)

    def hook(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        seen.append(output.shape)
        return output * factor * module.weight.sum()

    model.first.register_forward_hook(hook)
    return model


FAITHFUL: dict[str, Callable[[], nn.Module]] = {
    "plain": Two,
    "layers in lists": Listed,
    "attributes of parameters": Marked,
    "bound method as forward": _bound,
    "partial of a function": _with(lambda m: functools.partial(nn.functional.linear, weight=m.first.weight)),
    "bound method": _with(lambda m: m.first.forward),
    "module as a function": _with(lambda m: m.first),
    "spectral norm": _spectral,
    "weight norm": _weight_norm,
    "recurrent": Recurrent,
    "hooks of their own": _hooked,
    "copy of a copy": lambda: copy_model(_hooked()),
}


@pytest.mark.parametrize("name", FAITHFUL)
def test_a_faithful_copy_gives_the_same_kernel(name: str) -> None:
    """The kernel on a copy in float64 is that of the same model converted by hand."""
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    model = FAITHFUL[name]()
    kernel = tangentlab.ntk(model, x, dtype=torch.float64)
    by_hand = FAITHFUL[name]().double()
    torch.testing.assert_close(kernel, reference.ntk(by_hand, x.double()), rtol=1e-9, atol=1e-9)
    assert all(p.dtype == torch.float32 for p in model.parameters())


def test_frozen_and_tied_parameters_are_copied_so() -> None:
    model = Two()
    model.first.bias.requires_grad_(False)
    model.tied = model.first  # type: ignore[assignment]
    twin = copy_model(model, dtype=torch.float64)
    assert twin.tied is twin.first
    assert not twin.first.bias.requires_grad
    assert twin.scale.dtype == torch.float64
    assert twin.first.weight is not model.first.weight


def test_estimators_and_processes_refuse_unfaithful_copies() -> None:
    pytest.importorskip("sklearn")
    from tangentlab.estimators import NTKRegressor

    model = UNFAITHFUL["lambda"]()
    x = torch.randn(6, 4).numpy()
    with pytest.raises(TangentError, match="copied"):
        NTKRegressor(model).fit(x, x[:, 0])
    pytest.importorskip("gpytorch")
    from tangentlab.gp._network import FixedNetwork

    with pytest.raises(TangentError, match="copied"):
        FixedNetwork(model, None)


def test_a_merged_network_stands_alone() -> None:
    lin = linearize(Two())
    merged = lin.merge()
    copy.deepcopy(lin).merge()
    assert {id(p) for p in merged.parameters()}.isdisjoint(id(p) for p in lin.parameters())
    with pytest.raises(TangentError, match="copied"):
        lin.merge(into=UNFAITHFUL["lambda"]())


class Default(nn.Module):
    """Its activation is a default argument, made once for all: the class leads to a module of the original."""

    def __init__(self, activation: nn.Module = nn.PReLU(), size: nn.Module = nn.Linear(4, 4)) -> None:  # noqa: B008
        super().__init__()
        self.activation, self.size = activation, size
        self.last = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.activation(self.size(x)))


tanh = nn.Tanh()
"""A module under a name that functions of PyTorch have, too."""


class Named(nn.Module):
    """Holds a module that is a global, and names a function like it."""

    def __init__(self) -> None:
        super().__init__()
        self.activation, self.last = tanh, nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.last(self.activation(x)))


def test_a_global_module_and_an_attribute_of_the_same_name() -> None:
    model = Named()
    assert copy_model(model).activation is not tanh
    x = torch.randn(5, 4)
    torch.testing.assert_close(linearize(model)(x), model(x))


def test_modules_that_are_default_arguments_of_a_constructor() -> None:
    """A constructor has run before the copy is made; what it refers to has no part in the forward pass."""
    model = Default()
    twin = copy_model(model, dtype=torch.float64)
    assert twin.activation is not model.activation
    x = torch.randn(5, 4)
    kernel = tangentlab.ntk(model, x, dtype=torch.float64)
    rows = torch.cat([g.flatten(2) for g in reference.jacobian(twin, x.double()).values()], 2)
    torch.testing.assert_close(kernel, torch.einsum("nop,mqp->nomq", rows, rows))
    torch.testing.assert_close(linearize(model)(x), model(x))
