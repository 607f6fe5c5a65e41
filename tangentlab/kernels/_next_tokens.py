"""Which token follows each position of a text, for the readout of causal language models."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab.kernels._inputs import Batch
from tangentlab.kernels._target_values import described_one
from tangentlab.kernels._targets import IGNORED


def next_tokens(batch: Batch, outputs: Tensor, every: bool = True) -> Tensor:
    """Return the token that follows each position, (B, T), ``IGNORED`` where none counts.

    Labels are aligned with the tokens, as those of ``transformers`` are: the label of position t is the token at t, or
    -100 if it does not count. Without labels, the tokens are taken. A token counts if the attention mask keeps both it
    and the position before it, which predicts it.

    Args:
        batch: Tokens as a tensor (B, T) or as ``input_ids``, with an ``attention_mask`` (B, T) or none; the labels.
        outputs: Logits (B, T, V).
        every: Whether each text must have a token that counts.

    Raises:
        TangentError: There are no tokens, they do not fit the outputs, or a text has none that counts.
    """
    tokens, mask = _tokens(batch.inputs), _mask(batch)
    labels = tokens if batch.targets is None else batch.targets
    if labels is None:
        raise TangentError(
            "The readout 'next_token' needs tokens, and the samples have none that are known.",
            "They are the samples themselves as integers (N, T), input_ids in a dict, or targets.",
            "Pass the tokens as targets=, with -100 where one does not count.",
        )
    if not isinstance(labels, Tensor) or labels.ndim != 2 or labels.is_floating_point() or labels.is_complex():
        raise TangentError(
            f"The target of a sample is {described_one(labels)}.",
            "The readout 'next_token' takes the tokens of each text, integers (T,).",
            "Pass the tokens as targets=, with -100 where one does not count.",
        )
    if outputs.ndim != 3 or outputs.shape[:2] != labels.shape or outputs.shape[2] < 2:
        raise TangentError(
            f"The outputs of a sample are {tuple(outputs.shape[1:])}, and its tokens {tuple(labels.shape[1:])}.",
            "The readout 'next_token' takes one logit per token of the vocabulary at each position, (T, V).",
            "Pass output=lambda r: r.logits for a model of transformers, or a function of one sample's outputs and its "
            "target as readout=.",
        )
    labels = labels.long()
    counted = labels != IGNORED
    if bool(counted.any()):
        _refuse_strange(labels[counted], outputs.shape[2])
    if batch.targets is not None and tokens is not None and tokens.shape == labels.shape:
        _refuse_shifted(labels, tokens.long(), counted)
    if mask is not None:
        counted = counted & mask
        counted[:, 1:] &= mask[:, :-1]
    following = torch.full_like(labels, IGNORED)
    following[:, :-1] = labels[:, 1:].where(counted[:, 1:], IGNORED)
    if every and not bool((following != IGNORED).any(1).all()):
        raise TangentError(
            "A text has no token that follows another and counts.",
            "The readout 'next_token' is a mean over such tokens.",
            "Leave out texts of one token, and those whose labels are all -100.",
        )
    return following


def _tokens(inputs: Any) -> Tensor | None:
    found = inputs.get("input_ids") if isinstance(inputs, Mapping) else inputs
    if isinstance(found, tuple) and len(found) == 1:
        found = found[0]
    return found if isinstance(found, Tensor) and found.ndim == 2 and not found.is_floating_point() else None


def _mask(batch: Batch) -> Tensor | None:
    """Return which tokens count, by the attention mask.

    Raises:
        TangentError: The mask does not say it of single tokens, and there are no labels that do.
    """
    mask = batch.inputs.get("attention_mask") if isinstance(batch.inputs, Mapping) else None
    if not isinstance(mask, Tensor) or mask.ndim == 2:
        return None if mask is None else mask != 0
    if batch.targets is None:
        raise TangentError(
            f"The attention mask of a sample is {described_one(mask)}.",
            "Only a mask (T,) of 0 and 1 says which tokens are padding.",
            "Pass the tokens as targets=, with -100 where one does not count.",
        )
    return None


def _refuse_strange(labels: Tensor, vocabulary: int) -> None:
    least, largest = int(labels.min()), int(labels.max())
    if least < 0 or largest >= vocabulary:
        raise TangentError(
            f"The targets hold the token {least if least < 0 else largest}.",
            f"The model has {vocabulary} logits per position, so tokens are 0 to {vocabulary - 1}, or -100 for one "
            "that does not count.",
            "Check that tokenizer and model belong together.",
        )


def _refuse_shifted(labels: Tensor, tokens: Tensor, counted: Tensor) -> None:
    """Refuse labels that are not the tokens at their positions."""
    if bool((labels == tokens)[counted].all()):
        return
    shifted = bool((labels[:, :-1] == tokens[:, 1:])[counted[:, :-1]].all())
    raise TangentError(
        "The targets are the tokens shifted by one." if shifted else "The targets are other tokens than the samples'.",
        "The label of a position is the token at that position, as in transformers, or -100 if it does not count; the "
        "readout compares it with the logits one position earlier.",
        "Pass the tokens themselves as targets=."
        if shifted
        else "Pass a function of one sample's outputs and its "
        "target as readout= for a model that does not predict the next token.",
    )
