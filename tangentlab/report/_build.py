"""Building the page from the results."""

import json
import math
import os
from pathlib import Path
from typing import Any

import pandas as pd

from tangentlab._files import make_folder, write_text
from tangentlab.report._assets_of import asset
from tangentlab.report._charts import bundle, themes
from tangentlab.report._collect import ReportEntry, collect
from tangentlab.report._numbers import dot_plot
from tangentlab.report._page import page

# Rows of a table on the page; the whole table is in its table.csv.
_ROWS = 3000


def build(runs: str | os.PathLike[str], out: str | os.PathLike[str] = "report.html", *, title: str = "") -> Path:
    """Write the page of all finished results in a folder.

    Cost: reading all tables and figures, which are in memory together. The page has up to 3,000 rows of each table.

    Args:
        runs: The ``out`` folder of :func:`tangentlab.experiments.reproduce`.
        out: The file.
        title: Title of the page.

    Returns:
        The file's path.

    Raises:
        TangentError: If there are no results, or the file cannot be written.
    """
    entries = collect(runs)
    path = Path(out).expanduser()
    make_folder(path.parent)
    text = page(
        entries,
        title or "What do linearized networks say?",
        style=asset("vega.css") + asset("page.css"),
        data=_data(entries),
        code=bundle() + "\n" + asset("page.js"),
    )
    write_text(path, text)
    return path


def _data(entries: list[ReportEntry]) -> str:
    """Return figures and tables as JSON."""
    data = {
        "themes": themes(),
        "figures": {entry.anchor: entry.panels for entry in entries} | _numbers(entries),
        "tables": {entry.anchor: _table(entry.result.table) for entry in entries},
    }
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


def _numbers(entries: list[ReportEntry]) -> dict[str, list[dict[str, Any]]]:
    """Return the dot plot of the papers' numbers, if there are any."""
    panel = dot_plot([entry.result for entry in entries])
    return {} if panel is None else {"numbers": [panel]}


def _table(table: pd.DataFrame) -> dict[str, Any]:
    shown = table.head(_ROWS)
    return {
        "columns": [str(name) for name in shown],
        "numeric": [bool(pd.api.types.is_numeric_dtype(shown[name])) for name in shown],
        "rows": [[_plain(value) for value in row] for row in shown.itertuples(index=False)],
        "total": len(table),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value.item() if hasattr(value, "item") else value
