"""The markup of the page."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from itertools import groupby
from typing import Any

from tangentlab._version import __version__
from tangentlab.experiments import Scope, Verdict
from tangentlab.report._assets_of import normalized, policy
from tangentlab.report._collect import PAPERS, ReportEntry
from tangentlab.report._story_page import story

_BADGES = {Verdict.HOLDS: ("holds", "✓"), Verdict.FAILS: ("fails", "✗"), Verdict.UNDECIDED: ("open", "○")}
_SHORT = {Verdict.HOLDS: "holds", Verdict.FAILS: "does not hold", Verdict.UNDECIDED: "undecided"}
_TESTED = {Scope.PUBLISHED: "as published", Scope.REDUCED: "reduced", Scope.OTHER: "other data"}


def page(entries: Sequence[ReportEntry], title: str, *, style: str, data: str, code: str) -> str:
    """Return the complete document.

    Args:
        entries: The results.
        title: Title of the page.
        style: CSS, one style element.
        data: JSON of figures and tables, which the code reads.
        code: The module that draws them.
    """
    code, style = normalized(code), normalized(style)
    data = data.replace("<", "\\u003c")
    papers = [(paper, list(group)) for paper, group in groupby(entries, key=lambda entry: entry.paper)]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy(style, code)}">
<meta name="color-scheme" content="light dark">
<title>{escape(title)} – tangentlab</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the results</a>
{_header(entries, title)}
<div class="layout">
{_navigation(papers)}
<main id="main">
{story(entries)}
{_summary(entries)}
{"".join(_paper(paper, group) for paper, group in papers)}
</main>
</div>
<dialog id="large" aria-label="Enlarged figure"><button type="button" class="close">Close</button><div></div></dialog>
<noscript><p class="notice">Figures and tables are drawn by this page's script, which is switched off.</p></noscript>
<script type="application/json" id="data">{data}</script>
<script type="module">{code}</script>
</body>
</html>
"""


def _header(entries: Sequence[ReportEntry], title: str) -> str:
    presets = ", ".join(sorted({entry.result.record["preset"] for entry in entries}))
    count, different = len(entries), len({entry.result.id for entry in entries})
    results = "" if count == different else f" ({count} results)"
    day = datetime.now(UTC).strftime("%-d %B %Y")
    return f"""<header class="top">
<div><p class="brand">tangentlab {escape(__version__)}</p><h1>{escape(title)}</h1>
<p class="lead">{different} figures, tables and theorems of three papers, run again{results}. Preset: {escape(presets)}.
Page made on {day}.</p></div>
<button type="button" id="theme" aria-label="Switch between light and dark">◐</button>
</header>"""


def _navigation(papers: Sequence[tuple[str, list[ReportEntry]]]) -> str:
    groups = []
    for paper, entries in papers:
        items = "".join(
            f'<li><a href="#{escape(entry.anchor)}"><span>{escape(entry.name)}</span>{_dots(entry)}</a></li>'
            for entry in entries
        )
        groups.append(f'<p><a href="#{escape(paper)}">{escape(paper)}</a></p><ul>{items}</ul>')
    return (
        f'<nav aria-label="Experiments"><details open><summary>Experiments</summary>{"".join(groups)}</details></nav>'
    )


def _dots(entry: ReportEntry) -> str:
    marks = "".join(
        f'<i class="{_BADGES[Verdict(claim["verdict"])][0]}"></i>' for claim in entry.result.record["claims"]
    )
    return f'<span class="dots" aria-hidden="true">{marks}</span>'


def _summary(entries: Sequence[ReportEntry]) -> str:
    claims = [(entry, claim) for entry in entries for claim in entry.result.record["claims"]]
    counts = Counter(claim["verdict"] for _, claim in claims)
    cards = []
    for verdict in Verdict:
        kind, mark = _BADGES[verdict]
        cards.append(
            f'<button type="button" class="card {kind}" data-verdict="{kind}" aria-pressed="false">'
            f"<b>{counts.get(verdict, 0)}</b><span>{mark} {verdict}</span></button>"
        )
    rows = "".join(_claim_row(claim, entry) for entry, claim in claims)
    return f"""<section id="claims" aria-labelledby="claims-title">
<h2 id="claims-title">Claims at a glance</h2>
<p>{len(claims)} claims of the papers, each a statistic with a threshold. The verdict says what the data say: a claim
<em>holds</em> or <em>does not hold</em> if a test over the replicates (seeds, or points such as tasks and widths) says
so at 95 %, after correction for the number of claims of a result; else it is <em>undecided</em>, which means too few
replicates for their spread. <em>Tested</em> says where: as published, on the paper's data with reduced settings, or on
other data. Brackets are 95 % bounds; for a number of a paper they are the range in which another such run is
expected.</p>
<div class="cards">{"".join(cards)}</div>
<div class="tools"><label>Filter
<input type="search" data-filter="all-claims" placeholder="fig2, width, accuracy …"></label>
<span class="count" data-count="all-claims" role="status"></span></div>
<div class="scroll" tabindex="0" role="region" aria-label="All claims">
<table class="claims sortable" id="all-claims">{_claim_head(with_id=True)}<tbody>{rows}</tbody></table></div>
</section>"""


def _claim_head(with_id: bool) -> str:
    names = [*(["Experiment"] if with_id else []), "Claim", "Ours", "Needed", "Paper", "Verdict", "Tested"]
    cells = "".join(f'<th scope="col"><button type="button">{name}</button></th>' for name in names)
    return f"<thead><tr>{cells}</tr></thead>"


def _claim_row(claim: dict[str, Any], entry: ReportEntry | None = None) -> str:
    kind, mark = _BADGES[Verdict(claim["verdict"])]
    bounds = ""
    if claim["low"] is not None:
        bounds = f"<small>[{_number(claim['low'])}, {_number(claim['high'])}]</small>"
    first = f'<td><a href="#{escape(entry.anchor)}">{escape(entry.label)}</a></td>' if entry else ""
    value = claim["value"]
    # The reason is also in the badge's tooltip, which a touch screen does not show.
    why = f"<small>{escape(claim['explanation'])}</small>" if entry is None and kind == "open" else ""
    return (
        f'<tr data-verdict="{kind}">{first}'
        f"<td>{escape(claim['statement'])}<small>{escape(claim['statistic'])}</small></td>"
        f'<td class="number" data-value="{"" if value is None else value}">{_number(value)}{bounds}</td>'
        f'<td class="needed">{_nice(claim["threshold"])}</td><td>{_nice(claim["paper"])}</td>'
        f'<td data-value="{kind}"><span class="badge {kind}" title="{escape(claim["explanation"])}">{mark} '
        f"{_SHORT[Verdict(claim['verdict'])]}</span><small>{escape(claim['units'])}</small>{why}</td>"
        f'<td><span title="{escape(claim["reduced"])}">{escape(_TESTED[Scope(claim["scope"])])}</span></td></tr>'
    )


def _paper(paper: str, entries: Sequence[ReportEntry]) -> str:
    title, authors = PAPERS.get(paper, (paper, ""))
    body = "".join(_experiment(entry) for entry in entries)
    head = f"<h2>{escape(title)}<small>{escape(authors)}</small></h2>"
    return f'<section class="paper" id="{escape(paper)}">{head}{body}</section>'


def _experiment(entry: ReportEntry) -> str:
    record, anchor = entry.result.record, escape(entry.anchor)
    panels = "".join(
        f'<div class="panel" data-figure="{anchor}" data-panel="{i}" role="img" '
        f'aria-label="{escape(_panel_title(panel) or record["title"])}"></div>'
        for i, panel in enumerate(entry.panels)
    )
    rows = "".join(_claim_row(claim) for claim in record["claims"])
    claims = (
        f'<div class="scroll" tabindex="0" role="region" aria-label="Claims of {escape(entry.label)}">'
        f'<table class="claims">{_claim_head(with_id=False)}<tbody>{rows}</tbody></table></div>'
        if rows
        else "<p>No claim of the paper is tested on this result.</p>"
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in record["deviations"])
    deviations = f"<h4>Chosen or different from the paper</h4><ul>{notes}</ul>" if notes else ""
    return f"""<article id="{anchor}" aria-labelledby="{anchor}-title">
<h3 id="{anchor}-title"><span class="id">{escape(entry.label)}</span> {escape(record["title"])}
<span class="chip">{escape(record["preset"])}</span></h3>
<p>{escape(record["shows"])}</p>
<figure><div class="panels" data-count="{len(entry.panels)}">{panels}</div>
<figcaption>{escape(record["caption"])} <button type="button" class="enlarge" data-figure="{anchor}">Enlarge</button>
</figcaption></figure>
{claims}
<details class="more"><summary>Table of {record["rows"]:,} rows</summary>
<div class="data" data-table="{anchor}"></div></details>
<details class="more"><summary>How it came about</summary>{_provenance(record)}{deviations}</details>
</article>"""


def _provenance(record: dict[str, Any]) -> str:
    hardware = record["hardware"]
    machine = f"{hardware['processor']}, {hardware['cores']} cores, {hardware['memory_gib']} GiB"
    if hardware["gpus"]:
        machine += ", " + ", ".join(hardware["gpus"])
    spec = ", ".join(f"{name}={_spec_value(value)}" for name, value in record["spec"].items())
    data = "; ".join(
        f"{name}: {entry['source']}" + (" (not the publisher's files)" if entry["original"] is False else "")
        for name, entry in record["data"].items()
    )
    items = {
        "Command": f"<code>{escape(record['command'])}</code> <button type='button' class='copy'>Copy</button>",
        "Time": _time(record),
        "Stated cost": escape(record["cost"]),
        "Seeds": escape(", ".join(map(str, record["seeds"]))),
        "Data": escape(data) or "drawn at random",
        "Machine": escape(machine),
        "Versions": escape(", ".join(f"{name} {version}" for name, version in record["versions"].items())),
        "Finished": escape(record["finished"]),
        "Spec": f"<code>{escape(spec)}</code>",
    }
    return "<dl>" + "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in items.items()) + "</dl>"


def _time(record: dict[str, Any]) -> str:
    """Return the time of all work that a result needs, if the record has it, and that of the command."""
    work = record["work"]
    last = (
        f"{_duration(record['seconds'])} for the command, which computed {work['computed']} units of work and reused "
        f"{work['reused']} finished ones"
    )
    whole = record.get("work_seconds")
    return f"{_duration(whole)} for all units of work; {last}" if isinstance(whole, int | float) else last


def _panel_title(panel: dict[str, Any]) -> str:
    title = panel.get("title", "")
    return str(title.get("text", "")) if isinstance(title, dict) else str(title)


def _spec_value(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}".replace("-", "−")


def _nice(text: str) -> str:
    return escape(text.replace("<=", "≤").replace(">=", "≥").replace("+-", "±").replace(" -", " −"))


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
