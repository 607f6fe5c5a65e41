"""Every operation with a rule, with each of its options: the rule is taken, and it is right."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.overrides import resolve_name

import tangentlab
from tangentlab.kernels import _cost as cost
from tangentlab.kernels.rules import RULES
from tests.kernels.cases import build
from tests.kernels.parts import Case
from tests.kernels.rule_cases import OPERATIONS

# A wrong rule can be found out and made up for by the fallback: right numbers are not enough.
pytestmark = pytest.mark.filterwarnings("error:.*fallback:UserWarning")

EACH = [
    pytest.param(operation, case, id=f"{resolve_name(operation)} {number}")
    for operation, cases in OPERATIONS.items()
    for number, case in enumerate(cases)
]


def test_every_operation_is_here() -> None:
    """F.prelu is torch.prelu, and so on: operations are compared as they are registered."""
    assert set(RULES) == set(OPERATIONS)


@pytest.mark.parametrize(("operation", "case"), EACH)
def test_rule_is_taken_or_says_no(operation: Callable[..., Any], case: Case) -> None:
    """Where a parameter falls back, the rule has said so; it is not left to the check of its numbers."""
    model, x = build(case, 4, torch.float64)
    table = tangentlab.explain(model, x)
    fallen = table[table.form == "fallback"]
    assert set(fallen.parameters) == set(case.fallback)
    # Where x + p calls Tensor.add, the rule of Tensor.__add__ is met under that name.
    names = {resolve_name(other) for other, rule in RULES.items() if rule is RULES[operation]}
    assert names.intersection(fallen.operation if case.fallback else table.operation)
    assert "gradient check" not in set(table.operation)


@pytest.mark.parametrize(("operation", "case"), EACH)
@pytest.mark.parametrize("compact", [True, False], ids=["compact", "written out"])
def test_rule_is_right(operation: object, case: Case, compact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        cost, "compact_is_cheaper", lambda use, readouts, work: compact and cost.compact(use, readouts) is not None
    )
    model, x = build(case, 4, torch.float64)
    expected = tangentlab.reference.ntk(model, x)
    found = tangentlab.ntk(model, x, batch_size=3)
    assert (found - expected).norm() <= 1e-11 * expected.norm()
