"""Linearized transformers equal their definition in float64, with subsets, adapters, checkpointing and labels."""

import copy
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp
from torch.nn.attention import SDPBackend, sdpa_kernel

from tangentlab import linearize
from tangentlab.linearized import Linearized
from tests.finetune.transformer_models import FAMILIES, Inputs, bert, gpt2, llama


def built(family: Callable[..., tuple[nn.Module, Inputs]], **options: Any) -> tuple[nn.Module, Inputs]:
    torch.manual_seed(0)
    model, inputs = family(**options)
    with torch.no_grad():
        for parameter in model.parameters():  # far from the small initial weights, at which little happens
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return model.double().eval(), {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}


def displaced(model: nn.Module) -> Linearized:
    lin = linearize(model)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in lin.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return lin


def assert_is_definition(lin: Linearized, model: nn.Module, inputs: Inputs) -> None:
    """Outputs are f + J d and gradients J^T v, computed by torch.func and by a backward pass with plain attention."""
    with sdpa_kernel(SDPBackend.MATH):
        base = {name: p.detach() for name, p in model.named_parameters()}
        moved = lin.displacement()
        f, jd = jvp(lambda w: functional_call(model, w, (), inputs).logits, (base,), (moved,))
        output = lin(**inputs).logits
        assert float((output.detach() - f - jd).abs().max()) <= 1e-10 * float(f.abs().max() + jd.abs().max())
        assert float(jd.abs().max()) > 1e-3
        v = torch.randn_like(output)
        named = {n: p for n, p in lin.named_parameters() if p.requires_grad}
        found = torch.autograd.grad(output, list(named.values()), v, allow_unused=True)
        own = dict(model.named_parameters())
        expected = torch.autograd.grad(model(**inputs).logits, [own[n] for n in named], v, allow_unused=True)
    largest = max(float(g.abs().max()) for g in expected if g is not None)
    for g, e in zip(found, expected, strict=True):
        if e is not None:
            assert float((g - e).abs().max()) <= 1e-10 * largest


@pytest.mark.parametrize("name", FAMILIES)
def test_families_are_their_definition(name: str) -> None:
    model, inputs = built(FAMILIES[name])
    lin = displaced(model)
    assert_is_definition(lin, model, inputs)
    assert lin._settings.distrust == ""  # forward mode, with the fast attention kernel


def test_attention_without_sdpa() -> None:
    model, inputs = built(bert, attn_implementation="eager")
    assert_is_definition(displaced(model), model, inputs)


def _last_layer(model: nn.Module) -> Iterable[str]:
    return [name for name, _ in model.named_parameters() if "layer.1" in name or "classifier" in name]


def _biases(model: nn.Module) -> Iterable[str]:
    return [name for name, _ in model.named_parameters() if name.endswith("bias")]


@pytest.mark.parametrize("subset", [_last_layer, _biases])
def test_only_the_subset_has_tangents_and_optimizer_state(subset: Callable[[nn.Module], Iterable[str]]) -> None:
    model, inputs = built(bert)
    chosen = set(subset(model))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in chosen)
    lin = displaced(model)
    assert set(lin._point().displacement) == chosen
    assert_is_definition(lin, model, inputs)
    optimizer = torch.optim.AdamW(p for p in lin.parameters() if p.requires_grad)
    lin(**inputs).logits.square().sum().backward()
    optimizer.step()
    assert len(optimizer.state_dict()["state"]) == len(chosen)


def test_adapters_of_peft() -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed: pip install '.[huggingface]'")
    model, inputs = built(bert)
    config = peft.LoraConfig(r=2, target_modules=["query", "value"], lora_dropout=0.0, init_lora_weights=False)
    adapted = peft.get_peft_model(model, config).double().eval()
    lin = displaced(adapted)
    assert all("lora" in name for name in lin._point().displacement)
    assert_is_definition(lin, adapted, inputs)
    assert float(lin(**inputs, labels=torch.tensor([0, 1, 2, 0])).loss.detach()) > 0


@pytest.mark.parametrize("family", [bert, gpt2, llama])
def test_gradient_checkpointing(family: Callable[..., tuple[nn.Module, Inputs]]) -> None:
    model, inputs = built(family)
    plain = displaced(model)
    other = copy.deepcopy(model).train()
    for module in other.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    for module in other.modules():
        for name in ("dropout_prob", "attention_dropout", "dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    other.gradient_checkpointing_enable()
    lin = linearize(other)
    lin.load_state_dict(plain.state_dict())
    gradients = []
    for one in (plain, lin):
        output = one(**inputs).logits
        gradients.append((output.detach(), *torch.autograd.grad(output.square().sum(), list(one.parameters()))))
    for a, b in zip(*gradients, strict=True):
        assert float((a - b).abs().max()) <= 1e-10 * max(1.0, float(b.abs().max()))


def test_mixed_precision() -> None:
    model, inputs = built(bert)
    model = model.float()
    lin = displaced(model)
    exact = lin(**inputs).logits.detach()
    with torch.autocast("cpu", torch.bfloat16):
        output = lin(**inputs).logits
    assert float((output.detach() - exact).norm() / exact.norm()) < 0.1
    output.float().square().sum().backward()
    assert all(p.grad is None or p.grad.dtype == torch.float32 for p in lin.parameters())


@pytest.mark.parametrize("name", FAMILIES)
def test_the_loss_is_that_of_the_linearized_logits(name: str) -> None:
    model, inputs = built(FAMILIES[name])
    lin = displaced(model)
    labels: Tensor = inputs["input_ids"] if name in ("gpt2", "llama") else torch.tensor([0, 2, 1, 1])
    output = lin(**inputs, labels=labels)
    logits = lin(**inputs).logits
    if name in ("gpt2", "llama"):
        expected = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    else:
        expected = nn.functional.cross_entropy(logits, labels)
    assert float((output.loss - expected).abs().detach()) < 1e-6
    assert torch.equal(output.logits, logits)
    assert isinstance(output, type(model(**inputs)))


def test_a_long_sequence_is_done_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    from tangentlab.linearized._rules import _attention

    model, inputs = built(llama)
    lin = displaced(model)
    whole = lin(**inputs).logits.detach()
    monkeypatch.setattr(_attention, "_SCORES", 150)
    assert float((lin(**inputs).logits.detach() - whole).abs().max()) < 1e-12
