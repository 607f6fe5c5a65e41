"""Tables of vectors where no rule is at work: forward mode as backward passes have it."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tangentlab._errors import TangentError


def refuse(max_norm: float | None, scale_grad_by_freq: bool) -> None:
    """Refuses tables whose gradient is not the derivative of what they give."""
    if max_norm is not None or scale_grad_by_freq:
        raise TangentError(
            f"An embedding has {'scale_grad_by_freq' if max_norm is None else 'max_norm'} set.",
            why="It changes the table while it is read, or reports a gradient that is not the derivative.",
            remedy="Build the embedding without it.",
        )


def rows(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """``F.embedding`` with dense gradients, and neither gradient nor tangent for the row of ``padding_idx``."""
    refuse(max_norm, scale_grad_by_freq)
    y = F.embedding(input, weight)
    if padding_idx is None:
        return y
    return torch.where((input == padding_idx % len(weight)).unsqueeze(-1), y.detach(), y)


def bags(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """``F.embedding_bag`` with dense gradients."""
    refuse(max_norm, scale_grad_by_freq)
    options: dict[str, Any] = {"include_last_offset": include_last_offset, "padding_idx": padding_idx}
    return F.embedding_bag(input, weight, offsets, mode=mode, per_sample_weights=per_sample_weights, **options)
