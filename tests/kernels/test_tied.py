"""Parameters with several uses keep compact factors: what is kept, and everything that is computed from them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor, nn

import tangentlab
from tangentlab import store
from tangentlab.kernels import _contract, factors
from tests.kernels.test_exact import force, relative

pytestmark = pytest.mark.filterwarnings("error:.*fallback:UserWarning")

VOCABULARY, WIDTH, LENGTH = 211, 8, 5


def logits(result: Any) -> Tensor:
    return result if isinstance(result, Tensor) else result.logits


def gpt2() -> nn.Module:
    """A GPT-2 with its language-model head, which shares the table of tokens."""
    size = {"n_positions": 8, "n_embd": WIDTH, "n_layer": 1, "n_head": 2, "vocab_size": VOCABULARY}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**size, attn_implementation="eager"))


def albert() -> nn.Module:
    """An ALBERT: one layer applied three times."""
    size = {"embedding_size": 4, "hidden_size": WIDTH, "num_attention_heads": 2, "intermediate_size": 12}
    config = transformers.AlbertConfig(
        vocab_size=VOCABULARY, num_hidden_layers=3, num_labels=3, max_position_embeddings=8, **size
    )
    return transformers.AlbertForSequenceClassification(config)


class Autoencoder(nn.Module):
    """W^T tanh(W x + b) + c at several positions."""

    def __init__(self, positions: int) -> None:
        super().__init__()
        self.w, self.b, self.c = (nn.Parameter(torch.randn(s)) for s in ((6, 40), (6,), (40,)))
        self.positions = positions

    def forward(self, x: Tensor) -> Tensor:
        x = x.view(len(x), self.positions, -1)
        return F.linear(torch.tanh(F.linear(x, self.w, self.b)), self.w.t(), self.c).mean(1)[:, :4]


class Filter(nn.Module):
    """A convolution applied three times, to maps of two sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.out = nn.Conv2d(3, 3, 3, padding=1), nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.conv(torch.tanh(self.conv(x))))
        return self.out(torch.tanh(self.conv(F.avg_pool2d(x, 2))).mean((2, 3)))


def texts(count: int) -> Tensor:
    return torch.randint(1, VOCABULARY, (count, LENGTH), generator=torch.Generator().manual_seed(count))


def normal(*shape: int) -> Callable[[int], Tensor]:
    return lambda n: torch.randn(n, *shape, generator=torch.Generator().manual_seed(n), dtype=torch.float64)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Tensor]]] = {
    "gpt2": (gpt2, texts),
    "autoencoder": (lambda: Autoencoder(1), normal(40)),
    "autoencoder at positions": (lambda: Autoencoder(3), normal(120)),
    "convolution": (Filter, normal(3, 4, 4)),
}


@pytest.fixture(params=NETWORKS)
def network(request: pytest.FixtureRequest) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    build, data = NETWORKS[request.param]
    return build().double().eval(), data(6), data(4)


@pytest.fixture(params=["by pairs", "written out late"])
def contraction(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    force(monkeypatch, True, request.param != "by pairs")
    monkeypatch.setattr(_contract, "EXPANDED", 500)
    monkeypatch.setattr(factors._sum, "_WRITTEN", 300)
    return request.param


def outputs(result: Any) -> Tensor:
    """Three numbers per sample."""
    found = logits(result)
    return found[:, 1, :3] if found.ndim == 3 else found[:, :3]


@pytest.mark.usefixtures("contraction")
@pytest.mark.parametrize("readout", ["full", "pntk", "trace", "per_class", 1])
def test_kernels(network: tuple[nn.Module, Tensor, Tensor], readout: Any) -> None:
    model, x, y = network
    for samples in ((x,), (x, y)):
        expected = tangentlab.reference.ntk(model, *samples, readout=readout, output=outputs)
        found = tangentlab.ntk(model, *samples, readout=readout, output=outputs, batch_size=2)
        assert relative(found, expected) < 1e-12


@pytest.mark.usefixtures("contraction")
@pytest.mark.parametrize("readout", ["next_token", "pntk"])
def test_all_logits_of_a_language_model(readout: str) -> None:
    torch.manual_seed(0)
    model = gpt2().double().eval()
    for samples in ((texts(6),), (texts(6), texts(4))):
        expected = tangentlab.reference.ntk(model, *samples, readout=readout, output=logits)
        assert relative(tangentlab.ntk(model, *samples, readout=readout, output=logits), expected) < 1e-12


@pytest.mark.usefixtures("contraction")
def test_a_layer_applied_thrice() -> None:
    torch.manual_seed(0)
    model, x = albert().double().eval(), texts(4)
    expected = tangentlab.reference.ntk(model, x, output=logits)
    assert relative(tangentlab.ntk(model, x, output=logits, batch_size=2), expected) < 1e-12


@pytest.mark.usefixtures("contraction")
def test_layers_diagonal_and_products(network: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = network
    full = tangentlab.reference.ntk(model, x, output=outputs)
    layers = tangentlab.ntk(model, x, per_layer=True, output=outputs)
    assert relative(sum(layers.values()), full) < 1e-12
    for layer, kernel in layers.items():
        own = tangentlab.reference.ntk(model, x, output=outputs, parameters=[layer])
        assert float((kernel - own).norm() / full.norm()) < 1e-12
    blocks = torch.stack([full[n, :, n] for n in range(len(x))])
    assert relative(tangentlab.ntk(model, x, diagonal=True, output=outputs), blocks) < 1e-12
    operator = tangentlab.NTKOperator(model, x, y, output=outputs)
    cross = tangentlab.reference.ntk(model, x, y, output=outputs).flatten(2).flatten(0, 1)
    v, w = torch.randn(12, 2).double(), torch.randn(18).double()
    assert relative(operator @ v, cross @ v) < 1e-12
    assert relative(operator.T @ w, cross.T @ w) < 1e-12
    square, matrix = tangentlab.NTKOperator(model, x, output=outputs), full.flatten(2).flatten(0, 1)
    for columns in (1, 400):  # by pulling back, and by tiles
        block = torch.randn(18, columns).double()
        assert relative(square.quadratic_form(block), (block * (matrix @ block)).sum(0)) < 1e-12


def test_a_store(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In panels, written to disk and read again; sketches of tied parameters are in test_sketch."""
    force(monkeypatch, True)
    monkeypatch.setattr("tangentlab.store._rates.spilling_pays", lambda *_: True)
    torch.manual_seed(0)
    model, x = gpt2().double().eval(), texts(9)
    for readout in ("pntk", "trace"):
        expected = tangentlab.reference.ntk(model, x, readout=readout, output=outputs)
        path = tmp_path / readout
        kept = store.compute(model, x, path, readout=readout, output=outputs, tile=2, dtype=torch.float64)
        assert relative(torch.as_tensor(kept[:]), expected) < 1e-12


def test_compact_factors_are_kept_where_they_are_smaller() -> None:
    torch.manual_seed(0)
    table = tangentlab.explain(gpt2().eval(), texts(2), readout="pntk", output=logits)
    row = table.set_index("layer").loc["transformer.wte"]
    assert row["operation"] == "torch.nn.functional.embedding, torch.nn.functional.linear"
    assert row["form"] in ("compact", "late")
    assert row["floats"] == LENGTH * (VOCABULARY + 2 * WIDTH + 1) < VOCABULARY * WIDTH
    table = tangentlab.explain(Autoencoder(1), normal(40)(2).float(), readout="pntk").set_index("layer")
    assert (table.loc["w", "form"], table.loc["w", "floats"]) == ("compact", 2 * (6 + 40))
