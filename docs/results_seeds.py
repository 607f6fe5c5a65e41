"""Which further seeds would decide the claims that are undecided, and what they cost: estimated from the records."""

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from docs.replicates import with_seeds
from docs.results_words import duration
from tangentlab.experiments import Result, Verdict

# What the explanations of undecided claims say: seeds in all. Where points decide, three seeds are units as well.
_SAID = (
    re.compile(r"About ([\d,]+) seeds in all"),
    re.compile(r"at least (\d+) seeds"),
    re.compile(r"takes (\d+) to \d+ seeds"),
    re.compile(r"With (\d+) seeds"),
    re.compile(r"^(\d+) seeds would"),
)
_BY_POINTS, _UNITS = re.compile(r"About [\d,]+ points in all"), 3


@dataclass(frozen=True)
class Step:
    """Further seeds of results that share their work.

    Attributes:
        results: The results.
        undecided: Their claims that further seeds would decide.
        seeds: Seeds in all.
        seconds: Time of those that are missing, as long as the earlier ones took.
        command: How to run all of them.
    """

    results: tuple[Result, ...]
    undecided: int
    seeds: int
    seconds: float
    command: str

    @property
    def rate(self) -> float:
        """Claims per second."""
        return self.undecided / self.seconds if self.seconds else math.inf


def seeds_needed(claim: dict[str, Any]) -> int | None:
    """Return how many seeds in all would decide a claim, as its explanation says; None if no number of them would."""
    if claim["verdict"] != Verdict.UNDECIDED:
        return None
    text = claim["explanation"]
    numbers = [int(found[1].replace(",", "")) for pattern in _SAID if (found := pattern.search(text))]
    if numbers:
        return numbers[0]
    return _UNITS if _BY_POINTS.search(text) else None


def steps(found: Sequence[Result]) -> list[Step]:
    """Return what to run, the most claims in the least time first.

    Results of one paper with one spec whose work took the same time share it. Where some of their claims need many more
    seeds than others, these are a step of their own, from the seeds that there are now.
    """
    groups: dict[tuple[str, str, float], list[Result]] = {}
    for result in found:
        record, paper = result.record, result.id.partition("/")[0]
        shared = paper, json.dumps(record["spec"], sort_keys=True), record.get("work_seconds", math.nan)
        groups.setdefault(shared, []).append(result)
    return sorted((step for group in groups.values() for step in _steps(group)), key=lambda step: -step.rate)


def _steps(group: Sequence[Result]) -> Iterator[Step]:
    """Yield steps of results that share their work, first as many seeds as decide the most claims per seed."""
    have = len(group[0].record["seeds"])
    left = [
        (n, result) for result in group for claim in result.record["claims"] if (n := seeds_needed(claim)) is not None
    ]
    while left:
        seeds = max((n for n, _ in left), key=lambda n: (sum(other <= n for other, _ in left) / max(1, n - have), n))
        now = [result.name for n, result in left if n <= seeds]
        left = [(n, result) for n, result in left if n > seeds]
        those = tuple(result for result in group if result.name in now)
        record = those[0].record
        each = max(result.record.get("work_seconds", result.record["seconds"]) for result in those) / have
        command = with_seeds(record["command"], range(record["seeds"][0], record["seeds"][0] + seeds))
        command = command.replace(those[0].id, " ".join(result.id for result in those), 1)
        yield Step(those, len(now), seeds, (seeds - have) * each, command)


def rows(found: Sequence[Result], named: dict[str, str]) -> list[dict[str, str]]:
    """Return the cells of a table of the steps.

    Args:
        found: The results.
        named: How each is shown, by name.
    """
    return [
        {
            "Results": ", ".join(named[result.name] for result in step.results),
            "Undecided": str(step.undecided),
            "Seeds": f"{len(step.results[0].record['seeds'])} → {step.seeds}",
            "Estimated cost": duration(step.seconds),
            "Command": f"<code>{step.command}</code>",
        }
        for step in steps(found)
    ]
