"""What decides whether gradients are written out late: the rates of the device, and the number of samples."""

from typing import Any

import pytest
import torch
from torch import nn

from tangentlab.kernels import _contract
from tangentlab.kernels._compute import compute_factors


def test_the_choice_knows_device_precision_and_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(_contract, "rates", lambda *given: asked.append(given) or "rates")
    monkeypatch.setattr(_contract, "expanding_is_cheaper", lambda part, *given: bool(asked.append(given)))
    factors = compute_factors(nn.Linear(3, 2), torch.randn(5, 3))
    out = torch.empty(10, 10)
    _contract.contract(factors, factors, out, True, lambda *_: None)
    assert asked[0] == (out.device, out.dtype)
    assert set(asked[1:]) == {(5, True, "rates")}
