"""Pairs of networks with the same weights that compute something else, and pairs that compute the same."""

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SCALE = 1.0
"""A global that :func:`scaled` reads."""


def scaled(x: Tensor) -> Tensor:
    return SCALE * x


def outputs(model: nn.Module) -> nn.Module:
    """The model with weights that depend on their names and shapes alone, in evaluation mode."""
    for index, parameter in enumerate(model.parameters()):
        generator = torch.Generator().manual_seed(index)
        parameter.data = torch.randn(parameter.shape, generator=generator) / max(1, parameter[0].numel()) ** 0.5
    return model.eval()


def mlp(activation: nn.Module, *rest: nn.Module) -> nn.Module:
    return outputs(nn.Sequential(nn.Flatten(), nn.Linear(64, 8), activation, *rest, nn.Linear(8, 3)))


def frozen(*names: str) -> nn.Module:
    model = outputs(
        nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3))
    )
    for name in names:
        model.get_submodule(name).requires_grad_(False)
    return model


def convolution(pool: nn.Module | None = None, head: int = 4, **options: Any) -> nn.Module:
    layers = [
        nn.Conv2d(1, 4, 3, **options),
        nn.Tanh(),
        pool or nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(head, 3),
    ]
    return outputs(nn.Sequential(*layers))


class Block(nn.Module):
    """A network with everything that a user may put beside weights."""

    power = 1
    calls = 0

    def __init__(self, scale: float = 1.0, mask: Tensor | None = None, function: Any = torch.tanh, **more: Any) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(64, 8), nn.Linear(8, 3)
        self.scale, self.function = scale, function
        self.mask = torch.ones(8) if mask is None else mask
        self.__dict__.update(more)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.function(self.one(x.flatten(1)))
        return self.two(self.finish(hidden * self.mask * self.scale) ** self.power)

    def finish(self, hidden: Tensor) -> Tensor:
        return hidden


class Finishing(Block):
    """Another method than the one that ``forward`` calls by name."""

    def finish(self, hidden: Tensor) -> Tensor:
        return hidden.abs()


class Squared(Block):
    power = 2


def rare(limit: float) -> nn.Module:
    """A branch that only samples with a large first pixel take: no probe sample does."""

    class Rare(Block):
        def forward(self, x: Tensor) -> Tensor:
            found = super().forward(x)
            return torch.where(x[:, 0, 0, :1] > limit, 2 * found, found)

    return outputs(Rare())


def rare_code(twice: bool) -> nn.Module:
    """The same with another code, not another value."""
    if twice:

        class Rare(Block):
            def forward(self, x: Tensor) -> Tensor:
                found = super().forward(x)
                return torch.where(x[:, 0, 0, :1] > 2.0, found + found, found)
    else:

        class Rare(Block):  # type: ignore[no-redef]
            def forward(self, x: Tensor) -> Tensor:
                found = super().forward(x)
                return torch.where(x[:, 0, 0, :1] > 2.0, found * found, found)

    return outputs(Rare())


class Counting(Block):
    """Counts its calls and keeps what it computed last: state that is no part of what it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.last = 0, None

    def forward(self, x: Tensor) -> Tensor:
        self.count += 1
        self.last = x.mean().detach()
        return super().forward(x)


class Tied(nn.Module):
    def __init__(self, *pairs: tuple[int, int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8, bias=False) for _ in range(4))
        for one, two in pairs:
            self.layers[two].weight = self.layers[one].weight

    def forward(self, x: Tensor) -> Tensor:
        x = x[:, 0]
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x.flatten(1)[:, :3]


def tied(*pairs: tuple[int, int]) -> nn.Module:
    model = Tied(*pairs).eval()
    values = torch.randn(8, 8, generator=torch.Generator().manual_seed(0)) / 3
    for parameter in model.parameters():
        parameter.data = values.clone()
    return model


def hooked(function: Callable[..., Any] | None) -> nn.Module:
    model = outputs(Block())
    if function is not None:
        model.one.register_forward_hook(function)
    return model


def hidden(seed: int) -> nn.Module:
    """A module in a list, whose weights PyTorch does not see."""
    torch.manual_seed(seed)
    layers = [nn.Linear(8, 8).requires_grad_(False)]
    return outputs(Block(function=functools.partial(_through, layers)))


def _through(layers: list[nn.Module], x: Tensor) -> Tensor:
    return layers[0](torch.tanh(x))


@dataclass
class Config:
    scale: float = 1.0
    names: tuple[str, ...] = ("a", "b")


class Configured(Block):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config

    def forward(self, x: Tensor) -> Tensor:
        large = x.amax((1, 2, 3)) > 100  # no sample
        return torch.where(large[:, None], self.config.scale * super().forward(x), super().forward(x))


def replaced(function: Callable[..., Any]) -> nn.Module:
    """A network whose ``forward`` was put in its place from outside."""
    model = outputs(Block())
    model.forward = functools.partial(function, model)  # type: ignore[method-assign]
    return model


def buffered(value: float) -> nn.Module:
    model = outputs(Block())
    model.register_buffer("shift", torch.tensor([value]), persistent=False)
    return model


class Limited(nn.Module):
    """For TorchScript: a value and a method that ``forward`` uses, if only for rare samples."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.one, self.limit = nn.Linear(64, 3), limit

    def twice(self, x: Tensor) -> Tensor:
        return 2 * x

    def forward(self, x: Tensor) -> Tensor:
        found = self.one(x.flatten(1))
        return torch.where(found > self.limit, self.twice(found), found)


class LimitedAlso(Limited):
    def twice(self, x: Tensor) -> Tensor:
        return 3 * x


def scripted(model: nn.Module) -> nn.Module:
    return torch.jit.script(outputs(model))  # type: ignore[no-any-return]


OTHER: dict[str, tuple[Callable[[], nn.Module], Callable[[], nn.Module]]] = {
    "activation": (lambda: mlp(nn.ReLU()), lambda: mlp(nn.Tanh())),
    "slope": (lambda: mlp(nn.LeakyReLU(0.1)), lambda: mlp(nn.LeakyReLU(0.2))),
    "approximation": (lambda: mlp(nn.GELU()), lambda: mlp(nn.GELU("tanh"))),
    "one more layer": (lambda: mlp(nn.ReLU()), lambda: mlp(nn.ReLU(), nn.Identity())),
    "axis": (lambda: mlp(nn.Softmax(1)), lambda: mlp(nn.LogSoftmax(1))),
    "frozen layers": (lambda: frozen("1"), lambda: frozen("3")),
    "frozen weights and biases": (lambda: frozen("1", "5"), lambda: frozen("3", "5")),
    "padding": (lambda: convolution(padding=0), lambda: convolution(padding=1)),
    "dilation": (lambda: convolution(dilation=1), lambda: convolution(dilation=2)),
    "stride": (lambda: convolution(stride=1), lambda: convolution(stride=2)),
    "padding mode": (lambda: convolution(padding=1), lambda: convolution(padding=1, padding_mode="circular")),
    "pooling": (lambda: convolution(nn.AdaptiveAvgPool2d(1)), lambda: convolution(nn.AdaptiveMaxPool2d(1))),
    "pooling window": (
        lambda: convolution(nn.AvgPool2d(3, 3), 16),
        lambda: convolution(nn.AvgPool2d(4, 2), 16),
    ),
    "groups of a normalization": (
        lambda: convolution(nn.Sequential(nn.GroupNorm(1, 4), nn.AdaptiveMaxPool2d(1))),
        lambda: convolution(nn.Sequential(nn.GroupNorm(2, 4), nn.AdaptiveMaxPool2d(1))),
    ),
    "eps": (lambda: mlp(nn.LayerNorm(8)), lambda: mlp(nn.LayerNorm(8, eps=1e-2))),
    "attribute": (lambda: outputs(Block()), lambda: outputs(Block(1.5))),
    "tensor that is no buffer": (
        lambda: outputs(Block()),
        lambda: outputs(Block(mask=torch.tensor([1.0] * 7 + [0.0]))),
    ),
    "buffer that is not saved": (lambda: buffered(1.0), lambda: buffered(2.0)),
    "function": (lambda: outputs(Block()), lambda: outputs(Block(function=torch.relu))),
    "lambda": (
        lambda: outputs(Block(function=lambda x: x.tanh())),
        lambda: outputs(Block(function=lambda x: x.relu())),
    ),
    "arguments of a partial": (
        lambda: outputs(Block(function=functools.partial(F.leaky_relu, negative_slope=0.1))),
        lambda: outputs(Block(function=functools.partial(F.leaky_relu, negative_slope=0.3))),
    ),
    "closure": (lambda: outputs(Block(function=_times(1.0))), lambda: outputs(Block(function=_times(2.0)))),
    "default of an argument": (
        lambda: outputs(Block(function=lambda x, by=1.0: by * x)),
        lambda: outputs(Block(function=lambda x, by=2.0: by * x)),
    ),
    "method": (lambda: outputs(Block()), lambda: outputs(Finishing())),
    "class attribute": (lambda: outputs(Block()), lambda: outputs(Squared())),
    "value for rare samples": (lambda: rare(2.0), lambda: rare(3.0)),
    "code for rare samples": (lambda: rare_code(True), lambda: rare_code(False)),
    "configuration for rare samples": (
        lambda: outputs(Configured(Config())),
        lambda: outputs(Configured(Config(scale=3.0))),
    ),
    "hook": (lambda: hooked(None), lambda: hooked(lambda module, args, out: 2 * out)),
    "code of a hook": (
        lambda: hooked(lambda module, args, out: out + 1),
        lambda: hooked(lambda module, args, out: out - 1),
    ),
    "tied weights": (lambda: tied((0, 2), (1, 3)), lambda: tied((0, 3), (1, 2))),
    "weights that PyTorch does not see": (lambda: hidden(0), lambda: hidden(1)),
    "forward put in its place": (
        lambda: replaced(lambda model, x: model.two(model.one(x.flatten(1)).tanh())),
        lambda: replaced(lambda model, x: model.two(model.one(x.flatten(1)).sin())),
    ),
    "attribute of a scripted model": (lambda: scripted(Limited(50.0)), lambda: scripted(Limited(60.0))),
    "method of a scripted model": (lambda: scripted(Limited(50.0)), lambda: scripted(LimitedAlso(50.0))),
    "training mode": (lambda: outputs(Block()), lambda: outputs(Block()).train()),
}
"""By what differs: a network, and another with the same weights."""


def _times(factor: float) -> Callable[[Tensor], Tensor]:
    return lambda x: factor * x


def used(model: nn.Module) -> nn.Module:
    """The model after some calls."""
    for count in (1, 5):
        model(torch.zeros(count, 1, 8, 8))
    return model


def commented() -> nn.Module:
    class Rare(Block):
        def forward(self, x: Tensor) -> Tensor:
            """Words about it, and a variable of another name."""
            result = super().forward(x)
            # a comment
            return torch.where(x[:, 0, 0, :1] > 2.0, result + result, result)

    return outputs(Rare())


SAME: dict[str, tuple[Callable[[], nn.Module], Callable[[], nn.Module]]] = {
    "built again": (lambda: outputs(Block()), lambda: outputs(Block())),
    "a copy": (lambda: outputs(Block()), lambda: copy.deepcopy(outputs(Block()))),
    "hooks of another number": (
        lambda: hooked(lambda module, args, out: out + 1),
        lambda: hooked(lambda module, args, out: out + 1),
    ),
    "counted calls": (lambda: outputs(Counting()), lambda: used(outputs(Counting()))),
    "counted calls, before": (lambda: used(outputs(Counting())), lambda: outputs(Counting())),
    "a lambda written twice": (
        lambda: outputs(Block(function=lambda x: x.sin())),
        lambda: outputs(Block(function=lambda x: x.sin())),
    ),
    "comments, words and names of variables": (lambda: rare_code(True), commented),
    "a scripted model": (lambda: scripted(Limited(50.0)), lambda: scripted(Limited(50.0))),
    "hidden weights": (lambda: hidden(0), lambda: hidden(0)),
}
"""By what differs: two networks that a store must not tell apart."""
