"""What the networks of other packages share: how they are made, and what they are fed."""

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from tests.conformance.family import SAMPLES, Family, Problem, noise, summary
from tests.conformance.from_config import LENGTHS, TOKENS, VOCABULARY

DIM, SIZE = 16, 16


class WithMask(nn.Module):
    """A network that takes a padding mask as the keyword ``mask``."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, mask: Tensor) -> Any:
        return self.network(x, mask=mask)


def tokens(length: int = TOKENS) -> Tensor:
    return torch.randint(0, VOCABULARY, (SAMPLES, length), generator=torch.Generator().manual_seed(0))


def mask() -> Tensor:
    return torch.tensor([[t < length for t in range(TOKENS)] for length in LENGTHS])


def vectors(length: int = TOKENS, dim: int = DIM) -> Tensor:
    return noise(SAMPLES, length, dim)


def images(size: int = SIZE, channels: int = 3) -> Tensor:
    return noise(SAMPLES, channels, size, size)


def first(result: Any) -> Tensor:
    """The outputs, where a network returns them with other things."""
    return summary(result[0] if isinstance(result, tuple) else result)


def made(module: str, name: str, **options: Any) -> nn.Module:
    """``module.name(**options)``."""
    return getattr(import_module(module), name)(**options)


Network = tuple[str, Callable[[], nn.Module], Callable[[], Any]]
"""The package to import, how to make the network, and its inputs."""


def families(
    networks: Mapping[str, Network], known: Mapping[str, dict[str, Any]] = MappingProxyType({})
) -> list[Family]:
    """The families of a table of networks, with what is known of some."""

    def build(make: Callable[[], nn.Module], inputs: Callable[[], Any]) -> Callable[[], Problem]:
        return lambda: Problem(make(), inputs(), first)

    return [
        Family("packages", name, build(make, inputs), package=package, **known.get(name, {}))
        for name, (package, make, inputs) in networks.items()
    ]
