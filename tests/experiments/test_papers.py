"""A paper is one object, from which everything about it is read."""

from dataclasses import replace

import pytest

from tangentlab.experiments import available, papers
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
