"""The readout of causal language models: which tokens count, and the kernel against the reference."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tangentlab
from tangentlab import TangentError
from tests.kernels.test_exact import relative

TOKENS = torch.randint(0, 11, (5, 6), generator=torch.Generator().manual_seed(0))
MASK = torch.ones(5, 6, dtype=torch.long)
MASK[0, 4:] = 0
MASK[1, :2] = 0  # padded on the left
LABELS = TOKENS.clone()
LABELS[2, 3] = -100
LABELS[3, :4] = -100  # a prompt


class Causal(nn.Module):
    """A small transformer in which each position sees the ones before it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.positions = nn.Embedding(11, 8), nn.Parameter(torch.randn(6, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 11)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        length = input_ids.shape[1]
        states = self.embedding(input_ids) + self.positions[:length]
        later = torch.full((length, length), float("-inf"), dtype=states.dtype).triu(1)
        return self.head(self.layer(states, src_mask=later))


MODEL = Causal().double().eval()


@pytest.mark.parametrize("labels", [None, LABELS], ids=["tokens", "labels"])
@pytest.mark.parametrize("mask", [None, MASK, MASK.bool()], ids=["all", "mask", "a mask of bool"])
def test_kernel(labels: Tensor | None, mask: Tensor | None) -> None:
    x: dict[str, Tensor] = {"input_ids": TOKENS} | ({} if mask is None else {"attention_mask": mask})
    options: dict[str, Any] = {"readout": "next_token", "targets": labels}
    expected = tangentlab.reference.ntk(MODEL, x, **options)
    assert relative(tangentlab.ntk(MODEL, x, batch_size=2, **options), expected) < 1e-12
    within = x if labels is None else x | {"labels": labels}
    assert relative(tangentlab.ntk(MODEL, within, readout="next_token"), expected) < 1e-12


def test_what_does_not_count_changes_nothing() -> None:
    """Other tokens where mask or labels say that none counts, behind all that do: the same kernel."""
    x = {"input_ids": TOKENS, "attention_mask": MASK}
    other = TOKENS.clone()
    other[0, 4:] = (other[0, 4:] + 1) % 11
    found = tangentlab.ntk(MODEL, {"input_ids": other, "attention_mask": MASK}, readout="next_token")
    assert relative(found, tangentlab.ntk(MODEL, x, readout="next_token")) < 1e-12


def test_the_value_is_the_loss_of_transformers() -> None:
    from tangentlab.kernels._inputs import Batch
    from tangentlab.kernels._named_readouts import next_token

    logits = MODEL(TOKENS).detach()
    for row in range(5):
        loss = nn.functional.cross_entropy(logits[row, :-1], LABELS[row, 1:])
        found = next_token(logits[row : row + 1], Batch(TOKENS[row : row + 1], LABELS[row : row + 1]))
        assert torch.allclose(-found[0], loss, rtol=1e-12)


def test_texts_of_two_lengths() -> None:
    short = TOKENS[:2, :4]
    found = tangentlab.ntk(MODEL, TOKENS, short, readout="next_token")
    assert relative(found, tangentlab.reference.ntk(MODEL, TOKENS, short, readout="next_token")) < 1e-12


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (TOKENS.roll(-1, 1), "shifted by one"),
        ((TOKENS + 1) % 11, "other tokens than the samples'"),
        (TOKENS.double(), "float64"),
        (TOKENS[:, :4], r"outputs of a sample are \(6, 11\), and its tokens \(4,\)"),
        (TOKENS[:, 0], "int64"),
        (torch.full_like(TOKENS, -100), "no token that follows"),
        (torch.where(TOKENS[3, 3] == TOKENS, 11, TOKENS), "token 11"),
        (TOKENS - 5, "token -"),
    ],
)
def test_labels_that_are_refused(targets: Tensor, message: str) -> None:
    with pytest.raises(TangentError, match=message):
        tangentlab.ntk(MODEL, TOKENS, readout="next_token", targets=targets)


def test_samples_that_are_refused() -> None:
    with pytest.raises(TangentError, match="no token that follows"):
        tangentlab.ntk(MODEL, TOKENS[:, :1], readout="next_token")
    with pytest.raises(TangentError, match="needs tokens"):
        tangentlab.ntk(nn.Linear(3, 11), torch.randn(4, 6, 3), readout="next_token")
    x = {"input_ids": TOKENS, "attention_mask": MASK[:, None, None]}
    with pytest.raises(TangentError, match="attention mask of a sample"):
        tangentlab.ntk(MODEL, x, readout="next_token")
    with pytest.raises(TangentError, match="outputs of a sample are"):
        tangentlab.ntk(nn.Sequential(nn.Embedding(11, 4), nn.Flatten()), TOKENS, readout="next_token")


def test_saturated_tokens_in_single_precision() -> None:
    """A text that is known by heart has small gradients, right relative to themselves."""
    model = nn.Embedding(4, 4)
    with torch.no_grad():
        model.weight.copy_(20 * torch.eye(4).roll(1, 1) + torch.randn(4, 4, generator=torch.Generator().manual_seed(0)))
    texts = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 1]])
    found = tangentlab.ntk(model, texts, readout="next_token")
    exact = tangentlab.reference.ntk(model, texts, readout="next_token", dtype=torch.float64)
    plain = tangentlab.reference.ntk(model, texts, readout="next_token")
    assert relative(found, exact) < 1e-5
    assert relative(plain, exact) > 0.1
