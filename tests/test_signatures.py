"""Arguments of PyTorch functions: names, order and defaults are PyTorch's."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tangentlab._signatures import BatchNormCall, ConvolutionCall, EmbeddingBagCall, EmbeddingCall


@pytest.mark.parametrize(
    ("function", "call"),
    [(F.batch_norm, BatchNormCall), (F.embedding, EmbeddingCall), (F.embedding_bag, EmbeddingBagCall)],
    ids=lambda value: value.__name__,
)
def test_names_and_defaults(function: Callable[..., Any], call: Callable[..., Any]) -> None:
    expected, found = (inspect.signature(f).parameters for f in (function, call))
    assert list(found) == list(expected)
    assert {n: p.default for n, p in found.items()} == {n: p.default for n, p in expected.items()}


@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_convolutions(dimensions: int) -> None:
    """They have no signature that Python can read: every argument by its place and by its name."""
    function: Any = getattr(F, f"conv{dimensions}d")
    x, w, b = torch.randn(2, 4, *[7] * dimensions), torch.randn(6, 2, *[2] * dimensions), torch.randn(6)
    whole = w.repeat(1, 2, *[1] * dimensions)
    names = ConvolutionCall._fields
    for count in range(2, 8):
        values: list[Any] = [x, w if count == 7 else whole, b, 2, 1, 3, 2][:count]  # one group by default
        expected: Tensor = function(*values)
        assert torch.equal(function(*ConvolutionCall(*values)), expected)
        assert torch.equal(function(**ConvolutionCall(*values)._asdict()), expected)
        assert torch.equal(function(*ConvolutionCall(**dict(zip(names, values, strict=False)))), expected)
