"""Every rule and every form against the plain reference."""

import math

import pytest
import torch

import tangentlab
from tangentlab.kernels import _contract
from tangentlab.kernels import _cost as cost
from tests.kernels.cases import CASES, Case, build

# A wrong rule can be found out and made up for by the fallback: right numbers are not enough.
pytestmark = pytest.mark.filterwarnings("error:.*fallback:UserWarning")

FORMS = {"chosen": None, "compact": True, "written out": False}
"""Whether every family that can takes its compact form."""
CONTRACTIONS = {"by pairs": False, "written out late": True}
"""Whether compact factors are written out when they are contracted, wherever they can be."""


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    assert found.shape == expected.shape
    return float((found.double() - expected.double()).norm() / expected.double().norm())


def force(monkeypatch: pytest.MonkeyPatch, compact: bool | None, late: bool | None = None) -> None:
    """Take the cost model's choices out of its hands, where they are given."""
    if compact is not None:
        monkeypatch.setattr(
            cost, "compact_is_cheaper", lambda use, readouts, *_: compact and use.compact_cost(readouts) is not None
        )
    if late is not None:
        monkeypatch.setattr(
            _contract, "expanding_is_cheaper", lambda part, *_: late and part.expand_operations != math.inf
        )


@pytest.fixture(params=[*FORMS, *CONTRACTIONS])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each case in the form that the cost model chooses, and in all of those it chooses from."""
    late = CONTRACTIONS.get(request.param)
    force(monkeypatch, FORMS.get(request.param, True), late)
    if late:  # many small pieces: of outputs, of samples, of panels
        monkeypatch.setattr(_contract, "EXPANDED", 60)
        monkeypatch.setattr(_contract, "EXPANDED_ROWS", 9)
        monkeypatch.setattr(_contract, "_ROWS", (5, 7))
    return request.param


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kernel_equals_reference(case: Case, form: str) -> None:
    model, x = build(case, 5, torch.float64)
    expected = tangentlab.reference.ntk(model, x)
    found = tangentlab.ntk(model, x, batch_size=2)
    assert relative(found, expected) < 1e-10
    matrix = found.flatten(2).flatten(0, 1)
    assert torch.equal(matrix, matrix.T)
    assert torch.linalg.eigvalsh(matrix).min() > -1e-10 * matrix.diagonal().max()
    other = x[:3].flip(0)
    assert relative(tangentlab.ntk(model, x, other), tangentlab.reference.ntk(model, x, other)) < 1e-10


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_single_precision(case: Case, form: str) -> None:
    model, x = build(case, 5, torch.float32)
    found = tangentlab.ntk(model, x)
    assert found.dtype == torch.float32
    expected = tangentlab.reference.ntk(model, x, dtype=torch.float64) if case.name != "own autograd function" else None
    if expected is None:
        expected = tangentlab.reference.ntk(model, x)
    assert relative(found, expected) < 2e-5


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rules_are_taken(case: Case) -> None:
    """Every parameter has a rule but for those that are known to have none."""
    model, x = build(case, 5, torch.float64)
    table = tangentlab.explain(model, x)
    fallen = {name for names in table[table.form == "fallback"].parameters for name in names.split(", ")}
    expected = {n for n, _ in model.named_parameters() if n.startswith(case.fallback or ("\0",))}
    assert fallen == expected
    listed = [name for names in table.parameters for name in names.split(", ")]
    outputs = model(x).sum()
    used = torch.autograd.grad(outputs, list(model.parameters()), allow_unused=True)
    assert sorted(listed) == sorted(
        n for (n, _), g in zip(model.named_parameters(), used, strict=True) if g is not None
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_diagonal_and_operator(case: Case, form: str) -> None:
    model, x = build(case, 4, torch.float64)
    expected = tangentlab.reference.ntk(model, x)
    blocks = torch.stack([expected[n, :, n] for n in range(4)])
    assert relative(tangentlab.ntk(model, x, diagonal=True, batch_size=3), blocks) < 1e-10
    operator = tangentlab.NTKOperator(model, x, batch_size=3)
    matrix = expected.flatten(2).flatten(0, 1)
    v = torch.randn(operator.shape[1], 3, dtype=torch.float64)
    assert relative(operator @ v, matrix @ v) < 1e-10
    assert relative(operator.diagonal(), matrix.diagonal()) < 1e-10
