"""Every id at the tiny preset: the table, the figure and the claims have the content they should have."""

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.image import imread

from tangentlab.experiments import Result, Scope, Verdict, available, get
from tangentlab.experiments._judge import draw, judge
from tangentlab.experiments._record import load

IDS = [experiment.id for experiment in available()]
Tiny = Callable[[str], Result]


# Columns that may lack values, and why.
MAY_LACK = {
    "j": "CIFAR2 is no eigenfunction",
    "eigenvalue": "nor are labels and random functions",
    "iterations": "a loss that was never reached",
    "paper_test": "a dash in the table",
    "paper_train": "a dash in the table",
    "test_accuracy": "between evaluations",
    "train_accuracy": "between evaluations",
    "rank": "SGD has none",
    "ridge": "SGD has none",
    "residual": "SGD has none",
    "norm": "a function outside the kernel's space",
    "lambda_min_relative": "a singular eNTK",
    "condition_entk": "a singular eNTK",
    "condition_relative": "a singular eNTK",
    "condition_pntk": "a singular pNTK",
}


def test_all_forty_are_there() -> None:
    ortiz = [f"ortiz2021/fig{i}" for i in range(2, 16)] + [f"ortiz2021/{x}" for x in ("table1", "lemma1", "theorem1")]
    samarin = [f"samarin2022/{x}" for x in ("fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "figA2", "figA3")]
    samarin += ["samarin2022/table1", "samarin2022/table2"]
    mohamadi = [f"mohamadi2022/fig{i}" for i in range(1, 13)] + ["mohamadi2022/theorem1"]
    assert sorted(IDS) == sorted(ortiz + samarin + mohamadi)
    assert len(IDS) == 40


@pytest.mark.parametrize("name", IDS)
def test_presets(name: str) -> None:
    experiment = get(name)
    assert set(experiment.presets) == set(experiment.cost) == {"tiny", "small", "paper"}
    assert all(spec.preset == preset for preset, spec in experiment.presets.items())
    assert len({type(spec) for spec in experiment.presets.values()}) == 1
    assert experiment.run.__doc__


@pytest.mark.parametrize("name", IDS)
def test_runs(name: str, tiny: Tiny) -> None:
    result = tiny(name)
    check_table(result.table)
    check_figure(result)
    check_claims(result)
    stored = pd.read_csv(result.folder / "table.csv")
    assert list(stored.columns) == list(result.table.columns)
    assert len(stored) == len(result.table) == result.record["rows"]
    check_again(result)


def check_again(result: Result) -> None:
    """Figure and claims follow from what is on disk."""
    saved = load(result.folder)
    assert saved is not None
    assert [claim.as_dict() for claim in judge(saved.record, saved.table)] == saved.record["claims"]
    figure = json.loads(json.dumps(draw(saved.record, saved.table).vega_lite()))
    assert figure == json.loads((result.folder / "figure.json").read_text())


def check_table(table: pd.DataFrame) -> None:
    assert len(table) >= 4
    for column in table.select_dtypes("number"):
        values = table[column].to_numpy(float)
        if column not in MAY_LACK:
            assert np.isfinite(values).all(), column
        if "accuracy" in column and "difference" not in column:
            assert np.nanmin(values) >= 0, column
            assert np.nanmax(values) <= 1, column
    if "status" in table:
        assert set(table["status"]) == {"finished"}


def check_figure(result: Result) -> None:
    spec = json.loads((result.folder / "figure.json").read_text())
    assert spec["$schema"].endswith("v6.json")
    for panel in spec["concat"]:
        layers = panel.get("layer", [panel])
        for layer in layers:
            values = layer.get("data", panel["data"])["values"]
            assert values, "a layer without data"
            kind = layer["mark"]["type"]
            assert kind in ("line", "point", "rule", "bar", "image")
            for channel in ("x", "y"):
                field = layer["encoding"].get(channel, {}).get("field")
                assert field is None or any(field in value for value in values), (channel, field)
    picture = imread(result.folder / "figure.png")
    assert picture.shape[0] > 300
    assert picture[..., :3].std() > 0.02  # not an empty page
    drawing = ElementTree.parse(result.folder / "figure.svg")
    shapes = [element for element in drawing.iter() if element.tag.endswith(("path", "image")) and _drawn(element)]
    assert len(shapes) >= 4


def _drawn(element: Any) -> bool:
    return element.tag.endswith("image") or bool(element.get("d"))


def check_claims(result: Result) -> None:
    record = json.loads((result.folder / "record.json").read_text())
    assert record["claims"], "no claim"
    for claim in record["claims"]:
        assert claim["verdict"] in set(Verdict)
        assert claim["explanation"]
        assert claim["statement"]
        assert claim["scope"] in set(Scope)
        assert claim["units"] or claim["value"] is None
        # A decision has a test behind it, unless it is about an identity.
        if claim["verdict"] != Verdict.UNDECIDED and "identity" not in claim["explanation"]:
            assert claim["p"] <= 0.05
    assert record["spec"]["preset"] == "tiny"
    assert record["seeds"]
    assert record["command"].startswith("tangentlab reproduce")
    assert {"torch", "tangentlab", "python"} <= set(record["versions"])
    assert record["hardware"]["cores"] >= 1
    assert record["seconds"] > 0
    assert record["work_seconds"] > 0
