"""Seeds that are run apart give the result of a run with all of them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from docs.build_results import main
from docs.published import add, publish
from docs.replicates import join, parts, with_seeds
from docs.results_page import page
from docs.results_words import machine, when
from tangentlab import TangentError
from tangentlab.experiments import Result, reproduce
from tangentlab.experiments._record import load

NAME = "samarin2022/fig6"
SPEC = {"samples": 12, "widths": (0.5, 1.0), "sets": ("digits",)}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The seeds 0, 1 and 2 in three run folders, and all of them in another."""
    out = tmp_path_factory.mktemp("runs")
    for folder, seed, seeds in (("0", 0, 1), ("1", 1, 1), ("2", 2, 1), ("all", 0, 3)):
        reproduce(NAME, out=out / folder, overrides={**SPEC, "seed": seed, "seeds": seeds}, progress=False)
    return out


def found(runs: Path, name: str) -> Result:
    result = load(runs / name / NAME)
    assert result is not None
    return result


def test_joined_seeds_are_judged_as_a_run_with_all(runs: Path, tmp_path: Path) -> None:
    assert publish([runs / "all"], tmp_path / "whole", presets=("tiny",)) == [NAME]
    assert publish([runs / "0"], tmp_path / "joined", presets=("tiny",)) == [NAME]
    assert main(["--add", str(runs / "1"), str(runs / "2"), "--tiny", "--folder", str(tmp_path / "joined")]) == 0
    whole, joined = load(tmp_path / "whole" / NAME), load(tmp_path / "joined" / NAME)
    assert whole is not None
    assert joined is not None
    order = ["seed", "width", "index"]
    tables = [result.table.sort_values(order).reset_index(drop=True) for result in (whole, joined)]
    assert len(tables[0]) == joined.record["rows"]
    assert tables[0].equals(tables[1])
    for name in ("claims", "seeds", "spec", "rows"):
        assert joined.record[name] == whole.record[name], name
    assert [part["seeds"] for part in parts(joined.record)] == [[0], [1], [2]]
    assert parts(whole.record)[0]["seeds"] == [0, 1, 2]
    assert joined.record["command"].endswith(" --seeds 3 --data-dir DIR --out RUNS")
    assert "- **Seeds:** 3" in page(tmp_path / "joined")
    # What is there is not added again.
    assert add([runs / "0", runs / "1", runs / "2"], tmp_path / "joined", presets=("tiny",)) == []


def test_one_seed_after_the_other(runs: Path, tmp_path: Path) -> None:
    for seed in "012":
        assert add([runs / seed], tmp_path, presets=("tiny",)) == [NAME]
    record = json.loads((tmp_path / NAME / "record.json").read_text())
    assert record["seeds"] == [0, 1, 2]
    assert [part["seeds"] for part in record["parts"]] == [[0], [1], [2]]
    assert record["work_seconds"] == pytest.approx(sum(part["work_seconds"] for part in record["parts"]))


def _spec(record: dict[str, Any]) -> None:
    record["spec"]["samples"] = 13


def _data(record: dict[str, Any]) -> None:
    record["data"]["digits"]["files"] = [{"name": "digits", "md5": "0"}]


def _choice(record: dict[str, Any]) -> None:
    record["deviations"] = ["The solver adds a ridge."]
    record["finished"] = "2020-01-01T00:00:00+00:00"


@pytest.mark.parametrize(
    ("change", "message"),
    [(_spec, "different samples"), (_data, "different data files"), (_choice, "different choices: 'The solver adds")],
)
def test_other_results_are_not_replicates(runs: Path, change: Callable[[dict[str, Any]], None], message: str) -> None:
    one, two = found(runs, "0"), found(runs, "1")
    change(one.record)
    with pytest.raises(TangentError, match=message):
        join([two, one])


def test_seeds_are_consecutive(runs: Path) -> None:
    with pytest.raises(TangentError, match="are 0, 2"):
        join([found(runs, "0"), found(runs, "2")])
    with pytest.raises(TangentError, match="are 0, 1, 2, 1"):
        join([found(runs, "1"), found(runs, "all")])


def test_words(runs: Path) -> None:
    record, _ = join([found(runs, name) for name in "012"])
    assert when(record) == ""
    assert "; " not in machine(record)
    record["parts"][0]["finished"] = "2026-01-02T03:04:05+00:00"
    record["parts"][0]["hardware"] = {**record["parts"][0]["hardware"], "processor": "Another"}
    for part in record["parts"][1:]:
        part["finished"] = "2026-01-03T03:04:05+00:00"
    assert when(record) == "seed 0 on January 2, 2026; seeds 1 and 2 on January 3, 2026"
    assert machine(record).startswith("Another, ")
    assert "; " in machine(record)


@pytest.mark.parametrize(
    ("command", "seeds", "expected"),
    [
        (
            "tangentlab reproduce a --set seed=1 --data-dir DIR",
            [0, 1],
            "tangentlab reproduce a --seeds 2 --data-dir DIR",
        ),
        ("tangentlab reproduce a --seeds 3 --set x=1", [0, 1], "tangentlab reproduce a --set x=1 --seeds 2"),
        ("tangentlab reproduce a --seeds=3 --seed 4", [4, 5], "tangentlab reproduce a --seed 4 --seeds 2"),
        ("tangentlab reproduce a --set seeds=3", [0], "tangentlab reproduce a --seeds 1"),
    ],
)
def test_command(command: str, seeds: list[int], expected: str) -> None:
    assert with_seeds(command, seeds) == expected
