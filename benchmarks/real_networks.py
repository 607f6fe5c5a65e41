"""Networks of real size, and those of the papers, each with samples for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import networks


def _tokens(samples: int, length: int, vocabulary: int) -> Tensor:
    return torch.randint(1, vocabulary, (samples, length), generator=torch.Generator().manual_seed(0))


def gpt2(samples: int) -> tuple[nn.Module, Any]:
    """Return GPT-2 (124 million parameters) with a head of ten outputs, and sequences of 64 tokens."""
    from transformers import GPT2Config, GPT2ForSequenceClassification

    model = GPT2ForSequenceClassification(GPT2Config(num_labels=10, pad_token_id=0))
    return model, {"input_ids": _tokens(samples, 64, 50257)}


def gpt2_short(samples: int) -> tuple[nn.Module, Any]:
    """Return GPT-2 and sequences of 32 tokens."""
    return gpt2(1)[0], {"input_ids": _tokens(samples, 32, 50257)}


def gpt2_lm(samples: int, **shape: int) -> tuple[nn.Module, Any]:
    """Return GPT-2 with its language-model head, whose weight is the table of tokens, and sequences of 64 tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(use_cache=False, **shape)), {"input_ids": _tokens(samples, 64, 50257)}


def llama(samples: int) -> tuple[nn.Module, Any]:
    """Return a Llama-style decoder (135 million parameters), and sequences of 64 tokens."""
    from transformers import LlamaConfig, LlamaForSequenceClassification

    shape = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30}
    heads = {"num_attention_heads": 9, "num_key_value_heads": 3}
    config = LlamaConfig(vocab_size=49152, num_labels=10, pad_token_id=0, **shape, **heads)
    return LlamaForSequenceClassification(config), {"input_ids": _tokens(samples, 64, 49152)}


def bert(samples: int) -> tuple[nn.Module, Any]:
    """Return BERT-base (109 million parameters) with two outputs, and sequences of 128 tokens."""
    from transformers import BertConfig, BertForSequenceClassification

    mask = torch.ones(samples, 128, dtype=torch.long)
    model = BertForSequenceClassification(BertConfig(num_labels=2))
    return model, {"input_ids": _tokens(samples, 128, 30522), "attention_mask": mask}


def vit(samples: int) -> tuple[nn.Module, Any]:
    """Return ViT-B/16 (86 million parameters) with ten outputs, and images of 224 x 224."""
    from transformers import ViTConfig, ViTForImageClassification

    images = torch.randn(samples, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    return ViTForImageClassification(ViTConfig(num_labels=10)), {"pixel_values": images}


def resnet50(samples: int) -> tuple[nn.Module, Any]:
    """Return ResNet50 for CIFAR-10 (24 million parameters), and images of 32 x 32."""
    from tangentlab import models

    images = torch.randn(samples, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    return models.build("resnet50", input_shape=(3, 32, 32), outputs=10, seed=0), images


def efficientnet(samples: int) -> tuple[nn.Module, Any]:
    """Return the pretrained EfficientNet-Lite0 with ten outputs (3.4 million parameters), and images of 96 x 96."""
    from benchmarks.efficientnet import SIZE, pretrained

    return pretrained(), torch.randn(samples, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(0))


def small(build: Callable[[int], nn.Module], samples: int) -> tuple[nn.Module, Any]:
    """Return one of the networks of ``python -m benchmarks`` with ten outputs, and images of 32 x 32."""
    return build(10), torch.randn(samples, *networks.INPUT_SHAPE, generator=torch.Generator().manual_seed(0))


NETWORKS: dict[str, Callable[[int], tuple[nn.Module, Any]]] = {
    "gpt2": gpt2,
    "gpt2-short": gpt2_short,
    "gpt2-lm": gpt2_lm,
    "gpt2-lm-small": partial(gpt2_lm, n_embd=256, n_layer=4, n_head=4),
    "llama": llama,
    "bert": bert,
    "vit": vit,
    "resnet50": resnet50,
    "efficientnet": efficientnet,
    "mlp": partial(small, networks.mlp),
    "fcn": partial(small, networks.fcn),
    "lenet": partial(small, networks.LeNet),
    "resnet18": partial(small, networks.ResNet18),
}
