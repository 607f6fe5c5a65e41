"""Embeddings with dense gradients, whose forward-mode derivative is the one that backward passes have."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._signatures import EmbeddingBagCall, EmbeddingCall


def embedding(*args: Any, **kwargs: Any) -> Tensor:
    """Look up rows of a table, as ``F.embedding`` does; the row of ``padding_idx`` has neither gradient nor tangent.

    Gradients are dense whatever ``sparse`` says: a dual tensor is a view of its value, and views have no sparse ones.

    Raises:
        TangentError: The gradient that PyTorch reports is not the derivative (``max_norm``, ``scale_grad_by_freq``).
    """
    call = EmbeddingCall(*args, **kwargs)
    _refuse_rescaled(call)
    y = F.embedding(call.input, call.weight)
    if call.padding_idx is None:
        return y
    padding = call.input == call.padding_idx % len(call.weight)
    return torch.where(padding.unsqueeze(-1), y.detach(), y)


def embedding_bag(*args: Any, **kwargs: Any) -> Tensor:
    """Sum, average or maximize rows of a table, as ``F.embedding_bag`` does. Gradients are dense.

    Raises:
        TangentError: As for :func:`embedding`.
    """
    call = EmbeddingBagCall(*args, **kwargs)
    _refuse_rescaled(call)
    return F.embedding_bag(**call._replace(sparse=False)._asdict())


def _refuse_rescaled(call: EmbeddingCall | EmbeddingBagCall) -> None:
    """Refuse tables whose reported gradient is not the derivative of what they give."""
    if call.max_norm is not None or call.scale_grad_by_freq:
        raise TangentError(
            f"An embedding has {'scale_grad_by_freq' if call.max_norm is None else 'max_norm'} set.",
            why="It changes the table while it is read, or reports a gradient that is not the derivative.",
            remedy="Build the embedding without it.",
        )
