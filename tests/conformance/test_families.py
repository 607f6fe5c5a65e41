"""Networks nobody here wrote: exact, or refused for a reason that is listed and true.

The fast families are part of every run. All others::

    python -m pytest tests/conformance -m soak
"""

import importlib.util
from collections import Counter

import pytest

from tangentlab import TangentError
from tests.conformance.check import TOLERANCE, Verdict, examine
from tests.conformance.family import Family, Problem, Refusal
from tests.conformance.precision import ROUNDING, computes_in_float32, float64_throughout
from tests.conformance.registry import FAMILIES


def _parameter(family: Family) -> object:
    marks: list[pytest.MarkDecorator] = [] if family.fast else [pytest.mark.soak]
    return pytest.param(family, id=f"{family.kind}-{family.name}", marks=marks)


@pytest.mark.parametrize("family", [_parameter(family) for family in FAMILIES])
def test_a_family_is_exact_or_refused_for_the_reason_listed(family: Family) -> None:
    if importlib.util.find_spec(family.package) is None:
        pytest.skip(f"{family.package} is not installed: pip install --no-deps {family.package}")
    problem = family.problem()
    rounded = computes_in_float32(problem)
    _judge(family, problem, examine(problem), ROUNDING if rounded else TOLERANCE)
    if rounded:
        with float64_throughout():
            problem = family.problem()
            _judge(family, problem, examine(problem), TOLERANCE)


def _judge(family: Family, problem: Problem, verdict: Verdict, tolerance: float) -> None:
    assert not verdict.wrong(tolerance)
    _compare_refusal(problem, family.refusal, verdict.refusals.get("kernel"))
    _compare_refusal(problem, family.linearization_refusal, verdict.refusals.get("linearization"))
    assert verdict.errors or family.refusal


def _compare_refusal(problem: Problem, listed: Refusal | None, found: TangentError | None) -> None:
    if listed is None:
        if found is not None:
            raise AssertionError("refused, and not listed as such") from found
        return
    if found is None:
        assert not listed.certain, f"listed as refused ({listed.because}) and no longer is"
        return
    assert listed.describes(found), f"refused for another reason than the one listed: {found}"
    assert listed.evidence(problem), f"the reason is not true: {listed.because}"


def test_there_are_enough_families_and_each_has_a_name_of_its_own() -> None:
    count = Counter(family.kind for family in FAMILIES)
    assert sum(count.values()) - count["packages"] >= 60
    assert max(Counter(family.name for family in FAMILIES).values()) == 1
    assert 12 <= sum(family.fast for family in FAMILIES) <= 20
