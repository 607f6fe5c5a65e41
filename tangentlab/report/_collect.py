"""Reading the results of experiments from a folder."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tangentlab._errors import TangentError
from tangentlab._reading import Unreadable, read_json
from tangentlab.experiments import Result, available, papers
from tangentlab.experiments.internal import load

PAPERS = {paper.name: (paper.title, paper.authors) for paper in papers()}
# The page's own addresses.
_OWN = ("main", "story", "numbers", "claims", "claims-title", "all-claims", "data", "theme", "large")


@dataclass(frozen=True)
class ReportEntry:
    """One result and its figure.

    Attributes:
        result: Table and record.
        panels: The figure's panels, each a Vega-Lite spec.
    """

    result: Result
    panels: list[dict[str, Any]]

    @property
    def paper(self) -> str:
        """The first part of the id."""
        return self.result.id.partition("/")[0]

    @property
    def name(self) -> str:
        """The second part, with the variant."""
        return self.label.partition("/")[2]

    @property
    def label(self) -> str:
        """Id and variant, for display."""
        return f"{self.result.id} · {self.result.variant}" if self.result.variant else self.result.id

    @property
    def anchor(self) -> str:
        """Id and variant as an address in the page."""
        return self.result.name.replace("/", "-").replace(".", "-")


def collect(runs: str | os.PathLike[str]) -> list[ReportEntry]:
    """Load all finished results below a folder, in the order of the papers.

    Raises:
        TangentError: If the folder is missing, contains no results, or contains two of one name.
    """
    folder = Path(runs).expanduser()
    if not folder.is_dir():
        raise TangentError(f"{folder} is not a folder.", remedy="Pass the --out of `tangentlab reproduce`.")
    order = {experiment.id: i for i, experiment in enumerate(available())}
    entries: list[ReportEntry] = []
    places: dict[str, Path] = {}
    for path in sorted(folder.glob("**/record.json")):
        result = load(path.parent)
        if result is not None:
            if result.name in places:
                raise TangentError(
                    f"{places[result.name]} and {path.parent} are both results of {result.name}.",
                    why="A page shows one result under each name.",
                    remedy="Pass one of their folders, or rerun one of them with `--variant NAME`.",
                )
            places[result.name] = path.parent
            entries.append(ReportEntry(result, _panels(path.parent / "figure.json")))
    if not entries:
        raise TangentError(
            f"There are no finished results in {folder}.",
            why="A result is finished when its record.json is written.",
            remedy="Run `tangentlab reproduce all --out FOLDER` first.",
        )
    _refuse_clashes(entries)
    return sorted(entries, key=lambda entry: (order.get(entry.result.id, len(order)), entry.result.variant))


def _refuse_clashes(entries: list[ReportEntry]) -> None:
    """Refuse results whose addresses in the page are equal: each would show the other's figures."""
    papers = {entry.paper for entry in entries}
    taken = dict.fromkeys((*_OWN, *papers), "the page itself")
    for entry in entries:
        for address in (entry.anchor, f"{entry.anchor}-title"):
            if address in taken or entry.paper in _OWN:
                raise TangentError(
                    f"The result {entry.result.name} in {entry.result.folder} cannot be read into the page.",
                    why=f"Its address {address!r} there is that of {taken.get(address, 'the page itself')}.",
                    remedy="Pass a folder without it.",
                )
            taken[address] = entry.result.name


def _panels(path: Path) -> list[dict[str, Any]]:
    try:
        figure = read_json(path)
        panels = figure.get("concat") if isinstance(figure, dict) else None
        if not isinstance(panels, list) or not panels or not all(isinstance(panel, dict) for panel in panels):
            raise Unreadable("cannot be read: it is no figure of panels")
    except Unreadable as error:
        raise TangentError(
            f"{path} {error}.", remedy="Rerun the experiment with --again, which draws the figure again."
        ) from error
    return [_alone(panel) for panel in panels]


def _alone(panel: dict[str, Any]) -> dict[str, Any]:
    """Return the panel without options for the drawing program, which the page sets itself."""
    fixed = isinstance(panel.get("usermeta"), dict) and panel["usermeta"].get("fixed") is True
    rest = {name: value for name, value in panel.items() if name != "usermeta"}
    return rest | {"usermeta": {"fixed": True}} if fixed else rest
