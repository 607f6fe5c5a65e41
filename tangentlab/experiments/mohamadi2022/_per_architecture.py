"""Figures and claims with one entry per architecture: a statistic against width and along training."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tangentlab.experiments import _charts as charts
from tangentlab.experiments._figure import Figure
from tangentlab.experiments._verdicts import Examined, greater, trend
from tangentlab.experiments.mohamadi2022._setup import ARCHITECTURES, ArchitectureSpec


def each(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the display name and the rows of every architecture of a table."""
    for name, part in table.groupby("architecture", sort=False):
        yield ARCHITECTURES[str(name)], part


def regular(part: pd.DataFrame) -> pd.DataFrame:
    """Return the rows whose eNTK is not singular up to rounding, as it is with fewer parameters than outputs.

    Elsewhere its smallest eigenvalue is rounding, and so is what a regression makes of it.
    """
    return part[np.isfinite(part["condition_entk"])]


def by_epoch(part: pd.DataFrame, column: str, dropna: bool = True) -> pd.DataFrame:
    """Return a statistic with one row per network and one column per epoch."""
    return part.pivot_table(index=["width", "seed"], columns="epoch", values=column, dropna=dropna)


@dataclass(frozen=True)
class TrendWithWidth:
    """A claim that a statistic at initialization rises or falls with width.

    Attributes:
        statement: What the paper says, without "at initialization".
        column: The statistic.
        sign: +1 where it rises, -1 where it falls.
        paper: The paper's words.
        regular: Whether the statistic counts only where the eNTK is regular.
        trained: Whether the statistic compares with the trained network.
    """

    statement: str
    column: str
    sign: int
    paper: str
    regular: bool = False
    trained: bool = False

    def judge(self, name: str, part: pd.DataFrame, spec: ArchitectureSpec) -> Examined:
        """Return the claim for one architecture."""
        start = part[part["epoch"] == 0]
        statement = f"{self.statement} at initialization ({name})"
        measured, unmet = (regular(start) if self.regular else start), ""
        if (left := measured["width"].nunique()) < 2 <= start["width"].nunique():
            unmet = f"The smallest eigenvalue of the eNTK is rounding error at every width{' but one' if left else ''}."
        measured = measured.dropna(subset=[self.column])
        if self.trained and spec.untrained:
            measured = measured.iloc[:0]
        return trend(statement, measured, "width", self.column, self.sign, paper=self.paper, unmet=unmet)


@dataclass(frozen=True)
class ChangeInTraining:
    """A claim that a statistic is larger after training than at initialization, in the mean over networks.

    Attributes:
        statement: What the paper says.
        what: The statistic, in words.
        column: The statistic.
        paper: The paper's words.
        falls: Whether it is smaller after training instead.
    """

    statement: str
    what: str
    column: str
    paper: str
    falls: bool = False

    def judge(self, name: str, part: pd.DataFrame, spec: ArchitectureSpec) -> Examined:
        """Return the claim for one architecture."""
        values = by_epoch(part, self.column)
        start, end = values[0], values[values.columns.max()]
        larger, smaller = (start, end) if self.falls else (end, start)
        ends = ("at initialization", "at the last epoch") if self.falls else ("at the last epoch", "at initialization")
        statistic = f"{self.what} {ends[0]} minus that {ends[1]}, mean over networks"
        changes = (larger - smaller).iloc[: 0 if spec.untrained else None]
        return greater(f"{self.statement} ({name})", statistic, changes, paper=self.paper)


def claims_of(*claims: TrendWithWidth | ChangeInTraining) -> Callable[[pd.DataFrame, ArchitectureSpec], list[Examined]]:
    """Return the function that judges these claims for every architecture of a table."""
    return lambda table, spec: [claim.judge(name, part, spec) for name, part in each(table) for claim in claims]


def plot_of(column: str, y_title: str, *, log_y: bool = True, percent: bool = False) -> Callable[..., Figure]:
    """Return the function that plots a statistic against epochs: a panel per architecture, a color per width."""

    def plot(table: pd.DataFrame, spec: ArchitectureSpec) -> Figure:
        panels = [
            charts.lines(
                part,
                "epoch",
                column,
                "width",
                title=name,
                y_title=y_title,
                log_y=log_y and bool((part[column] > 0).all()),
                percent=percent,
            )
            for name, part in each(table)
        ]
        return Figure(panels, columns=2, caption=f"{y_title.capitalize()} by epoch; a color is a width.", width=320)

    return plot
