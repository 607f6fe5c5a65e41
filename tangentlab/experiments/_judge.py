"""Claims and figures of finished results, computed again from table and spec with the rules of this version."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from tangentlab.experiments._figure import Figure
from tangentlab.experiments._looks import earlier_seeds, retested
from tangentlab.experiments._registry import get
from tangentlab.experiments._runner import spec_of
from tangentlab.experiments._spec import Spec
from tangentlab.experiments._verdicts import Claim


def spec_of_record(record: Mapping[str, Any]) -> Spec:
    """Return the spec of a record; a field that it does not have is as in the preset."""
    experiment = get(record["id"])
    preset = experiment.presets[record["preset"]]
    values = {name: value for name, value in record["spec"].items() if name in preset.fields()}
    return spec_of(experiment, record["preset"], values)


def judge(record: Mapping[str, Any], table: pd.DataFrame) -> list[Claim]:
    """Return the claims of a finished result, from its parts and its table alone."""
    experiment = get(record["id"])
    if earlier := earlier_seeds(record):
        experiment = replace(experiment, claims=retested(experiment.claims, earlier))
    return experiment.judge(table, spec_of_record(record))


def draw(record: Mapping[str, Any], table: pd.DataFrame) -> Figure:
    """Return the figure of a finished result, from its table alone."""
    return get(record["id"]).plot(table, spec_of_record(record))
