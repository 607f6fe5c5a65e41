"""A figure: panels in Vega-Lite, the source of both interactive charts and static files."""

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tangentlab._errors import TangentError
from tangentlab._extras import require

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
VEGA_LITE = "6.4"
_FONT = "Inter, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"


def config(dark: bool = False) -> dict[str, Any]:
    """Return the appearance of all charts: light axes and grid, no frame."""
    ink, soft, grid = ("#e7e9ee", "#a4abb8", "#343a46") if dark else ("#20242c", "#5b6472", "#e4e7ec")
    return {
        "background": "transparent" if dark else "white",
        "font": _FONT,
        "view": {"stroke": None},
        "mark": {"color": "#3b7dd8"},
        "axis": {
            "labelColor": soft,
            "titleColor": ink,
            "gridColor": grid,
            "domainColor": soft,
            "tickColor": soft,
            "tickSize": 4,
            "labelFontSize": 11,
            "titleFontSize": 12,
            "titleFontWeight": 500,
            "titlePadding": 8,
            "labelPadding": 4,
            "gridDash": [1, 0],
        },
        "axisX": {"grid": False},
        "axisY": {"domain": False, "ticks": False},
        "legend": {
            "labelColor": ink,
            "titleColor": soft,
            "labelFontSize": 11,
            "titleFontSize": 11,
            "titleFontWeight": 500,
            "orient": "bottom",
            "direction": "horizontal",
            "symbolStrokeWidth": 2.5,
            "columns": 4,
            "offset": 10,
        },
        "title": {
            "color": ink,
            "subtitleColor": soft,
            "fontSize": 13,
            "fontWeight": 600,
            "anchor": "start",
            "offset": 10,
        },
        "text": {"color": ink},
        "rule": {"color": soft},
        "concat": {"spacing": 28},
    }


@dataclass(frozen=True)
class Figure:
    """The figure of an experiment, which ``plot`` returns. A notebook displays it.

    Attributes:
        panels: Vega-Lite specs without size or configuration, each of one view (layers allowed).
        columns: Number of panels per row.
        caption: A sentence below the panels.
        height: Height of a panel in pixels, unless it has its own.
        width: Width of a panel in static files, unless it has its own; on the page it follows the column.
    """

    panels: Sequence[dict[str, Any]]
    columns: int = 3
    caption: str = ""
    height: int = 220
    width: int = 280

    def __post_init__(self) -> None:
        if not self.panels:
            raise TangentError("The figure has no panels.", "The table has no rows.", "Check the spec.")

    def panel(self, index: int) -> dict[str, Any]:
        """Return one panel as a complete spec of its own, without configuration."""
        spec = _named(self.panels[index], index)
        spec.setdefault("height", self.height)
        spec.setdefault("width", self.width)
        return {"$schema": SCHEMA, **spec}

    def vega_lite(self, dark: bool = False) -> dict[str, Any]:
        """Return all panels as one Vega-Lite spec, for any editor and for the static files."""
        parts = []
        for index in range(len(self.panels)):
            part = self.panel(index)
            part.pop("$schema")
            parts.append(part)
        return {
            "$schema": SCHEMA,
            "config": config(dark),
            "concat": parts,
            "columns": min(self.columns, len(parts)),
            "resolve": {"scale": {"color": "independent"}},
        }

    def png(self, scale: float = 2.0) -> bytes:
        """Return the static picture as PNG."""
        return bytes(converter().vegalite_to_png(self._static(), vl_version=VEGA_LITE, scale=scale))

    def svg(self) -> str:
        """Return the static picture as SVG."""
        return str(converter().vegalite_to_svg(self._static(), vl_version=VEGA_LITE))

    def _static(self) -> str:
        return json.dumps(self.vega_lite())

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        return {"application/vnd.vegalite.v6+json": self.vega_lite(), "image/svg+xml": self.svg()}


def _named(panel: dict[str, Any], index: int) -> dict[str, Any]:
    """Return a copy whose parameters have unique names, so that several panels can be part of one spec."""
    names: set[str] = set()

    def collect(part: Any) -> None:
        if isinstance(part, dict):
            names.update(entry["name"] for entry in part.get("params", []))
            for value in part.values():
                collect(value)
        elif isinstance(part, list):
            for value in part:
                collect(value)

    collect({key: value for key, value in panel.items() if key != "data"})

    def rename(part: Any, key: str = "") -> Any:
        if isinstance(part, dict):
            return {name: value if name == "values" else rename(value, name) for name, value in part.items()}
        if isinstance(part, list):
            return [rename(value, key) for value in part]
        return f"{part}_{index}" if key in ("name", "param") and part in names else copy.copy(part)

    renamed: dict[str, Any] = rename(panel)
    return renamed


def converter() -> Any:
    """Return the library that turns charts into pictures.

    Raises:
        TangentError: It is not installed.
    """
    return require("vl_convert", "The package vl-convert-python", "report", "It draws the figures of experiments.")
