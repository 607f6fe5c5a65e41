"""What the cases of the kernel engine are made of: a case, small modules, samples."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils.checkpoint
from torch import Tensor, nn


@dataclass(frozen=True)
class Case:
    """A model and its inputs.

    Attributes:
        name: Its name.
        model: Makes the model.
        data: Makes n samples.
        fallback: Prefixes of the parameters that no rule is expected to know; all others must have one.
    """

    name: str
    model: Callable[[], nn.Module]
    data: Callable[[int], Any]
    fallback: tuple[str, ...] = ()


class Functional(nn.Module):
    """A module from parameters and a function of itself and its inputs."""

    def __init__(self, forward: Callable[..., Tensor], **parts: Any) -> None:
        super().__init__()
        for name, part in parts.items():
            if isinstance(part, Tensor):
                part = nn.Parameter(part)
            setattr(self, name, part)
        self.function = forward

    def assigned(self) -> Tensor:
        """A copy of ``a`` whose first column was set to zero by assignment."""
        copy = self.a.clone()
        copy[:, 0] = 0
        return copy

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return self.function(self, *args, **kwargs)


def head(layer: nn.Module, outputs: int = 3) -> nn.Module:
    """A layer, a nonlinearity and a dense read-out of everything."""
    return nn.Sequential(layer, nn.GELU(), nn.Flatten(), nn.LazyLinear(outputs))


def shaken(model: nn.Module) -> nn.Module:
    """Away from special points: every parameter and floating buffer moved at random, variances kept positive."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for name, buffer in model.named_buffers():
            if buffer.is_floating_point() and "running" in name:
                buffer.add_(torch.rand_like(buffer))
    return model


def normal(*shape: int) -> Callable[[int], Tensor]:
    return lambda n: torch.randn(n, *shape)


def tokens(vocabulary: int, *shape: int) -> Callable[[int], Tensor]:
    return lambda n: torch.randint(0, vocabulary, (n, *shape))


class CrossAttention(nn.Module):
    """Attention with keys of another width, and self-attention in (positions, batch, features) order."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.randn(2, 1, 6))
        self.attention = nn.MultiheadAttention(6, 2, **options)
        self.out = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(0, 1)
        query = self.query.expand(-1, x.shape[1], -1)
        return self.out(self.attention(query, x, x)[0][-1])


class Tied(nn.Module):
    """A language model whose read-out shares the embedding's table."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 5)
        self.mix = nn.Linear(5, 5)
        self.out = nn.Linear(5, 7, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.mix(self.embedding(x)))).mean(1)


class Recurrent(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.out = layer, nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.layer(x)[0][:, -1])


class OwnFunction(torch.autograd.Function):
    """A product that no torch operation shows to the recorder."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return torch.from_numpy(x.detach().numpy() @ w.detach().numpy())

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return g @ w.T, x.T @ g


def bag(model: Any, x: Tensor) -> Tensor:
    return model.out(model.bag(x))


def conv(**options: Any) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Conv2d(4, 6, 3, **options), nn.Tanh(), nn.Flatten(), nn.LazyLinear(3))
