"""The beginning of the page: what the papers said and what was found, each with its picture."""

from collections.abc import Sequence
from html import escape

from tangentlab.experiments import Result, Verdict
from tangentlab.report._collect import ReportEntry
from tangentlab.report._numbers import dot_plot
from tangentlab.report._story import Finding, coverage, failed, in_numbers, tell

_KINDS = {Verdict.HOLDS: ("holds", "✓"), Verdict.FAILS: ("fails", "✗"), Verdict.UNDECIDED: ("open", "○")}


def story(entries: Sequence[ReportEntry]) -> str:
    """Return the section: what was found on each topic, what does not hold, and the papers' numbers beside ours."""
    results = [entry.result for entry in entries]
    anchors = {entry.result.name: entry.anchor for entry in entries}
    found = tell(results)
    if not found:
        return ""
    found = sorted(found, key=lambda each: not each.topic.short)
    panels = {entry.result.name: [str(panel.get("title", "")) for panel in entry.panels] for entry in entries}
    cards = "".join(_card(each, anchors, panels) for each in found)
    numbers = (
        '<figure id="numbers"><div class="panels" data-count="1"><div class="panel" data-figure="numbers" '
        'data-panel="0" role="img" aria-label="The papers\' numbers beside ours"></div></div></figure>'
        if dot_plot(results)
        else ""
    )
    return f"""<section id="story"><h2>What the papers said, and what was found</h2>
<p class="lead">{_data(results)}{escape(in_numbers(results))} <a href="#claims">All claims</a> follow below.</p>
<p>✓ most of the decided claims hold, ✗ most do not, ○ none is decided, or as many hold as do not. <em>Reduced</em>:
smaller networks, fewer images or epochs than in the paper; <em>other data</em>: other images.</p>
<div class="story">{cards}</div>
{_failures(results, anchors)}
{numbers}
</section>"""


def _data(results: Sequence[Result]) -> str:
    """Return a sentence about the data, if they are not the papers'."""
    if not any("digits" in result.record["data"] for result in results):
        return ""
    return (
        "The data are scikit-learn's handwritten digits of 8 × 8 pixels, in place of the papers' images, so this says "
        "what happens there, with small networks, and nothing about the papers' numbers. "
    )


def _failures(results: Sequence[Result], anchors: dict[str, str]) -> str:
    """Return the list of what does not hold."""
    items = "".join(
        f'<li>{escape(text)} <a href="#{escape(anchors[result.name])}">Details</a></li>'
        for result, text in failed(results)
    )
    return f"<h3>What does not hold</h3><p>{coverage(results)}</p><ul>{items}</ul>" if items else ""


def _card(finding: Finding, anchors: dict[str, str], panels: dict[str, list[str]]) -> str:
    result, _ = finding.leading
    anchor = escape(anchors[result.name])
    kind, mark = _KINDS[finding.verdict]
    of_network = (i for i, title in enumerate(panels[result.name]) if finding.network and finding.network in title)
    panel = (
        f'<div class="panel small" data-figure="{anchor}" data-panel="{next(of_network, 0)}" role="img" '
        f'aria-label="{escape(finding.topic.title)}"></div>'
    )
    return f"""<div class="topic"><h3><span class="{kind}">{mark}</span> {escape(finding.topic.title)}</h3>
<p><small>{escape(finding.topic.paper)} said:</small> {escape(finding.topic.said)}</p>
<p><b>{escape(finding.sentence.partition(":")[0])}:</b>{escape(finding.sentence.partition(":")[2])}
<a href="#{anchor}">Details</a></p>{panel}</div>"""
