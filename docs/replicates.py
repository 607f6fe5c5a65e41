"""Results of one experiment with different seeds, joined to one: seeds that are run later add to earlier ones."""

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from tangentlab import TangentError
from tangentlab.experiments import Result
from tangentlab.experiments._judge import spec_of_record

_SUMMED = ("seconds", "work_seconds")
_OF_A_PART = ("seeds", "finished", "versions", "hardware", *_SUMMED)


def join(found: Sequence[Result]) -> tuple[dict[str, Any], bytes]:
    """Return record and ``table.csv`` of a result that has the seeds of all given ones, in ascending order.

    The record is that of the last one, with the command of the first for all seeds. ``parts`` says which seeds were
    run when, where and with which versions.

    Args:
        found: Finished results of one name, as they are on disk.

    Raises:
        TangentError: If they differ in more than their seeds, or a seed occurs twice or is missing in between.
    """
    found = sorted(found, key=lambda result: result.record["seeds"])
    first = found[0]
    for result in found[1:]:
        if differs := _difference(first, result):
            raise TangentError(
                f"The results of {first.name} with the seeds {_listed(first)} and {_listed(result)} have {differs}.",
                why="Replicates differ in their seeds alone.",
                remedy="Run all seeds of the result with one version, and publish it without --add.",
            )
    seeds = [seed for result in found for seed in result.record["seeds"]]
    if seeds != list(range(seeds[0], seeds[0] + len(seeds))):
        raise TangentError(
            f"The seeds of {first.name} are {', '.join(map(str, seeds))}.",
            why="A result has consecutive seeds, each once.",
            remedy="Run those that are missing, and leave out those that are there twice.",
        )
    record = {**found[-1].record, "seeds": seeds, "rows": sum(result.record["rows"] for result in found)}
    record["spec"] = {**record["spec"], "seed": seeds[0], "seeds": len(seeds)}
    record["command"] = with_seeds(first.record["command"], seeds)
    record |= {name: round(sum(_time(result.record, name) for result in found), 3) for name in _SUMMED}
    record["work"] = {name: sum(result.record["work"][name] for result in found) for name in ("computed", "reused")}
    record["parts"] = [part for result in found for part in parts(result.record)]
    return record, _tables(found)


def parts(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the parts of a joined record; the only one of any other."""
    only = {name: record[name] for name in _OF_A_PART if name in record}
    return list(record.get("parts", [only]))


def with_seeds(command: str, seeds: Sequence[int]) -> str:
    """Return a command of ``reproduce`` with these seeds in place of its own."""
    words, kept = shlex.split(command), []
    while words:
        word = words.pop(0)
        name, sign, _ = word.partition("=")
        if name in ("--seed", "--seeds"):
            words = words if sign else words[1:]
        elif word == "--set" and words and words[0].partition("=")[0] in ("seed", "seeds"):
            words.pop(0)
        else:
            kept.append(word)
    place = kept.index("--data-dir") if "--data-dir" in kept else len(kept)
    start = ["--seed", str(seeds[0])] if seeds[0] else []
    return shlex.join([*kept[:place], *start, "--seeds", str(len(seeds)), *kept[place:]])


def _difference(one: Result, two: Result) -> str:
    """Return what two results differ in, other than their seeds; empty for nothing."""
    if one.name != two.name:
        return "different names"
    specs = [spec_of_record(result.record).describe() | {"seed": 0, "seeds": 0} for result in (one, two)]
    if fields := [name for name in specs[0] if specs[0][name] != specs[1][name]]:
        return f"different {', '.join(fields)}"
    if _files(one.record) != _files(two.record):
        return "different data files"
    if "seed" not in one.table or list(one.table) != list(two.table):
        return "different columns, or none for the seed"
    # A choice that is no longer listed was made differently since. One that was added may only describe what was done.
    older, newer = sorted((one.record, two.record), key=lambda record: record["finished"])
    if changed := [text for text in older["deviations"] if text not in newer["deviations"]]:
        return f"different choices: {' '.join(changed)!r} is not listed with the newer one"
    return ""


def _files(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: entry.get("files") for name, entry in record["data"].items()}


def _time(record: Mapping[str, Any], name: str) -> float:
    return float(record.get(name, record["seconds"]))


def _listed(result: Result) -> str:
    return ", ".join(map(str, result.record["seeds"]))


def _tables(found: Sequence[Result]) -> bytes:
    """Return the lines of all tables below one head: the numbers as they were written."""
    lines = [(result.folder / "table.csv").read_bytes().splitlines(keepends=True) for result in found]
    return b"".join([lines[0][0], *(line for table in lines for line in table[1:])])


def new_seeds(published: Result | None, runs: Sequence[Result]) -> list[Result]:
    """Return the runs whose seeds are not all published."""
    there = set() if published is None else set(published.record["seeds"])
    return [run for run in runs if not set(run.record["seeds"]) <= there]
