"""The text of ``docs/results/index.md``, from what is published and nothing else."""

from collections import Counter
from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

from docs import results_words as words
from docs.published import RESULTS, Remaining, notes, remaining, results
from tangentlab.experiments import Result, Verdict, available, get
from tangentlab.report._collect import PAPERS

_MARKS = {Verdict.HOLDS: "✓", Verdict.FAILS: "✗", Verdict.UNDECIDED: "○"}
_KINDS = {Verdict.HOLDS: "holds", Verdict.FAILS: "fails", Verdict.UNDECIDED: "open"}
_SHORT = {Verdict.HOLDS: "holds", Verdict.FAILS: "does not hold", Verdict.UNDECIDED: "not decidable"}


def page(folder: Path = RESULTS) -> str:
    """Return the complete page."""
    found, explained, left = results(folder), notes(folder), remaining(folder)
    papers = [(paper, list(group)) for paper, group in groupby(found, key=lambda result: result.id.partition("/")[0])]
    parts = [
        "# Results",
        "<!-- Written by python -m docs.build_results; not by hand. -->",
        _summary(found, bool(left)),
        _headlines(found),
        _overview(found),
        *(_paper(paper, group, explained) for paper, group in papers),
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


def _summary(found: Sequence[Result], more: bool) -> str:
    if not found:
        return "No results are published yet."
    claims = [claim for _, _, claim in _claims(found)]
    counts = Counter(claim["verdict"] for claim in claims)
    sided = [c["agrees"] for c in claims if c["verdict"] == Verdict.UNDECIDED and c["agrees"] is not None]
    cards = []
    for verdict in Verdict:
        extra = ""
        if verdict == Verdict.UNDECIDED and sided:
            extra = f"<small>{sum(sided)} of {len(sided)} with a threshold are on the paper's side</small>"
        cards.append(
            f'<div class="{_KINDS[verdict]}"><b>{counts.get(verdict, 0)}</b>'
            f"<span>{_MARKS[verdict]} {_SHORT[verdict]}</span>{extra}</div>"
        )
    ids, known = len({result.id for result in found}), len(available())
    end = "\n[Experiments that were not run](#not-run) are listed at the end." if more else ""
    end += _copies(found)
    return f"""This page reproduces measurements of three papers with tangentlab: {len(found)} results of {ids} of their
{known} figures, tables and theorems, with {len(claims)} of their claims. A claim is a statistic with a threshold. Only
a run that is large enough decides it; [Experiments](../experiments.md) states the rules.

<div class="verdicts">{"".join(cards)}</div>

Every number comes from the `table.csv` and `record.json` listed with it, which the command shown there wrote. `DIR` is
the folder with the data sets and `RUNS` any folder for results. [One interactive page](report.html) has the same
results, with figures that zoom, tables that sort and filter, and provenance.{end}"""


def _copies(found: Sequence[Result]) -> str:
    copied = any(not entry["original"] for result in found for entry in result.record["data"].values())
    if not copied:
        return ""
    return """

CIFAR-10 (JPEG copy) does not consist of the publisher's files: a mirror re-encoded all 60,000 images as JPEG, in
another order. Pixel statistics agree with the original to three digits, so the results apply to CIFAR-10; small
differences from the papers may be due to the copy."""


def _headlines(found: Sequence[Result]) -> str:
    rows = [
        {
            "Result": f'<a href="#{anchor(result)}">{escape(label(result))}</a>',
            "Quantity": _text(claim["statement"]),
            **_numbers(claim),
            "Paper": words.paper(claim),
            "Seeds": words.seeds(result),
            "Scale": words.reduced(result),
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
        "A number is decided only if the run has the paper's settings, apart from the number of seeds. Otherwise the\n"
        "two numbers measure different things and are listed for orientation only.\n\n" + _table(rows)
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
        "The table lists the scale of each result and how many of its claims hold (✓), do not hold (✗) or cannot be\n"
        "decided at that scale (○). The wall-clock time covers all work that a result needs, including shared work.\n\n"
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
            "Verdict": _badge(claim, side=True),
            "claim": f"{result.name}#{i}",
        }
        for i, claim in enumerate(record["claims"])
    ]
    facts = {
        "Data": words.data(record),
        "Scale": words.scale(result),
        "Seeds": words.seeds(result),
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
        "".join(f"- {note}\n" for note in explained).rstrip(),
        f"```bash\n{record['command']}\n```",
        f"Files: [table.csv]({place}/table.csv) ({record['rows']:,} rows), [record.json]({place}/record.json)",
        _deviations(record["deviations"]),
    ]
    return "\n\n".join(part for part in parts if part)


def _numbers(claim: dict[str, Any]) -> dict[str, str]:
    return {"Paper": _text(claim["paper"]), "Ours": words.value(claim), "Difference": words.difference(claim)}


def _badge(claim: dict[str, Any], side: bool = False) -> str:
    verdict = Verdict(claim["verdict"])
    extra = ""
    if side and verdict == Verdict.UNDECIDED and claim["agrees"] is not None:
        whose = "the paper's" if claim["agrees"] else "the other"
        extra = f"<br><small>on {whose} side</small>"
    return f'<span><span class="verdict {_KINDS[verdict]}">{_MARKS[verdict]} {_SHORT[verdict]}</span>{extra}</span>'


def _reasons(claims: Sequence[dict[str, Any]]) -> str:
    """Return why claims are not decided, each reason once."""
    undecided = [claim["explanation"] for claim in claims if claim["verdict"] == Verdict.UNDECIDED]
    reasons = dict.fromkeys(text.partition(" Here the number is on")[0] for text in undecided)
    return f"Not decided: {' '.join(reasons)}" if reasons else ""


def _deviations(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    items = "".join(f"<li>{_text(note)}</li>" for note in notes)
    return f"<details><summary>Choices and deviations from the paper</summary><ul>{items}</ul></details>"


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
