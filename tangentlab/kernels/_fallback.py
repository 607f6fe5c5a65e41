"""The exact fallback for every model: plain automatic differentiation, one sample and one readout at a time."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Values = Callable[[Any], Tensor]
"""From a batch of samples to the readouts (B, R)."""


def jacobian_rows(values: Values, sample: Any, parameters: Sequence[Tensor]) -> list[Tensor]:
    """Compute the gradients of one sample's R readouts, (R, *shape) per parameter: one forward, R backward passes."""
    with torch.enable_grad():
        row = values(sample).reshape(-1)
        columns = [gradient(row[r], parameters, keep=r + 1 < len(row)) for r in range(len(row))]
    return [torch.stack(column) for column in zip(*columns, strict=True)]


def gradient(value: Tensor, parameters: Sequence[Tensor], keep: bool = False) -> list[Tensor]:
    """Compute the gradient of one number, a dense tensor per parameter; ``keep`` its graph for another."""
    if not value.requires_grad:
        return [torch.zeros_like(parameter) for parameter in parameters]
    found = torch.autograd.grad(value, list(parameters), retain_graph=keep, allow_unused=True)
    return [_dense(part, parameter) for part, parameter in zip(found, parameters, strict=True)]


def _dense(gradient: Tensor | None, parameter: Tensor) -> Tensor:
    if gradient is None:
        return torch.zeros_like(parameter)
    return gradient.to_dense() if gradient.is_sparse else gradient
