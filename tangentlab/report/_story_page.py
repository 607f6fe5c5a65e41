"""The beginning of the page: what the papers said and what was found, each with its picture."""

from collections.abc import Sequence
from html import escape

from tangentlab.experiments import Verdict
from tangentlab.report._collect import ReportEntry
from tangentlab.report._numbers import dot_plot
from tangentlab.report._story import Finding, in_numbers, tell

_KINDS = {Verdict.HOLDS: ("holds", "✓"), Verdict.FAILS: ("fails", "✗"), Verdict.UNDECIDED: ("open", "○")}


def story(entries: Sequence[ReportEntry]) -> str:
    """Return the section: five topics with pictures, the others in words, and the papers' numbers beside ours."""
    results = [entry.result for entry in entries]
    anchors = {entry.result.name: entry.anchor for entry in entries}
    found = tell(results)
    if not found:
        return ""
    pictured = [each for each in found if each.topic.short] or found[:5]
    rest = [each for each in found if each not in pictured]
    cards = "".join(_card(each, anchors, picture=True) for each in pictured)
    more = "".join(_card(each, anchors, picture=True) for each in rest)
    others = f'<div class="story">{more}</div>' if more else ""
    numbers = (
        '<figure id="numbers"><div class="panels" data-count="1"><div class="panel" data-figure="numbers" '
        'data-panel="0" role="img" aria-label="The papers\' numbers beside ours"></div></div></figure>'
        if dot_plot(results)
        else ""
    )
    return f"""<section id="story"><h2>What the papers said, and what was found</h2>
<p class="lead">{escape(in_numbers(results))} <a href="#claims">All claims</a> follow below.</p>
<div class="story">{cards}</div>
{others}
{numbers}
</section>"""


def _card(finding: Finding, anchors: dict[str, str], picture: bool) -> str:
    result, _ = finding.leading
    anchor = escape(anchors[result.name])
    kind, mark = _KINDS[finding.verdict]
    panel = (
        f'<div class="panel small" data-figure="{anchor}" data-panel="0" role="img" '
        f'aria-label="{escape(finding.topic.title)}"></div>'
        if picture
        else ""
    )
    return f"""<div class="topic"><h3><span class="{kind}">{mark}</span> {escape(finding.topic.title)}</h3>
<p><small>{escape(finding.topic.paper)} said:</small> {escape(finding.topic.said)}</p>
<p><b>{escape(finding.sentence.partition(":")[0])}:</b>{escape(finding.sentence.partition(":")[2])}
<a href="#{anchor}">Details</a></p>{panel}</div>"""
