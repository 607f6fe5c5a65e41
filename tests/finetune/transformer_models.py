"""Tiny transformers of the families that people fine-tune, built from their configurations, with inputs."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[huggingface]'")

Inputs = dict[str, Tensor]
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}


def tokens(samples: int = 4, length: int = 6) -> Inputs:
    """Sequences of different lengths, padded at the end."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, 40, (samples, length), generator=generator)
    mask = (torch.arange(length) < torch.arange(length, length - samples, -1)[:, None]).long()
    return {"input_ids": ids * mask, "attention_mask": mask}


def bert(**options: Any) -> tuple[nn.Module, Inputs]:
    """BERT with a classifier."""
    config = transformers.BertConfig(vocab_size=40, num_labels=3, max_position_embeddings=16, **{**SMALL, **options})
    return transformers.BertForSequenceClassification(config), tokens()


def gpt2(**options: Any) -> tuple[nn.Module, Inputs]:
    """GPT-2 with its language-model head, whose table is tied."""
    config = transformers.GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=2, n_head=4, **options)
    return transformers.GPT2LMHeadModel(config), tokens()


def llama(**options: Any) -> tuple[nn.Module, Inputs]:
    """A Llama-style decoder with fewer keys than queries."""
    config = transformers.LlamaConfig(vocab_size=40, num_key_value_heads=2, **{**SMALL, **options})
    return transformers.LlamaForCausalLM(config), tokens()


def vit(**options: Any) -> tuple[nn.Module, Inputs]:
    """A vision transformer."""
    config = transformers.ViTConfig(image_size=8, patch_size=4, num_labels=3, **{**SMALL, **options})
    images = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    return transformers.ViTForImageClassification(config), {"pixel_values": images}


FAMILIES: dict[str, Callable[..., tuple[nn.Module, Inputs]]] = {"bert": bert, "gpt2": gpt2, "llama": llama, "vit": vit}
