"""The page: markup, style, code and numbers in one file."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path

from tangentlab._version import __version__
from tangentlab.explorer._exploration import Exploration
from tangentlab.explorer._margins import margins
from tangentlab.explorer._packing import Packed, arrays, describe
from tangentlab.explorer._views import VIEWS, View
from tangentlab.report.internal import bundle, normalized, policy, style, themes

_ASSETS = Path(__file__).parent / "_assets"
# The order of the modules: each comes after those that it imports.
_MODULES = (
    "data", "bus", "ui", "export", "charts", "heat", "spectrum", "functions", "scatter", "map", "sample", "layers",
    "training", "nads", "linear", "main",
)  # fmt: skip
_IMPORT = re.compile(r"^import \{[^}]*\} from \"[./\w]+\";\n", re.M)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const|let) )", re.M)


def page(found: Exploration, docs: str | None = None, served: Mapping[str, Packed] | None = None) -> str:
    """Return the document.

    Args:
        found: What it shows.
        docs: Address of the documentation site, or None.
        served: The arrays that a server has, which the page loads when they are needed; None for a page that contains
            them.
    """
    if served is None:
        numbers = {name: make().inline() for name, make in arrays(found).items()}
    else:
        numbers = {name: packed.header() for name, packed in served.items()}
    content = {**describe(found), "arrays": numbers, "remote": served is not None, "themes": themes()}
    data = json.dumps(content, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    views = shown_views(found)
    alone = all(view.id != "layers" for view in views)  # the spectrum has no neighbor then
    look, code = normalized(style("vega.css") + asset("explorer.css")), normalized(f"{bundle()}\n{{\n{script()}\n}}")
    rules = policy(look, code) + ("" if served is None else "; connect-src 'self'")
    links = "".join(f'<a href="#view-{view.id}">{view.title}</a>' for view in views)
    theory = "".join(_theory(view, docs) for view in views)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{rules}">
<meta name="color-scheme" content="light dark">
<title>{escape(found.title)} – tangentlab</title>
<link rel="icon" href="data:,">
<style>{look}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the views</a>
<header class="top"><div><p class="brand">tangentlab {escape(__version__)} explorer</p>
<h1 dir="auto">{escape(found.title)}</h1><p class="lead">{_lead(found)}</p></div>
<button type="button" id="theme" aria-label="Switch between light and dark">◐</button></header>
<div class="bar"><nav aria-label="Views">{links}</nav>
{_slider(found)}</div>
<main id="main">{"".join(_card(view, alone) for view in views)}</main>
<section class="theory" aria-labelledby="theory"><h2 id="theory">Theory</h2>{theory}</section>
<noscript><p class="note">The views are drawn by this page's script, which is switched off.</p></noscript>
<script type="application/json" id="data">{data}</script>
<script type="module">{code}</script>
</body>
</html>
"""


def shown_views(found: Exploration) -> Sequence[View]:
    """Return the views for which there are numbers."""
    there = {
        "layers": any(state.layers for state in found.states),
        "training": len(found.states) > 1,
        "nads": any(state.nads is not None for state in found.states),
        "linear": any(margins(state, found.labels) is not None for state in found.states),
    }
    return [view for view in VIEWS if there.get(view.id, True)]


def asset(name: str) -> str:
    """Return the text of a file."""
    return (_ASSETS / name).read_text(encoding="utf-8")


@cache
def script() -> str:
    """Return the page's own modules as one: imports left out, because each comes after what it imports."""
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", asset(f"{name}.js"))) for name in _MODULES)


def _lead(found: Exploration) -> str:
    last, labels = found.states[-1], found.labels
    parts = [f"{len(found):,} samples"]
    if labels is not None and labels.names:
        parts.append(f"{len(labels.names)} classes")
    if found.readout:
        parts.append(f"readout {escape(found.readout)}")
    if len(found.states) > 1:
        parts.append(f"{len(found.states)} checkpoints")
    if last.fit is not None and labels is not None:
        accuracy = last.fit.accuracy(labels)
        about = "" if last.fit.exact else f" of the kernel of the leading {len(last.spectrum.values)} eigenpairs"
        if accuracy is not None:
            parts.append(f"leave-one-out accuracy{about} {accuracy:.1%} (ridge {last.fit.ridge:.3g})")
    return ", ".join(parts) + "."


def _slider(found: Exploration) -> str:
    if len(found.states) < 2:
        return ""
    last = len(found.states) - 1
    return (
        '<label class="checkpoint">Checkpoint '
        f'<input type="range" id="checkpoint" min="0" max="{last}" step="1" value="{last}">'
        '<output id="checkpoint-name" dir="auto"></output></label>'
    )


def _card(view: View, alone: bool) -> str:
    wide = " wide" if view.wide or (alone and view.id == "spectrum") else ""
    saves = "".join(
        f'<button type="button" data-view="{view.id}" data-save="{kind}" '
        f'aria-label="Save {view.title} as {kind.upper()}">{kind.upper()}</button>'
        for kind in ("svg", "png", "csv")
    )
    return (
        f'<section class="card{wide}" id="view-{view.id}" data-view="{view.id}" '
        f'aria-labelledby="title-{view.id}"><header><h2 id="title-{view.id}">{view.title}</h2>'
        f'<div class="saves">{saves}</div></header>'
        f'<p class="says">{view.says} <a href="#theory-{view.id}">Theory</a></p>{asset(view.id + ".html")}</section>'
    )


def _theory(view: View, docs: str | None) -> str:
    more = ""
    if docs is not None:
        more = f' <a href="{escape(docs.rstrip("/") + "/" + view.page, quote=True)}">Documentation</a>'
    formula = f"<p><code>{escape(view.formula)}</code></p>"
    return f'<div id="theory-{view.id}"><h3>{view.title}</h3><p>{view.theory}{more}</p>{formula}</div>'
