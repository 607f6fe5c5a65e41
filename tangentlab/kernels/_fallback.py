"""The exact way that always works: plain automatic differentiation, one sample and one readout at a time."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Values = Callable[[Any], Tensor]
"""From a batch of model inputs to the readouts (B, R)."""


def jacobian_rows(values: Values, sample: Any, parameters: Sequence[Tensor]) -> list[Tensor]:
    """Gradients of one sample's R readouts: for each parameter (R, *shape). One forward and R backward passes."""
    with torch.enable_grad():
        row = values(sample).reshape(-1)
        columns = [
            torch.autograd.grad(row[r], list(parameters), retain_graph=r + 1 < len(row), allow_unused=True)
            if row.requires_grad
            else [None] * len(parameters)
            for r in range(len(row))
        ]
    return [torch.stack([_dense(column[i], parameter) for column in columns]) for i, parameter in enumerate(parameters)]


def _dense(gradient: Tensor | None, parameter: Tensor) -> Tensor:
    if gradient is None:
        return torch.zeros_like(parameter)
    return gradient.to_dense() if gradient.is_sparse else gradient
