"""Tables of which a sample looks up a few rows: only these are compared with plain gradients, and the rest is zero."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import tangentlab
from tangentlab.kernels._agreement import _norm_elsewhere
from tangentlab.kernels.rules._bag import Bag
from tangentlab.kernels.rules._lookup import Lookup
from tangentlab.kernels.rules._use import Use


@settings(deadline=None)
@given(
    index=st.lists(st.integers(0, 11), min_size=1, max_size=8),
    padding=st.none() | st.integers(0, 11),
)
def test_rows_of_the_gradient(index: list[int], padding: int | None) -> None:
    """The narrowed use gives these rows of the gradient, and all others are zero."""
    use = Lookup(torch.Size((12, 3)), torch.tensor([index]), padding)
    g = torch.randn(1, 2, len(index), 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    whole, narrow = use.gradient(g), use.narrowed()
    assert narrow is not None
    rows, few = narrow
    assert rows.tolist() == sorted(set(index))
    torch.testing.assert_close(few.gradient(g), whole[:, :, rows], rtol=0, atol=0)
    rest = torch.ones(12, dtype=torch.bool).index_fill_(0, rows, False)
    assert not whole[:, :, rest].any()


def test_bags_keep_their_weights() -> None:
    index, weights = torch.tensor([[7, 2, 7, 5]]), torch.tensor([[[0.5, 2.0], [3.0, 0.0]]], dtype=torch.float64)
    use = Bag(torch.Size((12, 3)), index, factors=weights)
    g = torch.randn(1, 1, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    narrow = use.narrowed()
    assert narrow is not None
    torch.testing.assert_close(narrow[1].gradient(g), use.gradient(g)[:, :, narrow[0]], rtol=0, atol=0)


def test_small_tables_are_compared_whole() -> None:
    assert Lookup(torch.Size((4, 3)), torch.zeros(1, 4, dtype=torch.long)).narrowed() is None


def test_norm_of_the_other_rows() -> None:
    table = torch.tensor([[3.0, 0.0], [5.0, 5.0], [0.0, 4.0], [0.0, 0.0]])
    assert _norm_elsewhere(table, torch.tensor([1])) == pytest.approx(5.0)
    assert _norm_elsewhere(table, torch.tensor([0, 1, 2])) == 0.0
    tiny = torch.full((3, 2), 1e-30)  # whose squares are no float32
    assert _norm_elsewhere(tiny, torch.tensor([0])) == pytest.approx(2e-30)


class Text(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(40, 4, padding_idx=0), nn.Linear(4, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.table(tokens).tanh().mean(1))


@pytest.mark.parametrize("wrong", ["rows", "order", "values", None])
def test_wrong_gradients_of_a_table_are_found(wrong: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, tokens = Text().double(), torch.randint(0, 40, (6, 5))
    original, seen = Lookup.gradient, []

    def gradient(self: Lookup, g: Tensor) -> Tensor:
        seen.append(self.shape)
        if wrong == "rows":
            self = replace(self, index=(self.index + 1) % self.shape[0])
        if wrong == "order":
            self = replace(self, index=self.index.flip(1))
        return original(self, g) * (1.01 if wrong == "values" else 1.0)

    monkeypatch.setattr(Lookup, "gradient", gradient)
    table = tangentlab.explain(model, tokens)
    form = table[table["parameters"].str.contains("table")]["form"].item()
    assert (form == "fallback") == (wrong is not None)
    assert all(shape[0] <= 5 for shape in seen)
    kernel = tangentlab.ntk(model, tokens)
    torch.testing.assert_close(kernel, tangentlab.reference.ntk(model, tokens), rtol=1e-10, atol=1e-12)


def test_rows_that_a_rule_leaves_out_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row with a gradient that the narrowed use does not know makes the comparison fail."""
    torch.manual_seed(0)
    model, tokens = Text().double(), torch.randint(1, 40, (6, 5))
    original = Lookup.narrowed

    def narrowed(self: Lookup) -> tuple[Tensor, Use] | None:
        return original(replace(self, index=self.index[:, :1].expand_as(self.index)))

    monkeypatch.setattr(Lookup, "narrowed", narrowed)
    table = tangentlab.explain(model, tokens)
    assert table[table["parameters"].str.contains("table")]["form"].item() == "fallback"
