"""How results show themselves in a notebook."""

from collections.abc import Mapping
from html import escape
from typing import Any


def card(title: str, facts: Mapping[str, Any], below: str = "") -> str:
    """Format a result as HTML: a title, a small table of facts, and more HTML below it.

    Args:
        title: One line.
        facts: Shown as ``name: value``; floats with four digits.
        below: HTML, taken as it is.
    """
    left = "style='text-align:left'"
    rows = "".join(
        f"<tr><th {left}>{escape(name)}</th><td {left}>{escape(_shown(value))}</td></tr>"
        for name, value in facts.items()
    )
    return f"<div><strong>{escape(title)}</strong><table>{rows}</table>{below}</div>"


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
