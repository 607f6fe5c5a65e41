"""Networks next to their linearizations: accuracy against the index of a task, and which of the two is ahead."""

from typing import Any

import pandas as pd

from tangentlab.experiments import _charts as charts
from tangentlab.experiments._training import Form
from tangentlab.experiments._verdicts import Examined, trend
from tangentlab.experiments.ortiz2021._setup import NAMES

FORMS: tuple[Form, ...] = ("network", "linearized")


def lead(table: pd.DataFrame, index: str, form: str = "network", other: str = "linearized") -> "pd.Series[float]":
    """Return the test accuracy of one form minus that of the other, by ``index`` and seed."""
    wide = table.pivot_table(index=[index, "seed"], columns="form", values="test_accuracy")
    return wide[form] - wide[other]


def accuracy_panel(
    part: pd.DataFrame, name: str, x: str, x_title: str, rules: pd.DataFrame | None = None
) -> dict[str, Any]:
    """Return the panel of a network: test accuracy against ``x``, with one line per form."""
    return charts.lines(
        part,
        x,
        "test_accuracy",
        "form",
        title=NAMES[name],
        x_title=x_title,
        y_title="test accuracy",
        log_x=True,
        percent=True,
        rules=rules,
    )


def accuracy_falls(part: pd.DataFrame, name: str, index: str, tasks: str, paper: str) -> list[Examined]:
    """Judge for each form of a network whether its test accuracy is lower on tasks of a later index."""
    result = []
    for form, own in part.groupby("form", sort=False):
        what = NAMES[name] if form == "network" else f"The linearized {NAMES[name]}"
        statement = f"{what} is less accurate on later {tasks}"
        result.append(trend(statement, own, index, "test_accuracy", -1, paper=paper))
    return result
