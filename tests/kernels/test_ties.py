"""Ties between parameters survive a copy, or the copy is refused."""

import pytest
import torch
from torch import nn

from tangentlab import TangentError
from tangentlab._copying import copy_model


def test_ties_are_kept() -> None:
    model = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})
    model["b"].weight = model["a"].weight
    twin = copy_model(model)
    assert twin["a"].weight is twin["b"].weight


def test_a_scripted_module_that_shares_a_weight() -> None:
    """torch.jit copies its parameters one by one, and with that unties them."""
    dense = nn.Linear(3, 3)
    model = nn.ModuleDict({"a": torch.jit.script(nn.Linear(3, 3)), "b": dense})
    dense.weight = model["a"].weight
    with pytest.raises(TangentError, match="tied"):
        copy_model(model)


def test_an_untied_copy_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import copy

    model = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.Linear(3, 3)})
    model["b"].weight = model["a"].weight
    whole = copy.deepcopy

    def untied(thing: object, memo: dict[int, object] | None = None) -> object:
        twin = whole(thing, memo)
        if isinstance(twin, nn.ModuleDict):
            twin["b"].weight = nn.Parameter(twin["b"].weight.detach().clone())
        return twin

    monkeypatch.setattr(copy, "deepcopy", untied)
    with pytest.raises(TangentError, match=r"tied to a\.weight in only one"):
        copy_model(model)
