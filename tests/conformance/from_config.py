"""Networks of ``transformers``, built from a small configuration: nothing is downloaded."""

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.conformance.family import SAMPLES, Problem, part

os.environ.setdefault("HF_HUB_OFFLINE", "1")

VOCABULARY, TOKENS = 50, 8
LENGTHS = (8, 5, 3, 7, 6)
"""Tokens of each sentence before its padding."""
TINY = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 40,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "num_labels": 3,
}
"""What most text models call these things; a family's own settings go over it, and None takes one away."""


def sentences(side: str = "right", lengths: tuple[int, ...] = LENGTHS, tokens: int = TOKENS) -> dict[str, Tensor]:
    """Token numbers and masks of sentences of different lengths, padded on one side; each ends with ``</s>``."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, VOCABULARY, (len(lengths), tokens), generator=generator)
    ids[:, -1] = 2
    mask = torch.zeros_like(ids)
    for row, length in enumerate(lengths):
        mask[row, tokens - length :] = 1
    ids = ids * mask
    if side == "right":
        ids, mask = (
            torch.stack([row.roll(length - tokens) for row, length in zip(t, lengths, strict=True)])
            for t in (ids, mask)
        )
    return {"input_ids": ids, "attention_mask": mask}


def targets(tokens: int = 4) -> Tensor:
    """What a decoder reads."""
    return torch.randint(3, VOCABULARY, (SAMPLES, tokens), generator=torch.Generator().manual_seed(3))


def model_of(auto: str, model_type: str, settings: dict[str, Any], defaults: dict[str, Any] = TINY) -> Any:
    """``AutoModelFor...`` from a configuration."""
    import transformers

    transformers.logging.set_verbosity_error()
    merged = {name: value for name, value in (defaults | settings).items() if value is not None}
    config = transformers.AutoConfig.for_model(model_type, **merged)
    return getattr(transformers, auto).from_config(config)


def text(
    auto: str,
    model_type: str,
    settings: dict[str, Any] | None = None,
    *,
    field: str = "logits",
    inputs: Callable[[], dict[str, Any]] = sentences,
    defaults: dict[str, Any] = TINY,
) -> Callable[[], Problem]:
    """Build a text model; ``settings`` override the small defaults."""

    def build() -> Problem:
        return Problem(model_of(auto, model_type, settings or {}, defaults), inputs(), part(field))

    return build
