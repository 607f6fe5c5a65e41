"""Small networks and their kernels in float64."""

import torch
from torch import Tensor, nn

from tangentlab import reference


def smooth(inputs: int = 3, outputs: int = 1, width: int = 12, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, outputs)).double().eval()


def convnet(outputs: int = 2, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1, 3, 3, padding=1), nn.GELU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(27, outputs)]
    return nn.Sequential(*layers).double().eval()


def rows(n: int, inputs: int = 3, seed: int = 0) -> Tensor:
    return torch.randn(n, inputs, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def images(n: int, seed: int = 0) -> Tensor:
    return torch.randn(n, 1, 6, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def matrix(model: nn.Module, x: Tensor) -> Tensor:
    """The full kernel as (N R, N R), by plain differentiation."""
    kernel = reference.ntk(model, x)
    return kernel.reshape(len(x) * kernel.shape[1], -1)


def jacobian(model: nn.Module, x: Tensor) -> Tensor:
    """J, (N R, P)."""
    parts = reference.jacobian(model, x)
    return torch.cat([part.reshape(part.shape[0] * part.shape[1], -1) for part in parts.values()], 1)
