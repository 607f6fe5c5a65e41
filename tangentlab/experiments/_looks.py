"""Seeds that were added later: every test of a claim with fewer seeds was one more chance to decide it.

The p-values of a claim that is tested for the k-th time are multiplied by k: see "Seeds added later" in
docs/verdicts.md. How often a claim was tested follows from the parts of the record and from the table.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pandas as pd

from tangentlab.experiments._verdicts import Examined, is_tested

Claims = Callable[[pd.DataFrame, Any], list[Examined]]


def earlier_seeds(record: Mapping[str, Any]) -> list[list[int]]:
    """Return the seeds that were there each time that further ones were begun; empty for a result of one part.

    Parts that were run at the same time are one step: none of them was begun in view of the others.
    """
    parts = sorted(record.get("parts", []), key=_finished)
    there = {
        tuple(sorted(seed for part in parts[:i] if _finished(part) <= _begun(later) for seed in part["seeds"]))
        for i, later in enumerate(parts)
    }
    return sorted(map(list, there - {()}), key=len)


def _finished(part: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(part["finished"])


def _begun(part: Mapping[str, Any]) -> datetime:
    """Return when a part was begun at the latest: its work may have been shared by all cores, or done before."""
    seconds = max(part["seconds"], part.get("work_seconds", 0) / part["hardware"]["cores"])
    return _finished(part) + timedelta(seconds=1 - seconds)  # the record has whole seconds, rounded down


def retested(claims: Claims, earlier: Sequence[Sequence[int]]) -> Claims:
    """Return an experiment's function ``claims`` for a result that had these seeds before."""

    def again(table: pd.DataFrame, spec: Any) -> list[Examined]:
        tables = [table[table["seed"].isin(seeds)].reset_index(drop=True) for seeds in earlier]
        return count_tests(claims(table, spec), [claims(part, spec) for part in tables])

    return again


def count_tests(now: Sequence[Examined], before: Iterable[Sequence[Examined]]) -> list[Examined]:
    """Return claims with the number of their tests, and with p-values that are multiplied by it.

    Args:
        now: The claims with all seeds.
        before: The same claims, by their statements, each time that there were fewer seeds. A claim that no outcome
            could have decided, or whose condition was not met, was not tested.
    """
    tests = Counter(claim.statement for claims in before for claim in claims if is_tested(claim))
    return [_tested(claim, tests[claim.statement] + 1) for claim in now]


def _tested(claim: Examined, times: int) -> Examined:
    found = claim.evidence
    p = {name: min(1.0, times * getattr(found, name)) for name in ("holds", "fails", "least")}
    return replace(claim, evidence=replace(found, **p, tests=times))
