"""The papers' numbers beside ours as a dot plot: a dot and a line for our mean and prediction interval, a diamond for
the paper's."""

from collections.abc import Sequence
from typing import Any

from tangentlab.experiments import Result, Verdict


def dot_plot(results: Sequence[Result]) -> dict[str, Any] | None:
    """Return the panel in Vega-Lite; None if no claim has a number of a paper."""
    rows = [
        {
            "label": f"{result.name.partition('/')[2]}: {claim['statement']}",
            "paper": result.id.partition("/")[0],
            "ours": claim["value"],
            "low": claim["value"] if claim["low"] is None else max(0.0, claim["low"]),
            "high": claim["value"] if claim["high"] is None else min(100.0, claim["high"]),
            "published": claim["reference"],
            "verdict": claim["verdict"],
            "units": claim["units"],
            "scope": claim["scope"],
        }
        for result in results
        for claim in result.record["claims"]
        if claim["reference"] is not None and claim["value"] is not None
    ]
    if not rows:
        return None
    y = {"field": "label", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 360, "grid": True}}
    tooltip = [
        {"field": field, "format": ".2f"} if field in ("ours", "low", "high", "published") else {"field": field}
        for field in ("label", "ours", "low", "high", "published", "verdict", "units", "scope")
    ]
    color = {
        "field": "verdict",
        "type": "nominal",
        "title": "the paper's number",
        "scale": {"domain": [str(each) for each in Verdict], "range": ["#1b7f55", "#b3314a", "#8a93a3"]},
    }

    def x(field: str) -> dict[str, Any]:
        return {"field": field, "type": "quantitative", "title": "percent, or points of a percentage"}

    return {
        "title": "The papers' numbers (diamonds) beside ours (dots, with prediction intervals)",
        "data": {"values": rows},
        "height": 19 * len({row["label"] for row in rows}),
        "width": 420,
        "encoding": {"y": y, "tooltip": tooltip},
        "layer": [
            {
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {"x": x("low"), "x2": {"field": "high"}, "color": color},
            },
            {"mark": {"type": "point", "filled": True, "size": 55}, "encoding": {"x": x("ours"), "color": color}},
            {
                "mark": {"type": "point", "shape": "diamond", "size": 80, "strokeWidth": 1.6, "color": "#d0852a"},
                "encoding": {"x": x("published")},
            },
        ],
    }
