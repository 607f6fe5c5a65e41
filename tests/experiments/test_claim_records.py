"""Records and their claims: judged by their own spec, and read in the earlier format."""

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from tangentlab.experiments import _judge, get
from tangentlab.experiments._judge import draw, judge, spec_of_record
from tangentlab.experiments._schema import FORMAT, upgraded


def test_records_are_judged_by_their_spec() -> None:
    """The spec of a record: its preset with the record's values, where they are fields that can be set."""
    experiment = get("ortiz2021/lemma1")
    preset = experiment.presets["small"]
    record = {"id": experiment.id, "preset": "small", "spec": {"seeds": 7, "less": "Old words.", "gone": 1}}
    spec = spec_of_record(record)
    assert (type(spec), spec.preset, spec.seeds) == (type(preset), "small", 7)
    calls: list[Any] = []
    table = pd.DataFrame({"a": [1]})
    planted = SimpleNamespace(
        presets=experiment.presets,
        judge=lambda *given: calls.append(("judge", *given)) or ["claim"],
        plot=lambda *given: calls.append(("plot", *given)) or "figure",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_judge, "get", {experiment.id: planted}.__getitem__)
        patch.setattr(_judge, "spec_of", lambda found, preset, values: (found is planted, preset, values))
        assert judge(record, table) == ["claim"]
        assert draw(record, table) == "figure"
    expected = (True, "small", {"seeds": 7})
    assert [(kind, given is table, spec) for kind, given, spec in calls] == [
        ("judge", True, expected),
        ("plot", True, expected),
    ]


def test_records_of_the_earlier_format() -> None:
    claim = {"verdict": "not decidable at this scale", "agrees": True, "value": 1.0, "reference": 2.0}
    record = upgraded({"format": 1, "claims": [claim, {**claim, "verdict": "holds"}]})
    assert record["format"] == FORMAT
    assert [each["verdict"] for each in record["claims"]] == ["undecided", "holds"]
    assert all(each["low"] is None and each["reference"] == 2.0 for each in record["claims"])
