"""The text of ``docs/results/index.md``, from what is published and nothing else."""

from collections import Counter
from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

from docs import results_seeds
from docs import results_words as words
from docs.published import RESULTS, Remaining, notes, remaining, results
from tangentlab.experiments import Result, Verdict, available, get
from tangentlab.report._collect import PAPERS
from tangentlab.report._story import coverage, failed, in_numbers, tell

_MARKS = {Verdict.HOLDS: "✓", Verdict.FAILS: "✗", Verdict.UNDECIDED: "○"}
_KINDS = {Verdict.HOLDS: "holds", Verdict.FAILS: "fails", Verdict.UNDECIDED: "open"}


def page(folder: Path = RESULTS) -> str:
    """Return the complete page."""
    found, explained, left = results(folder), notes(folder), remaining(folder)
    papers = [(paper, list(group)) for paper, group in groupby(found, key=lambda result: result.id.partition("/")[0])]
    parts = [
        "# Results",
        "<!-- Written by python -m docs.build_results; not by hand. -->",
        _summary(found),
        _story(found),
        _sources(found, bool(left)),
        _headlines(found),
        _overview(found),
        *(_paper(paper, group, explained) for paper, group in papers),
        _seeds(found),
        _not_run(left),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def anchor(result: Result) -> str:
    """Return the result's name as an address in the page."""
    return result.name.replace("/", "-").replace(".", "-").lower()


def label(result: Result) -> str:
    """Return id and variant for display."""
    return f"{result.id} · {result.variant}" if result.variant else result.id


def _claims(found: Sequence[Result]) -> list[tuple[Result, int, dict[str, Any]]]:
    return [(result, i, claim) for result in found for i, claim in enumerate(result.record["claims"])]


def _summary(found: Sequence[Result]) -> str:
    if not found:
        return "No results are published yet."
    claims = [claim for _, _, claim in _claims(found)]
    counts = Counter(claim["verdict"] for claim in claims)
    cards = [
        f'<div class="{_KINDS[verdict]}"><b>{counts.get(verdict, 0)}</b><span>{_MARKS[verdict]} {verdict}</span></div>'
        for verdict in Verdict
    ]
    ids, known = len({result.id for result in found}), len(available())
    covered = f"all {known}" if ids == known else f"{ids} of the {known}"
    return f"""tangentlab measures again what three papers report. The {len(found)} results on this page cover {covered}
figures, tables and theorems, some at several scales, and test {len(claims)} claims.

{in_numbers(found)}

<div class="verdicts">{"".join(cards)}</div>

A claim is a statistic with a threshold. It *holds* or *does not hold* if a test over replicates (seeds, or points such
as tasks and widths) says so at 95 %, and is *undecided* if there are too few replicates for their spread. Where it was
tested is said separately: *as published*, on the paper's data with *reduced* settings, or on *other data*.
[How claims are judged](../verdicts.md) has the rules, and [Changed verdicts](changes.md) what they changed."""


def _sources(found: Sequence[Result], more: bool) -> str:
    """Return where the numbers come from."""
    if not found:
        return ""
    end = "\n[Experiments that were not run](#not-run) are listed at the end." if more else ""
    return f"""Every number comes from the `table.csv` and `record.json` listed with it, which the command shown there
wrote. `DIR` is the folder with the data sets and `RUNS` any folder for results. [One interactive page](report.html)
has the same results, with figures that zoom, tables that sort and filter, and provenance.{end}{_copies(found)}"""


def _copies(found: Sequence[Result]) -> str:
    copied = any(not entry["original"] for result in found for entry in result.record["data"].values())
    if not copied:
        return ""
    return """

CIFAR-10 (JPEG copy) does not consist of the publisher's files: a mirror re-encoded all 60,000 images as JPEG, in
another order. Pixel statistics agree with the original to three digits, so the results apply to CIFAR-10; small
differences from the papers may be due to the copy."""


def _story(found: Sequence[Result]) -> str:
    """Return what the papers said and what was found, each with the picture of the result whose number is shown."""
    topics = []
    for finding in tell(found):
        result, _ = finding.leading
        topics.append(
            f'<div class="topic"><p><strong>{_MARKS[finding.verdict]} {_text(finding.topic.title)}.</strong> '
            f"<small>{finding.topic.paper}:</small> {_text(finding.topic.said)}</p>\n"
            f'<p>{_text(finding.sentence)} <a href="#{anchor(result)}">Details</a></p>\n'
            f'<a href="#{anchor(result)}"><img src="{result.name}/figure.png" loading="lazy" '
            f'alt="{escape(result.record["title"])}"></a></div>'
        )
    if not topics:
        return ""
    body = "\n".join(topics)
    legend = (
        "The mark is the verdict that most of the decided claims have (○ if as many hold as do not). In brackets are\n"
        "the bounds or the p-value of the number, what the test is over, and where it was tested. Points are tasks,\n"
        'widths or networks: for "8 points, 1 seed" eight of them were measured with one draw of weights and images.\n'
        "Claims of one topic often share networks and runs, so they are no independent tests. Each bound is one-sided\n"
        "and not corrected for the number of claims."
    )
    lines = "\n".join(f"- {_text(text)} [Details](#{anchor(result)})" for result, text in failed(found))
    against = f"\n\n### What does not hold\n\n{coverage(found)} These claims do not hold:\n\n{lines}" if lines else ""
    return f'## What the papers said, and what was found\n\n{legend}\n\n<div class="story">\n{body}\n</div>{against}'


def _headlines(found: Sequence[Result]) -> str:
    rows = [
        {
            "Result": f'<a href="#{anchor(result)}">{escape(label(result))}</a>',
            "Quantity": _text(claim["statement"]),
            **_numbers(claim),
            "Paper": words.paper(claim),
            "Replicates": _text(claim["units"]),
            "Tested": words.tested(claim),
            "Verdict": _badge(claim),
            "claim": f"{result.name}#{i}",
        }
        for result, i, claim in _claims(found)
        if claim["value"] is not None and claim["reference"] is not None
    ]
    if not rows:
        return ""
    return (
        "## The papers' numbers and ours\n\n"
        "The interval is the prediction interval: with 95 % probability another run like ours gives a number in it.\n"
        "A paper's number holds, which means that it is compatible with ours, if it is in there and the interval is\n"
        "informative, or if the difference is too small to matter. For reduced settings the comparison says what the\n"
        "reduction changes.\n\n"
        "![The papers' numbers beside ours](numbers.png){ loading=lazy }\n\n" + _table(rows)
    )


def _overview(found: Sequence[Result]) -> str:
    if not found:
        return ""
    rows = []
    for result in found:
        counts = Counter(claim["verdict"] for claim in result.record["claims"])
        badges = [f'<span class="verdict {_KINDS[v]}">{_MARKS[v]} {counts[v]}</span>' for v in Verdict if counts[v]]
        rows.append(
            {
                "Result": f'<a href="#{anchor(result)}">{escape(label(result))}</a>',
                "Title": f"{_text(result.record['title'])}<br><small>{_text(words.scale(result))}</small>",
                "Seeds": words.seeds(result),
                "Wall-clock": words.wall_clock(result.record),
                "Verdicts": f"<span>{' '.join(badges)}</span>",
            }
        )
    return (
        "## All results at a glance\n\n"
        "The table lists the scale of each result and how many of its claims hold (✓), do not hold (✗) or are\n"
        "undecided (○). The wall-clock time covers all work that a result needs, including shared work.\n\n"
        + _table(rows)
    )


def _paper(paper: str, found: Sequence[Result], explained: dict[str, list[str]]) -> str:
    title, authors = PAPERS[paper]
    return "\n\n".join(
        [
            f"## {title} {{#{paper}}}",
            f"{authors}.",
            *(_result(result, explained.get(result.name, [])) for result in found),
        ]
    )


def _result(result: Result, explained: list[str]) -> str:
    record, place = result.record, result.name
    rows = [
        {
            "Claim": f"{_text(claim['statement'])}<br><small>{_text(claim['statistic'])}; {_text(words.needed(claim))}"
            "</small>",
            **_numbers(claim),
            "Tested": words.tested(claim),
            "Verdict": _badge(claim, units=True),
            "claim": f"{result.name}#{i}",
        }
        for i, claim in enumerate(record["claims"])
    ]
    facts = {
        "Data": words.data(record),
        "Scale": words.scale(result),
        "Seeds": words.seeds(result) + (f"; {days}" if (days := words.when(record)) else ""),
        "Wall-clock": f"{words.wall_clock(record)} on {words.machine(record)}",
    }
    parts = [
        f"### {label(result)}: {record['title']} {{#{anchor(result)}}}",
        record["shows"],
        "\n".join(f"- **{name}:** {text}" for name, text in facts.items() if text),
        f"![{escape(record['title'])}]({place}/figure.png){{ loading=lazy }}",
        f"*{record['caption']}*",
        _table(rows),
        _reasons(record["claims"]),
        "\n".join(["Notes:", "", *(f"- {note}" for note in explained)]) if explained else "",
        f"```bash\n{record['command']}\n```",
        f"Files: [table.csv]({place}/table.csv) ({record['rows']:,} rows), [record.json]({place}/record.json)",
        _deviations(record["deviations"]),
    ]
    return "\n\n".join(part for part in parts if part)


def _numbers(claim: dict[str, Any]) -> dict[str, str]:
    shown = {"Paper": _text(claim["paper"]), "Ours": words.value(claim), "Interval": words.interval(claim)}
    return {**shown, "Difference": words.difference(claim)}


def _badge(claim: dict[str, Any], units: bool = False) -> str:
    verdict = Verdict(claim["verdict"])
    extra = f"<br><small>{_text(claim['units'])}</small>" if units and claim["units"] else ""
    return f'<span><span class="verdict {_KINDS[verdict]}">{_MARKS[verdict]} {verdict}</span>{extra}</span>'


def _reasons(claims: Sequence[dict[str, Any]]) -> str:
    """Return why claims are not decided: each reason once, with the claims that it is about if some are decided or have
    another reason."""
    open_claims = [claim for claim in claims if claim["verdict"] == Verdict.UNDECIDED]
    reasons: dict[str, list[str]] = {}
    for claim in open_claims:
        reasons.setdefault(claim["explanation"], []).append(_text(claim["statement"]))
    if len(reasons) == 1 and len(open_claims) == len(claims):
        return f"Undecided: {next(iter(reasons))}"
    lines = [f"- *{'; '.join(statements)}:* {reason}" for reason, statements in reasons.items()]
    return "\n".join(["Undecided:", "", *lines]) if lines else ""


def _deviations(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    items = "".join(f"<li>{_text(note)}</li>" for note in notes)
    return f"<details><summary>Choices and deviations from the paper</summary><ul>{items}</ul></details>"


def _seeds(found: Sequence[Result]) -> str:
    links = {result.name: f'<a href="#{anchor(result)}">{escape(label(result))}</a>' for result in found}
    rows = results_seeds.rows(found, links)
    if not rows:
        return ""
    return (
        "## Seeds that would decide more\n\n"
        "More seeds at the same scale would decide these claims if value and spread stayed as they are. *Seeds* lists\n"
        "how many there are and how many are needed in all. The cost is the time of the missing seeds on one core if\n"
        "each takes as long as the earlier ones. Results in one row share their work. The most claims for the least\n"
        "time come first. Further seeds are one more test of a claim, which\n"
        "[its p-value accounts for](../verdicts.md#seeds-added-later).\n\n" + _table(rows)
    )


def _not_run(items: Sequence[Remaining]) -> str:
    if not items:
        return ""
    parts = ["## Not run", "Each entry states the estimated cost and the command."]
    for item in items:
        cost = item.cost.rstrip(".")
        parts.append(f"**{item.experiment}** {get(item.experiment).title}. {item.missing} *Estimated cost:* {cost}.")
        parts.append(f"```bash\n{item.command}\n```")
    return "\n\n".join(parts)


def _table(rows: Sequence[dict[str, str]]) -> str:
    """Return a table of cells by heading; ``claim`` names the place in the records of a row, next to our number."""
    names = [name for name in (rows[0] if rows else ()) if name != "claim" and any(row[name] for row in rows)]
    if not rows:
        return ""
    head = "".join(f"<th>{name}</th>" for name in names)
    lines = []
    for row in rows:
        places = {"Ours": f' data-claim="{row["claim"]}"'} if "claim" in row else {}
        cells = [f'<td data-label="{name}"{places.get(name, "")}>{row[name]}</td>' for name in names]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    body = "\n".join(lines)
    return (
        f'<div class="results">\n<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>\n</div>'
    )


def _text(text: str) -> str:
    return escape(text, quote=False)
