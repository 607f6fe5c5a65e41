"""Sums of rows of a table, for which PyTorch has no forward-mode derivative."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._signatures import EmbeddingBagCall
from tangentlab.linearized import _embedding
from tangentlab.linearized._rules._dual import join, split, split_optional, total


def embedding_bag(function: Callable[..., Tensor], *args: Any, **kwargs: Any) -> Tensor:
    """Sum or average rows: linear in the table, and in the weights of the sum. Gradients are dense."""
    call = EmbeddingBagCall(*args, **kwargs)
    (w, dw), (s, ds) = split(call.weight), split_optional(call.per_sample_weights)

    def bags(table: Tensor, weights: Tensor | None) -> Tensor:
        return _embedding.embedding_bag(**call._replace(weight=table, per_sample_weights=weights)._asdict())

    if call.mode == "max" and dw is not None:
        raise TangentError(
            "An embedding bag takes the maximum.",
            why="PyTorch has no forward-mode derivative of it.",
            remedy="Use mode='sum' or 'mean', or an embedding followed by .amax(1).",
        )
    y = bags(w, s)
    with torch.no_grad():
        dy = total([None if dw is None else bags(dw, s), None if ds is None else bags(w, ds)])
    return join(y, dy)
