"""Kernels of Hugging Face models, built from small configurations: nothing is downloaded."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tangentlab

transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[docs]'")

N, TOKENS, VOCABULARY = 6, 7, 30
ENCODER = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "num_labels": 3,
}
DECODER = {"vocab_size": VOCABULARY, "n_positions": 12, "n_embd": 16, "n_layer": 2, "n_head": 2, "num_labels": 3}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def sentences() -> dict[str, Tensor]:
    """Token numbers and masks; half of the sentences are padded to the common length."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, VOCABULARY, (N, TOKENS), generator=generator)
    mask = torch.ones_like(ids)
    for row, length in ((1, 4), (3, 2), (5, 6)):
        mask[row, length:] = 0
    return {"input_ids": ids * mask, "attention_mask": mask}


def bert(attention: str) -> tuple[nn.Module, dict[str, Tensor]]:
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, max_position_embeddings=12, attn_implementation=attention, **ENCODER
    )
    return transformers.BertForSequenceClassification(config), sentences()


def vit(attention: str) -> tuple[nn.Module, dict[str, Tensor]]:
    config = transformers.ViTConfig(image_size=8, patch_size=4, attn_implementation=attention, **ENCODER)
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(N, 3, 8, 8, dtype=torch.float64, generator=generator)
    return transformers.ViTForImageClassification(config), {"pixel_values": images}


def gpt2_classifier(attention: str) -> tuple[nn.Module, dict[str, Tensor]]:
    config = transformers.GPT2Config(attn_implementation=attention, **DECODER, **SPECIAL)
    return transformers.GPT2ForSequenceClassification(config), sentences()


def gpt2_language_model(attention: str) -> tuple[nn.Module, dict[str, Tensor]]:
    config = transformers.GPT2Config(attn_implementation=attention, **DECODER, **SPECIAL)
    return transformers.GPT2LMHeadModel(config), sentences()


def logits(result: Any) -> Tensor:
    return result.logits


def second_token(result: Any) -> Tensor:
    """Five logits of the second position: the language model's head is the tied embedding."""
    return result.logits[:, 1, 3:8]


MODELS: dict[str, tuple[Callable[[str], tuple[nn.Module, dict[str, Tensor]]], Callable[[Any], Tensor]]] = {
    "bert": (bert, logits),
    "vit": (vit, logits),
    "gpt2 classifier": (gpt2_classifier, logits),
    "gpt2 language model": (gpt2_language_model, second_token),
}


def build(name: str, attention: str) -> tuple[nn.Module, dict[str, Tensor], Callable[[Any], Tensor]]:
    make, output = MODELS[name]
    torch.manual_seed(0)
    model, inputs = make(attention)
    return model.double().eval(), inputs, output


def error(kernel: Tensor, reference: Tensor) -> float:
    return float((kernel - reference).abs().max() / reference.abs().max())


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", MODELS)
def test_kernel_is_the_reference_and_covers_all_parameters(name: str, attention: str) -> None:
    model, inputs, output = build(name, attention)
    table = tangentlab.explain(model, inputs, output=output)
    covered = [parameter for row in table.parameters for parameter in row.split(", ")]
    assert sorted(covered) == sorted(dict(model.named_parameters()))
    assert "fallback" not in set(table.form)
    layers = tangentlab.ntk(model, inputs, output=output, per_layer=True)
    assert layers.keys() == set(table.layer)
    jacobian = tangentlab.reference.jacobian(model, inputs, output=output)
    parts: dict[str, Tensor] = {}
    for parameter, gradients in jacobian.items():
        rows = gradients.flatten(2)
        layer = parameter.rpartition(".")[0]
        parts[layer] = parts.get(layer, 0) + torch.einsum("nop,mqp->nomq", rows, rows)
    # By layer, so that no small layer hides behind the large ones.
    assert all(error(layers[layer], part) < 1e-10 for layer, part in parts.items() if part.any())
    whole = tangentlab.ntk(model, inputs, output=output)
    assert error(whole, torch.stack(list(parts.values())).sum(0)) < 1e-10


@pytest.mark.parametrize("name", ["bert", "gpt2 classifier", "vit"])
def test_pseudo_kernel_between_two_sets(name: str) -> None:
    model, inputs, output = build(name, "sdpa")
    rows = {key: value[:4] for key, value in inputs.items()}
    columns = {key: value[2:] for key, value in inputs.items()}
    options = {"readout": "pntk", "output": output}
    kernel = tangentlab.ntk(model, rows, columns, **options)
    assert error(kernel, tangentlab.reference.ntk(model, rows, columns, **options)) < 1e-10
    operator = tangentlab.NTKOperator(model, inputs, **options)
    v = torch.randn(N, 2, dtype=torch.float64)
    assert error(operator @ v, tangentlab.reference.ntk(model, inputs, **options) @ v) < 1e-10


@pytest.mark.parametrize("name", ["bert", "gpt2 classifier"])
def test_masks_that_appear_after_the_first_batch(name: str) -> None:
    """These models take another way through where a batch has no padding; no batch may be computed by the wrong one."""
    model, inputs, output = build(name, "sdpa")
    order = inputs["attention_mask"].sum(1).argsort(descending=True)
    inputs = {key: value[order] for key, value in inputs.items()}
    kernel = tangentlab.ntk(model, inputs, output=output, batch_size=2)
    assert error(kernel, tangentlab.reference.ntk(model, inputs, output=output)) < 1e-10


def test_tied_head_counts_both_uses() -> None:
    model, inputs, output = build("gpt2 language model", "eager")
    assert model.lm_head.weight is model.transformer.wte.weight
    tied = tangentlab.ntk(model, inputs, output=output, parameters=["transformer.wte.weight"])
    model.lm_head.weight = nn.Parameter(model.transformer.wte.weight.detach().clone())
    apart = tangentlab.ntk(model, inputs, output=output, parameters=["transformer.wte.weight"])
    assert error(tied, apart) > 1e-3
    model.transformer.wte.weight = model.lm_head.weight
    reference = tangentlab.reference.ntk(model, inputs, output=output, parameters=["transformer.wte.weight"])
    assert error(tied, reference) < 1e-10


def test_frozen_and_unused_parameters_are_named() -> None:
    """A frozen encoder leaves the head; a pooler that the output does not depend on adds nothing."""
    model, inputs, output = build("bert", "sdpa")
    for parameter in model.bert.parameters():
        parameter.requires_grad_(False)
    head = tangentlab.ntk(model, inputs, output=output, per_layer=True)
    assert list(head) == ["classifier"]
    torch.manual_seed(0)
    encoder = transformers.BertModel(model.config).double().eval()
    first = tangentlab.ntk(encoder, inputs, output=lambda result: result.last_hidden_state[:, 0, :2], per_layer=True)
    assert first["pooler.dense"].abs().max() == 0
    total = torch.stack(list(first.values())).sum(0)
    wanted = tangentlab.reference.ntk(encoder, inputs, output=lambda result: result.last_hidden_state[:, 0, :2])
    assert error(total, wanted) < 1e-10
