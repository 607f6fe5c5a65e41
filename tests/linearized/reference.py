"""The definition, written out: an explicit Jacobian by plain autograd, one output at a time."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from tangentlab.linearized import Linearized, linearize


def move(model: nn.Module, size: float = 0.3, seed: int = 1) -> None:
    """Move every parameter by ``size`` times normal noise."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.add_(size * noise.to(parameter))


def jacobian(network: nn.Module, *inputs: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """Outputs (n,) of the network, all samples and outputs in a row, and their Jacobian (n, P)."""
    weights = {name: value.detach().clone().requires_grad_() for name, value in network.named_parameters()}
    output = functional_call(network, weights, inputs, kwargs).reshape(-1)
    rows = []
    for value in output:
        grads = torch.autograd.grad(value, list(weights.values()), retain_graph=True, allow_unused=True)
        pairs = zip(grads, weights.values(), strict=True)
        rows.append(torch.cat([(torch.zeros_like(w) if g is None else g).reshape(-1) for g, w in pairs]))
    return output.detach(), torch.stack(rows)


def moved(network: nn.Module, *inputs: Any, like: nn.Module | None = None) -> tuple[Linearized, Tensor, Tensor]:
    """The linearized network away from its base point, its outputs (n,) by definition, and the Jacobian (n, P).

    Args:
        network: The network.
        inputs: Its inputs.
        like: A network that has the same Jacobian, if plain autograd cannot take this one.
    """
    start, rows = jacobian(network if like is None else like, *inputs)
    lin = linearize(network)
    move(lin)
    return lin, start + rows @ flat(lin.displacement().values()), rows


def flat(tensors: Any) -> Tensor:
    """One vector."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


def difference(a: Tensor, b: Tensor) -> float:
    """Largest difference, relative to the largest entry of ``b`` (or absolute if that is below one)."""
    return float((a - b).abs().max() / b.abs().max().clamp(min=1))
