"""The text of ``docs/results/changes.md``: verdicts by the rules up to version 0.1 next to those of docs/verdicts.md.

``docs/results/before.json`` has the earlier verdicts as they were published, by result and statement.
"""

import json
from collections import Counter
from html import escape
from pathlib import Path
from typing import Any

from docs.published import RESULTS, results

_BEFORE = "not decidable at this scale"
# Statements that were worded differently, by what they began with.
_RENAMED = {
    "Regression with the pNTK is at least as accurate": "Regression with the pNTK is more accurate",
    "The gap shrinks with width": "The gap shrinks with width: ",
    "J is effectively of low rank at every width": "J is effectively of low rank",
    "The solver interpolates the training data": "The solver interpolates the training data",
    "The pNTK of a pair of points takes less time than the eNTK, at every depth and data set": (
        "The pNTK of a pair of points takes less time than the eNTK"
    ),
}
_GONE = {
    "Width helps the linearization more": "Not a claim of its own: the statistic is that of the shrinking gap.",
    "The effective rank is much lower": "Not a claim: the paper has no number. Ours is shown with the effective rank.",
}
_NOT_RUN = "Not listed: this part was not run."


def page(folder: Path = RESULTS) -> str:
    """Return the page."""
    before: dict[str, Any] = json.loads((folder / "before.json").read_text())
    now = {result.name: result for result in results(folder)}
    rows, same, counts = [], 0, Counter[tuple[str, str]]()
    for name, old in before.items():
        if name not in now:
            continue
        seeds = (old["seeds"], len(now[name].record["seeds"]))
        for statement, verdict in old["claims"].items():
            claim = _find(statement, now[name].record["claims"])
            then = "undecided" if verdict == _BEFORE else verdict
            new = "not listed" if claim is None else claim["verdict"]
            counts[then, new] += 1
            if new == then:
                same += 1
                continue
            why = _gone(statement) if claim is None else claim["explanation"]
            more = "" if seeds[0] == seeds[1] else f" {seeds[1]} seeds instead of {seeds[0]}."
            rows.append((name, statement, then, new, f"{why}{more}"))
    summary = "\n".join(f"| {then} | {new} | {number} |" for (then, new), number in sorted(counts.items()))
    lines = "\n".join(
        f"<tr><td>{name}</td><td>{escape(statement, quote=False)}</td><td>{then}</td><td>{new}</td>"
        f"<td>{escape(why, quote=False)}</td></tr>"
        for name, statement, then, new, why in rows
    )
    renamed = "; ".join(
        f"*{old}* is now *{new.rstrip(': ')}*" for old, new in _RENAMED.items() if old != new.rstrip(": ")
    )
    return f"""# Changed verdicts

<!-- Written by python -m docs.build_results; not by hand. -->

Until version 0.1 the size of a run decided what it could say: a run as large as the `small` preset decided claims
about directions from one seed, by the side of the threshold on which the value was. Now the spread over replicates
decides ([How claims are judged](../verdicts.md)), and the size of the run is the second part of the verdict. Of
{sum(counts.values())} earlier verdicts {same} are unchanged and {len(rows)} changed. Most of those that changed from
"holds" to "undecided" come from a single seed whose spread is not known; more seeds decide them. The earlier
"undecided" was "not decidable at this scale". Some claims were also worded differently, because their statistic
changed: {renamed}. They are compared with their successors here.

| before | now | claims |
|---|---|---|
{summary}

<div class="results">
<table>
<thead><tr><th>Result</th><th>Claim</th><th>Before</th><th>Now</th><th>Why</th></tr></thead>
<tbody>
{lines}
</tbody>
</table>
</div>
"""


def _find(statement: str, claims: list[dict[str, Any]]) -> dict[str, Any] | None:
    for claim in claims:
        if claim["statement"] == statement:
            return claim
    for old, new in _RENAMED.items():
        end = statement.rpartition(" (")[2] if statement.endswith(")") else ""
        if statement.startswith(old):
            for claim in claims:
                if claim["statement"].startswith(new) and claim["statement"].endswith(end):
                    return claim
    return None


def _gone(statement: str) -> str:
    return next((why for start, why in _GONE.items() if statement.startswith(start)), _NOT_RUN)
