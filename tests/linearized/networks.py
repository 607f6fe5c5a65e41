"""A network with everything that a module can have, and its linearization away from the base point."""

from typing import Any

import torch
from torch import Tensor, nn

from tangentlab.linearized import Linearized, linearize
from tests.linearized.reference import move


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


def moved(network: nn.Module, **options: Any) -> Linearized:
    lin = linearize(network, **options)
    move(lin)
    return lin
