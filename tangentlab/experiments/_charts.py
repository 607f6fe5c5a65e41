"""The kinds of charts in the papers' figures, as Vega-Lite panels.

Colors mean the same everywhere: blue is the network, orange its linearization, green a solver or a pretrained kernel.
Color-blind readers can distinguish them, on light and dark backgrounds.
"""

import base64
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

SERIES = {
    "network": "#3b7dd8",
    "linearized": "#e8853a",
    "solver": "#2aa37a",
    "pretrained": "#2aa37a",
    "eNTK": "#8a63d2",
    "pNTK": "#d6478f",
}
# On a logarithmic axis the lines between powers of ten are lighter.
_POWER = "abs(log(datum.value) / LN10 - round(log(datum.value) / LN10)) < 0.001"
# Plain numbers where they are short: 600, not 6e+2.
_PLAIN = "datum.value >= 0.001 && datum.value < 100000 ? format(datum.value, ',.4~r') : format(datum.value, '.2~e')"
LOG_AXIS = {
    "tickCount": 5,
    "labelExpr": _PLAIN,
    "gridOpacity": {"condition": {"test": _POWER, "value": 1}, "value": 0.25},
}
_OTHERS = ("#3b7dd8", "#e8853a", "#2aa37a", "#8a63d2", "#d6478f", "#8c7a5b", "#c9a227")
_STEPS = ("#f2b134", "#ee8a3c", "#dc5a5a", "#b0478f", "#7650b5", "#3f6fc4", "#2a9d9a")


def lines(
    table: pd.DataFrame,
    x: str,
    y: str,
    color: str | None = None,
    *,
    dash: str | None = None,
    title: str = "",
    x_title: str | None = None,
    y_title: str | None = None,
    log_x: bool = False,
    log_y: bool = False,
    percent: bool = False,
    spread: bool = True,
    points: bool = True,
    rules: pd.DataFrame | None = None,
    domain: Sequence[float] | None = None,
) -> dict[str, Any]:
    """Return a panel of lines through the means over equal x, with points, and bars for the spread of several values.

    Args:
        table: One row per measurement.
        x: Column of the x axis.
        y: Column of the y axis.
        color: Column of the series.
        dash: Column that is shown by dashes.
        title: Title of the panel.
        x_title: Title of the x axis; the column's name by default.
        y_title: Title of the y axis; the column's name by default.
        log_x: Whether the x axis is logarithmic.
        log_y: Whether the y axis is logarithmic.
        percent: Whether y is a fraction to show as a percentage.
        spread: Whether to show one standard deviation.
        points: Whether to show the means as points.
        rules: Horizontal lines, with the columns ``y``, ``label`` and (of the same name) ``color``.
        domain: Ends of the y axis.
    """
    groups = [name for name in (x, color, dash) if name]
    data = table[[*groups, y]].dropna()
    means = data.groupby(groups, sort=True, observed=True)[y].agg(["mean", "std", "count"]).reset_index()
    means["low"], means["high"] = (
        means["mean"] - means["std"].fillna(0),
        means["mean"] + means["std"].fillna(0),
    )
    if log_y:
        means = means[means["mean"] > 0]
        means["low"] = means["low"].where(means["low"] > 0, means["mean"])
    if log_x:
        means = means[means[x] > 0]
    y_axis = {
        "field": "mean",
        "type": "quantitative",
        "title": _name(y_title, y),
        "scale": {
            "padding": 6,
            "nice": False,
            **({"type": "log"} if log_y else {"zero": False}),
            **({"domain": list(domain)} if domain else {}),
        },
        "axis": {"format": ".1~%", "tickCount": 6} if percent else LOG_AXIS if log_y else {"tickCount": 5},
    }
    x_axis = _x_axis(means, x, x_title, log_x)
    hover: list[dict[str, Any]] = [{"field": name, "title": name} for name in groups]
    hover.append({"field": "mean", "title": y_title or title or y, "format": ".2%" if percent else ".4~g"})
    if spread and (means["count"] > 1).any():
        hover += [
            {"field": "std", "title": "standard deviation", "format": ".2%" if percent else ".3~g"},
            {"field": "count", "title": "runs"},
        ]
    encoding: dict[str, Any] = {"x": x_axis, "y": y_axis, "tooltip": hover}
    if color:
        encoding["color"] = series(means[color], color)
        encoding["opacity"] = {"condition": {"param": "toggle", "value": 1}, "value": 0.1}
    line_encoding = dict(encoding)
    if dash:
        line_encoding["strokeDash"] = {"field": dash, "type": "nominal", "legend": None}
        line_encoding["detail"] = [{"field": dash, "type": "nominal"}]
    layers = [{"mark": {"type": "line", "strokeWidth": 2.2}, "encoding": line_encoding, "params": interactions(color)}]
    if points:
        filled = {"type": "point", "filled": True, "size": 42, "opacity": 1}
        point_encoding = dict(encoding)
        if dash:
            point_encoding["shape"] = {"field": dash, "type": "nominal", "legend": None}
        layers.append({"mark": filled, "encoding": point_encoding})
    if spread and (means["count"] > 1).any():
        bars = {k: v for k, v in encoding.items() if k != "tooltip"}
        bars["y"] = {**y_axis, "field": "low"}
        bars["y2"] = {"field": "high"}
        layers.append({"mark": {"type": "rule", "strokeWidth": 1.4, "opacity": 0.55}, "encoding": bars})
    if rules is not None and len(rules):
        layers.append(_rules(rules, color, percent))
    return {**_title(title), "data": {"values": records(means)}, "layer": layers}


def facets(
    table: pd.DataFrame, by: str, titles: Mapping[Any, str], x: str, y: str, color: str | None = None, **options: Any
) -> list[dict[str, Any]]:
    """Return one panel of :func:`lines` per value of a column.

    Args:
        table: One row per measurement.
        by: The column.
        titles: The title of the panel of each value, in the order of the panels.
        x: Column of the x axis.
        y: Column of the y axis.
        color: Column of the series.
        options: As for :func:`lines`.
    """
    return [lines(table[table[by] == value], x, y, color, title=title, **options) for value, title in titles.items()]


def bars(
    table: pd.DataFrame,
    x: str,
    y: str,
    color: str,
    *,
    title: str = "",
    x_title: str | None = None,
    y_title: str | None = None,
    percent: bool = False,
    log_y: bool = False,
) -> dict[str, Any]:
    """Return a panel of grouped bars of means."""
    means = table.groupby([x, color], sort=False, observed=True)[y].mean().reset_index()
    order = list(dict.fromkeys(table[x]))
    encoding = {
        "x": {"field": x, "type": "nominal", "title": _name(x_title, x), "sort": order, "axis": {"labelAngle": 0}},
        "xOffset": {"field": color, "type": "nominal", "sort": list(dict.fromkeys(table[color]))},
        "y": {
            "field": y,
            "type": "quantitative",
            "title": _name(y_title, y),
            "axis": {"format": ".1~%", "tickCount": 6} if percent else LOG_AXIS if log_y else {"tickCount": 5},
            **({"scale": {"type": "log"}} if log_y else {}),
        },
        "color": series(table[color], color),
        "opacity": {"condition": {"param": "toggle", "value": 1}, "value": 0.15},
        "tooltip": [{"field": x}, {"field": color}, {"field": y, "format": ".2%" if percent else ".4~g"}],
    }
    mark = {"type": "bar", "cornerRadiusEnd": 2}
    toggle = [param for param in interactions(color) if param["name"] == "toggle"]
    return {**_title(title), "data": {"values": records(means)}, "mark": mark, "encoding": encoding, "params": toggle}


def pictures(
    images: Sequence[NDArray[np.floating]], labels: Sequence[str], rows: Sequence[str], title: str = ""
) -> dict[str, Any]:
    """Return a panel of small gray pictures on a grid: columns by label, rows by name."""
    values = [
        {"label": label, "row": row, "image": _uri(image), "size": f"{image.shape[0]} x {image.shape[1]}"}
        for image, label, row in zip(images, labels, rows, strict=True)
    ]
    columns, lines_ = list(dict.fromkeys(labels)), list(dict.fromkeys(rows))
    encoding = {
        "x": {"field": "label", "type": "ordinal", "sort": columns, "title": "index", "axis": {"labelAngle": 0}},
        "y": {"field": "row", "type": "nominal", "sort": lines_, "title": None},
        "url": {"field": "image"},
        "tooltip": [{"field": "row", "title": "shows"}, {"field": "label", "title": "index"}, {"field": "size"}],
    }
    mark = {"type": "image", "width": 44, "height": 44}
    return {
        **_title(title),
        "data": {"values": values},
        "mark": mark,
        "encoding": encoding,
        "usermeta": {"fixed": True},
        "width": 52 * len(columns),
        "height": 56 * len(lines_),
    }


def series(values: "pd.Series[Any]", name: str) -> dict[str, Any]:
    """Return the color channel: fixed colors for known names, a sequence for numbers."""
    known = list(SERIES)
    if pd.api.types.is_numeric_dtype(values):
        kinds = sorted(set(values.tolist()))
    else:
        kinds = sorted(dict.fromkeys(values), key=lambda kind: known.index(kind) if kind in known else len(known))
    if pd.api.types.is_numeric_dtype(values):
        step = max(1, len(_STEPS) // max(1, len(kinds)))
        colors = [_STEPS[(i * step) % len(_STEPS)] for i in range(len(kinds))]
        title: str | None = name
    else:
        spare = [color for color in _OTHERS if color not in {SERIES.get(kind) for kind in kinds}]
        colors = [SERIES.get(kind) or spare.pop(0) for kind in kinds]
        title = None
    letters = sum(len(str(kind)) for kind in kinds)
    return {
        "field": name,
        "type": "nominal",
        "title": title,
        "sort": kinds,
        "scale": {"domain": kinds, "range": colors},
        "legend": {"columns": 6 if title else 4 if letters <= 22 else 2},
    }


def interactions(color: str | None) -> list[dict[str, Any]]:
    """Return the interactions of a panel: drag to pan, Shift and wheel to zoom, double-click to reset, click a legend
    entry to select a series."""
    zoom: dict[str, Any] = {
        "name": "zoom",
        "select": {"type": "interval", "zoom": "wheel![event.shiftKey]"},
        "bind": "scales",
    }
    if color is None:
        return [zoom]
    return [zoom, {"name": "toggle", "select": {"type": "point", "fields": [color]}, "bind": "legend"}]


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows as plain values, with six significant digits and without NaN."""
    rows: list[Mapping[Any, Any]] = table.to_dict("records")
    return [{str(k): _short(v) for k, v in row.items() if not _missing(v)} for row in rows]


def _short(value: Any) -> Any:
    if isinstance(value, float | np.floating):
        return float(f"{value:.6g}")
    return value.item() if isinstance(value, np.generic) else value


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float | np.floating) and not math.isfinite(value))


def _name(title: str | None, column: str) -> str | None:
    """Return the title of an axis: the column's name by default, none for an empty title."""
    return column if title is None else title or None


def _title(title: str) -> dict[str, Any]:
    return {"title": title} if title else {}


def _x_axis(means: pd.DataFrame, x: str, title: str | None, log: bool) -> dict[str, Any]:
    if not pd.api.types.is_numeric_dtype(means[x]):
        return {"field": x, "type": "nominal", "title": _name(title, x), "sort": list(dict.fromkeys(means[x]))}
    axis: dict[str, Any] = {
        "field": x,
        "type": "quantitative",
        "title": _name(title, x),
        "scale": {"zero": False, "nice": False, "padding": 8},
    }
    if log:
        axis["scale"] = {"type": "log", "nice": False, "padding": 8}
        axis["axis"] = {"format": "~s" if means[x].max() >= 1000 else "~g"}
        distinct = sorted(set(means[x].tolist()))
        if len(distinct) <= 8:  # few values: name them
            axis["axis"] |= {"values": distinct}
    return axis


def _rules(rules: pd.DataFrame, color: str | None, percent: bool) -> dict[str, Any]:
    encoding: dict[str, Any] = {
        "y": {"field": "y", "type": "quantitative"},
        "tooltip": [{"field": "label"}, {"field": "y", "format": ".2%" if percent else ".4~g"}],
    }
    if color and color in rules:
        encoding["color"] = {"field": color, "type": "nominal"}
    mark = {"type": "rule", "strokeDash": [5, 4], "strokeWidth": 1.5, "opacity": 0.8}
    return {"data": {"values": records(rules)}, "mark": mark, "encoding": encoding}


def _uri(image: NDArray[np.floating]) -> str:
    """Return a picture in shades of gray, darkest at its minimum, as a data URI."""
    from PIL import Image

    low, high = float(image.min()), float(image.max())
    scaled = (image - low) / (high - low) if high > low else np.zeros_like(image)
    buffer = io.BytesIO()
    Image.fromarray((255 * scaled).round().astype(np.uint8), "L").resize((88, 88), 0).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
