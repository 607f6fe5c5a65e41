"""Tables of vectors. They are here because PyTorch's forward mode disagrees with its gradients, or does not exist."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab.linearized._rules._dual import join, split, split_optional, total
from tangentlab.linearized._tables import refuse


def embedding(
    function: Callable[..., Tensor],
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of a table. Autograd gives the row of ``padding_idx`` no gradient, so it has no tangent either.

    Gradients are dense whatever ``sparse`` says: a dual tensor is a view of its value, and views have no sparse ones.
    """
    refuse(max_norm, scale_grad_by_freq)
    w, dw = split(weight)
    y = function(input, w, padding_idx, None, norm_type, False, False)
    if dw is None:
        return y
    with torch.no_grad():
        dy = function(input, dw)
        if padding_idx is not None:
            dy.masked_fill_((input == padding_idx % len(w)).unsqueeze(-1), 0)
    return join(y, dy)


def embedding_bag(
    function: Callable[..., Tensor],
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
    """Sums or means of rows: linear in the table, and in the weights of the sum. Gradients are dense."""
    refuse(max_norm, scale_grad_by_freq)
    (w, dw), (s, ds) = split(weight), split_optional(per_sample_weights)

    def bags(table: Tensor, weights: Tensor | None) -> Tensor:
        common: dict[str, Any] = {"include_last_offset": include_last_offset, "padding_idx": padding_idx}
        return function(input, table, offsets, mode=mode, sparse=False, per_sample_weights=weights, **common)

    if mode == "max" and dw is not None:
        raise TangentError(
            "An embedding bag takes the maximum.",
            why="PyTorch has no forward-mode derivative of it.",
            remedy="Use mode='sum' or 'mean', or an embedding followed by .amax(1).",
        )
    y = bags(w, s)
    with torch.no_grad():
        dy = total([None if dw is None else bags(dw, s), None if ds is None else bags(w, ds)])
    return join(y, dy)
