"""An experiment as data and functions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tangentlab.experiments._context import Context
from tangentlab.experiments._figure import Figure
from tangentlab.experiments._scale import scope_of
from tangentlab.experiments._spec import Spec
from tangentlab.experiments._verdicts import Claim, Examined, settle


@dataclass(frozen=True)
class Experiment:
    """A figure, table or theorem of one of the papers, as data and three functions.

    Attributes:
        id: ``"ortiz2021/fig2"``.
        title: A few words.
        shows: What the paper shows there.
        presets: A spec for each of ``tiny``, ``small`` and ``paper``.
        run: Spec and context to a table, one row per measurement; the columns are in the function's docstring.
        plot: Table and spec to a figure.
        claims: Table and spec to the paper's claims with the evidence on each; see :meth:`judge`.
        cost: The cost of each preset, in words.
        deviations: Where the setup differs from the paper's text, and what was chosen where the text does not say.
    """

    id: str
    title: str
    shows: str
    presets: Mapping[str, Any]
    run: Callable[[Any, Context], pd.DataFrame]
    plot: Callable[[pd.DataFrame, Any], Figure]
    claims: Callable[[pd.DataFrame, Any], list[Examined]]
    cost: Mapping[str, str]
    deviations: tuple[str, ...] = ()

    @property
    def paper(self) -> str:
        """The first part of the id."""
        return self.id.partition("/")[0]

    def judge(self, table: pd.DataFrame, spec: Spec) -> list[Claim]:
        """Return the paper's claims with their verdicts: what the table says, and where the spec tests it."""
        return settle(self.claims(table, spec), *scope_of(spec, self.presets["paper"]))


def family(
    paper: str,
    presets: Mapping[str, Any],
    run: Callable[[Any, Context], pd.DataFrame],
    cost: Mapping[str, str],
    deviations: tuple[str, ...] = (),
) -> Callable[..., Experiment]:
    """Return a function that makes experiments of a paper which share their runs and differ in figure and claims.

    It takes the last part of the id, the title, what the paper shows, ``plot`` and ``claims``.
    """

    def experiment(
        name: str,
        title: str,
        shows: str,
        plot: Callable[[pd.DataFrame, Any], Figure],
        claims: Callable[[pd.DataFrame, Any], list[Examined]],
    ) -> Experiment:
        return Experiment(f"{paper}/{name}", title, shows, presets, run, plot, claims, cost, deviations)

    return experiment
