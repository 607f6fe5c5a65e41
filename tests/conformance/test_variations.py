"""What users do with such networks: other attention, padding, tying, freezing, checkpointing, precision, batches."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tangentlab
from tests.conformance.check import TOLERANCE, examine, gram, kernel_error, sample_jacobians
from tests.conformance.family import Family, Problem, each_tensor, part, stir
from tests.conformance.from_config import TINY, model_of, sentences, text
from tests.conformance.precision import float64_throughout
from tests.conformance.registry import family

pytest.importorskip("transformers", reason="transformers is not installed: pip install '.[dev]'")

SINGLE = 2e-4
"""Of sqrt(K_ii K_jj): what float32 leaves of a kernel of small networks with generic weights."""


def some(*names: str, fast: tuple[str, ...] = ()) -> Any:
    """Parametrize over families; all but the fast ones are marked as soak tests."""
    return pytest.mark.parametrize(
        "name", [pytest.param(name, marks=[] if name in fast else [pytest.mark.soak]) for name in names]
    )


def generic(build: Callable[[], Problem], change: Callable[[nn.Module], object] = lambda model: None) -> Problem:
    """A problem in float64 with generic weights, after a change of the model."""

    def changed() -> Problem:
        problem = build()
        change(problem.model)
        return problem

    return Family("variations", "changed", changed).problem()


def exact(problem: Problem) -> None:
    verdict = examine(problem)
    assert not verdict.wrong()
    assert not verdict.refusals, verdict.refusals


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@some("bert", "gpt2", "llama", "gemma2", "vit", "bart", "whisper", "mixtral", "esm", "roberta", fast=("llama",))
def test_attention(name: str, attention: str) -> None:
    with float64_throughout():
        if attention == "sdpa" and not family(name).build().model._supports_sdpa:
            pytest.skip(f"{name} has no such attention")
        problem = generic(family(name).build, lambda model: model.set_attn_implementation(attention))
        assert problem.model.config._attn_implementation == attention
        exact(problem)


@pytest.mark.parametrize("side", ["left", "right"])
@some("bert", "gpt2", "llama", "qwen3", "electra", "opt", "xlnet", "mistral", fast=("gpt2",))
def test_padding_of_seven_sentences(name: str, side: str) -> None:
    with float64_throughout():
        problem = family(name).problem()
        exact(replace(problem, inputs=sentences(side, (9, 2, 5, 9, 1, 7, 4), 9)))


@pytest.mark.parametrize("tied", [True, False])
@some("gpt2", "llama", "opt", "gemma", "bloom", "qwen2", fast=("gpt2",))
def test_tied_and_separate_embeddings(name: str, tied: bool) -> None:
    with float64_throughout():
        build = text("AutoModelForCausalLM", name, {"tie_word_embeddings": tied})
        problem = generic(build)
        model = problem.model
        assert (model.get_output_embeddings().weight is model.get_input_embeddings().weight) == tied
        exact(problem)


FREEZING: dict[str, Callable[[str, nn.Parameter], bool]] = {
    "embeddings": lambda name, p: "embed" in name or "wte" in name or "wpe" in name,
    "matrices": lambda name, p: p.ndim > 1,
    "all but biases": lambda name, p: not name.endswith("bias"),
    "the first layer": lambda name, p: ".0." in name,
}


@pytest.mark.parametrize("frozen", FREEZING)
@some("bert", "gpt2", "vit", "bart", "resnet", "sew-d", fast=("bert",))
def test_frozen_parts(name: str, frozen: str) -> None:
    def freeze(model: nn.Module) -> None:
        for parameter_name, parameter in model.named_parameters():
            parameter.requires_grad_(not FREEZING[frozen](parameter_name, parameter))

    problem = generic(family(name).build, freeze)
    if any(p.requires_grad for p in problem.model.parameters()):
        chosen = [n for n, p in problem.model.named_parameters() if p.requires_grad]
        exact(problem)
        expected = gram(sample_jacobians(problem))
        problem.model.requires_grad_(True)  # choosing them by name is the same as freezing the others
        kernel = tangentlab.ntk(problem.model, problem.inputs, output=problem.output, parameters=chosen)
        assert kernel_error(kernel, expected) < TOLERANCE


@pytest.mark.parametrize("reentrant", [False, True])
@some("bert", "gpt2", "llama", "vit", "bart", "t5", "mixtral", fast=("bert",))
def test_gradient_checkpointing(name: str, reentrant: bool) -> None:
    """It works in training mode alone, so dropout is taken out."""
    with float64_throughout():
        problem = family(name).problem()
        expected = gram(sample_jacobians(problem))
        for module in problem.model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        for attribute in [a for a in vars(problem.model.config) if "drop" in a]:
            setattr(problem.model.config, attribute, 0.0)
        problem.model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        problem.model.train()
        for module in problem.model.modules():
            for attribute in [a for a, value in vars(module).items() if "drop" in a and isinstance(value, float)]:
                setattr(module, attribute, 0.0)
        drops = name == "bart"  # layers in training mode: each compares a random number with a probability of zero
        if reentrant or drops:  # the former forbids torch.autograd.grad
            with pytest.raises(tangentlab.TangentError, match="random numbers" if drops else "use_reentrant"):
                tangentlab.ntk(problem.model, problem.inputs, output=problem.output)
        else:
            kernel = tangentlab.ntk(problem.model, problem.inputs, output=problem.output)
            assert kernel_error(kernel, expected) < TOLERANCE


@some("bert", "gpt2", "llama", "vit", "resnet", "t5", "whisper", "mixtral", "rwkv", fast=("llama",))
def test_float32_is_float64_up_to_rounding(name: str) -> None:
    with float64_throughout():
        problem = family(name).problem()
        expected = gram(sample_jacobians(problem))
    problem = problem.to(torch.float32)
    kernel = tangentlab.ntk(problem.model, problem.inputs, output=problem.output)
    assert kernel.dtype == torch.float32
    assert kernel_error(kernel.double(), expected) < SINGLE
    kernel = tangentlab.ntk(problem.model, problem.inputs, output=problem.output, dtype=torch.float64)
    assert kernel.dtype == torch.float64
    assert kernel_error(kernel, expected) < SINGLE


@some("mixtral", "qwen3_moe", "olmoe", "gpt_oss")
def test_experts_multiplied_at_once(name: str) -> None:
    """The default of these networks, which knows no float64, against the loop over experts in float64."""
    with float64_throughout():
        problem = family(name).problem()
        expected = gram(sample_jacobians(problem))
    problem = problem.to(torch.float32)
    problem.model.set_experts_implementation("grouped_mm")
    kernel = tangentlab.ntk(problem.model, problem.inputs, output=problem.output)
    assert kernel_error(kernel.double(), expected) < SINGLE


@pytest.mark.parametrize("batch_size", [1, 2, 3])
@some("bert", "llama", "mixtral", "swin", "sew-d", "whisper", fast=("bert",))
def test_batches_and_two_sets_of_samples(name: str, batch_size: int) -> None:
    with float64_throughout():
        problem = family(name).problem()
        expected = gram(sample_jacobians(problem))
        rows, columns = (each_tensor(problem.inputs, lambda t, s=s: t[s]) for s in (slice(0, 4), slice(2, 5)))
        kernel = tangentlab.ntk(problem.model, rows, columns, output=problem.output, batch_size=batch_size)
        root = torch.einsum("nono->no", expected).sqrt()
        scale = root[:4, :, None, None] * root[2:]
        assert float(((kernel - expected[:4, :, 2:]).abs() / scale).max()) < TOLERANCE


def test_a_language_model_is_fed_by_a_dataset_of_dicts() -> None:
    """As tokenizers and collators hand them over."""
    problem = family("gpt2").problem()
    expected = gram(sample_jacobians(problem))

    class Rows(torch.utils.data.Dataset[dict[str, Tensor]]):
        def __len__(self) -> int:
            return 5

        def __getitem__(self, n: int) -> dict[str, Tensor]:
            return {key: value[n] for key, value in problem.inputs.items()}

    kernel = tangentlab.ntk(problem.model, Rows(), output=problem.output)
    assert kernel_error(kernel, expected) < TOLERANCE


@pytest.mark.soak
def test_hidden_states_and_classes_of_one_network_are_kernels_of_their_own() -> None:
    """The same weights, read at another place."""
    with float64_throughout():
        torch.manual_seed(0)
        model = model_of("AutoModel", "bert", {}, TINY)
        stir(model)
        model.eval().double()
        for field in ("last_hidden_state", "pooler_output"):
            exact(Problem(model, sentences(), part(field)))
