"""A small network, samples, and its posterior by the plain formulas in weight space."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tangentlab import reference


def network(outputs: int = 3, inputs: int = 4, hidden: int = 10, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs)).double()


def samples(n: int, seed: int = 1, inputs: int = 4) -> Tensor:
    return torch.randn(n, inputs, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def labels(x: Tensor, classes: int = 3) -> Tensor:
    return ((x[:, 0] > 0).long() + (x[:, 1] > 0).long()) % classes


def jacobian(model: nn.Module, x: Tensor) -> Tensor:
    """J, (N O, P)."""
    parts = reference.jacobian(model, x)
    first = next(iter(parts.values()))
    return torch.cat([part.reshape(first.shape[0] * first.shape[1], -1) for part in parts.values()], 1)


def softmax_weights(outputs: Tensor) -> Tensor:
    """W, (N O, N O)."""
    return torch.block_diag(*[torch.diag(p) - torch.outer(p, p) for p in torch.softmax(outputs, 1)])


@dataclass
class Laplace:
    """Linearized Laplace in weight space: covariance of new outputs, and the log marginal likelihood."""

    covariance: Tensor
    evidence: float


def laplace(model: nn.Module, x: Tensor, y: Tensor, new: Tensor, precision: float) -> Laplace:
    outputs = model(x).detach()
    count = outputs.shape[1]
    one, two, weights = jacobian(model, x), jacobian(model, new), softmax_weights(outputs)
    total = one.T @ weights @ one + precision * torch.eye(one.shape[1]).double()
    covariance = (two @ torch.linalg.solve(total, two.T)).reshape(len(new), count, len(new), count)
    fit = -float(torch.nn.functional.cross_entropy(outputs, y, reduction="sum"))
    norm = sum(float(p.detach().square().sum()) for p in model.parameters())
    shift = one.shape[1] * math.log(precision)
    return Laplace(covariance, fit - precision * norm / 2 - (float(torch.logdet(total)) - shift) / 2)


def blocks(joint: Tensor) -> Tensor:
    return torch.stack([joint[i, :, i] for i in range(len(joint))])
