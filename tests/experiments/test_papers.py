"""A paper is one object, from which everything about it is read."""

import math
from dataclasses import replace

import pandas as pd
import pytest

from tangentlab.experiments import available, get, papers
from tangentlab.experiments.mohamadi2022._agreement import claims_accuracy
from tangentlab.experiments.mohamadi2022._per_architecture import TrendWithWidth
from tangentlab.report._collect import PAPERS


def test_the_order_of_the_papers() -> None:
    assert [paper.name for paper in papers()] == ["ortiz2021", "samarin2022", "mohamadi2022"]
    assert [experiment for paper in papers() for experiment in paper.experiments] == list(available())
    assert {paper.name: (paper.title, paper.authors) for paper in papers()} == PAPERS
    for paper in papers():
        assert all(experiment.paper == paper.name for experiment in paper.experiments)
    names = [experiment.id.partition("/")[2] for experiment in papers()[1].experiments]
    assert names == [*(f"fig{i}" for i in range(2, 8)), "figA2", "figA3", "table1", "table2"]


def test_an_experiment_belongs_to_one_paper_once() -> None:
    paper = papers()[1]
    with pytest.raises(ValueError, match="registered twice"):
        _ = replace(paper, families=("_widths", "_widths")).experiments
    with pytest.raises(ModuleNotFoundError):
        _ = replace(paper, families=("_absent",)).experiments


@pytest.mark.parametrize(("lost", "unmet"), [(3, "at every width."), (2, "at every width but one."), (1, ""), (0, "")])
def test_smallest_eigenvalues_that_are_rounding_error(lost: int, unmet: str) -> None:
    """A trend over the widths that are left is undecided if fewer than two are, and is not left out."""
    widths = [1.0, 2.0, 4.0]
    finite = [math.nan if number < lost else 1.0 for number in range(3)]
    table = pd.DataFrame({"width": widths, "epoch": 0, "seed": 0, "gap": [3.0, 2.0, 1.0], "condition_entk": finite})
    claim = TrendWithWidth("The gap falls", "gap", -1, "it falls", regular=True)
    found = claim.judge("FCN", table, get("mohamadi2022/fig5").presets["tiny"])  # type: ignore[arg-type]
    assert found.unmet.endswith(unmet)
    assert bool(found.unmet) == bool(unmet)


def test_regressions_with_a_singular_kernel_decide_nothing() -> None:
    rows = [
        {"architecture": "fcn", "width": width, "seed": seed, "epoch": 0, "condition_entk": condition, **common}
        for seed in range(3)
        for width, condition in ((1.0, math.inf), (2.0, 10.0 + seed))
        for common in ({"accuracy_difference": 0.1 + 0.001 * seed if width == 2 else -9.0},)
    ]
    spec = get("mohamadi2022/fig8").presets["tiny"]
    (some,) = claims_accuracy(pd.DataFrame(rows), spec)  # type: ignore[arg-type]
    assert (some.unmet, some.evidence.value) == ("", pytest.approx(0.101))
    (none,) = claims_accuracy(pd.DataFrame(rows[::2]), spec)  # type: ignore[arg-type]
    assert "rounding error at every width" in none.unmet
