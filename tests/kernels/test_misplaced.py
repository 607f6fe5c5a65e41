"""One sample in a batch that is placed by its content: the rules describe all others, and the kernel must be right."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tangentlab
from tests.kernels.parts import Functional, OwnFunction


def _marked(x: Tensor) -> Tensor:
    return (x[:, 0] > 5).nonzero().flatten()


def _order(x: Tensor) -> Tensor:
    """The identity, but for the two marked samples, which change places."""
    order = torch.arange(len(x))
    chosen = _marked(x)
    order[chosen] = chosen.flip(0)
    return order


def swapped_and_back(m: Any, x: Tensor) -> Tensor:
    order = _order(x)
    return m.out(torch.tanh(m.a(x[order])))[order]


def swapped_hidden(m: Any, x: Tensor) -> Tensor:
    """Swapped between two layers and never back: the outputs of two samples are exchanged."""
    return m.out(torch.tanh(m.a(x))[_order(x)])


def swapped_inputs(m: Any, x: Tensor) -> Tensor:
    return m.out(torch.tanh(m.a(x[_order(x)])))


def sorted_by_a_norm(m: Any, x: Tensor) -> Tensor:
    """Like :func:`swapped_and_back`, by sorting: only the marked samples are out of order."""
    order = torch.argsort(torch.where(x[:, 0] > 5, -x[:, 1], torch.zeros_like(x[:, 1])), stable=True)
    return m.out(torch.tanh(m.a(x[order])))[order.argsort()]


def assigned(m: Any, x: Tensor) -> Tensor:
    """Written to rows chosen by content, without a tensor index on the way out."""
    hidden = torch.tanh(m.a(x))
    moved = torch.zeros_like(hidden)
    moved[_order(x)] = hidden
    return m.out(moved)


def by_python_numbers(m: Any, x: Tensor) -> Tensor:
    hidden = torch.tanh(m.a(x))
    chosen = _marked(x)
    if len(chosen) == 2:
        i, j = (int(n) for n in chosen)
        rows = list(hidden.unbind())
        rows[i], rows[j] = rows[j], rows[i]
        hidden = torch.stack(rows)
    return m.out(hidden)


def by_numpy(m: Any, x: Tensor) -> Tensor:
    order = torch.from_numpy(_order(x).numpy().copy())
    return m.out(torch.index_select(torch.tanh(m.a(x)), 0, order))


def divided_by_the_largest(m: Any, x: Tensor) -> Tensor:
    """The largest entry of the batch is another one only where a marked sample is in it."""
    return m.out(torch.tanh(m.a(x / x[:, 0].amax().clamp(min=5))))


def limited_expert(m: Any, x: Tensor) -> Tensor:
    """An expert with room for one sample: the second marked one is dropped."""
    hidden = torch.tanh(m.a(x))
    rank = (x[:, 0] > 5).long().cumsum(0)
    keep = (x[:, 0] > 5) & (rank <= 1)
    return m.out(hidden + keep[:, None] * torch.tanh(m.b(x)))


MODELS = {
    f.__name__: f
    for f in (
        swapped_and_back,
        swapped_hidden,
        swapped_inputs,
        sorted_by_a_norm,
        assigned,
        by_python_numbers,
        by_numpy,
        divided_by_the_largest,
        limited_expert,
    )
}


PLACES = [40, 110]


def problem(forward: Callable[..., Tensor], dtype: torch.dtype, n: int = 150) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model = Functional(forward, a=nn.Linear(4, 3), b=nn.Linear(4, 3), out=nn.Linear(3, 1)).to(dtype)
    x = torch.randn(n, 4).clamp(-4, 4).to(dtype)
    x[PLACES, 0] = torch.tensor([6.0, 7.0], dtype=dtype)
    return model, x


def error(found: Tensor, expected: Tensor) -> float:
    """The largest error of an entry, relative to the two samples' own sizes."""
    size = expected.diagonal().sqrt()
    return float(((found.double() - expected).abs() / (size[:, None] * size)).max())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_two_samples_placed_by_content(name: str, dtype: torch.dtype) -> None:
    """Alone, a sample is where it is: that is what the kernel is made of, whatever a batch does."""
    n = 1500 if name == "swapped_and_back" else 150
    model, x = problem(MODELS[name], dtype, n)
    expected = tangentlab.reference.ntk(model, x, readout=0, dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = tangentlab.ntk(model, x, readout=0, batch_size=n)
        operator = tangentlab.NTKOperator(model, x, readout=0, batch_size=120)
        product = operator @ torch.ones(n, dtype=dtype)
        diagonal = tangentlab.ntk(model, x, readout=0, diagonal=True)
    tolerance = 2e-4 if dtype is torch.float32 else 1e-10
    assert error(found, expected) < tolerance
    assert float((product.double() - expected.sum(1)).norm() / expected.sum(1).norm()) < tolerance
    assert float(((diagonal.double() - expected.diagonal()) / expected.diagonal()).abs().max()) < tolerance


def test_half_precision() -> None:
    model, x = problem(swapped_and_back, torch.bfloat16)
    expected = tangentlab.reference.ntk(model.double(), x.double(), readout=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = tangentlab.ntk(model.bfloat16(), x, readout=0, batch_size=len(x))
    assert error(found[PLACES][:, PLACES], expected[PLACES][:, PLACES]) < 0.1


@pytest.mark.parametrize("where", ["beside a rule", "on a branch"])
def test_hidden_use_of_a_parameter_that_a_rule_knows(where: str) -> None:
    """A second use inside an autograd function of the user's own, silent or absent on the probed samples."""
    torch.manual_seed(0)

    def forward(m: Any, x: Tensor) -> Tensor:
        known = F.linear(x[:, :4], m.w.T)
        if where == "on a branch" and not bool((x[:, 4] != 0).any()):
            return known
        return known + x[:, 4:] * OwnFunction.apply(x[:, :4].contiguous(), m.w)

    model = Functional(forward, w=torch.randn(4, 3)).double()
    x = torch.randn(9, 5).double()
    x[:, 4] = 0
    x[1:3, 4] = 1
    x[5, 4] = 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = tangentlab.ntk(model, x, batch_size=9)
    expected = tangentlab.reference.ntk(model, x)
    assert float((found - expected).norm() / expected.norm()) < 1e-10


def test_ordinary_networks_are_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text transformers with padding masks pay for no comparison: where their rows lie never depends on content."""
    from tangentlab.kernels import _placement

    def refuse(*_: object) -> None:
        raise AssertionError("a comparison was made")

    monkeypatch.setattr(_placement, "_compare_owners", refuse)
    transformers = pytest.importorskip("transformers")
    tokens = torch.randint(1, 50, (7, 6))
    mask = torch.ones_like(tokens)
    mask[1, 4:] = 0
    mask[5, 2:] = 0
    size = {"vocab_size": 50, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1}
    bert = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, vocab_size=50
    )
    gpt2 = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, n_positions=8, **size)
    llama = transformers.LlamaConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, **size
    )
    for model in (
        transformers.BertForSequenceClassification(bert),
        transformers.GPT2ForSequenceClassification(gpt2),
        transformers.LlamaForSequenceClassification(llama),
    ):
        x = {"input_ids": tokens, "attention_mask": mask}
        kernel = tangentlab.ntk(model.double().eval(), x, output=lambda r: r.logits, readout="pntk")
        expected = tangentlab.reference.ntk(model, x, output=lambda r: r.logits, readout="pntk")
        assert float((kernel - expected).norm() / expected.norm()) < 1e-10
