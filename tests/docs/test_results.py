"""The published results: the page is what its generator makes of them, and every number on it is a record's."""

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from docs import published
from docs.build_results import main
from docs.published import RESULTS, check, clean, command, notes, publish, remaining, results
from docs.results_page import anchor, page
from docs.results_words import duration, scale, wall_clock
from tangentlab import TangentError
from tangentlab.experiments import Result, Verdict, available, reproduce
from tangentlab.experiments._judge import judge
from tests.docs.test_commands import parse

CELL = re.compile(r'<td data-label="Ours" data-claim="([^"#]+)#(\d+)">([^<]*)</td>')
FIG6 = {"samples": 12, "widths": (0.5, 1.0), "sets": ("digits",)}
TABLE1 = {"models": ("mlp",), "epochs": 2, "checkpoints": (0, 2), "n_train": 64, "samples": 32}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three results as a user's runs, two of one id, with paths of a machine in their records."""
    out = tmp_path_factory.mktemp("runs")
    typed = f"tangentlab reproduce X --preset tiny --data-dir /tmp/data --out={out} -v --workers 2"
    for name, variant, overrides in (
        ("samarin2022/fig6", "", FIG6),
        ("ortiz2021/table1", "", TABLE1),
        ("ortiz2021/table1", "three-seeds", {**TABLE1, "seeds": 3}),
    ):
        told = typed.replace("X", name) + (f" --variant {variant}" if variant else "")
        done = reproduce(name, out=out, overrides=overrides, variant=variant, progress=False, command=told)
        record = json.loads((done.folder / "record.json").read_text())
        record["data"]["digits"]["source"] = "Digits in /home/somebody/data/digits"
        (done.folder / "record.json").write_text(json.dumps(record))
    return out


@pytest.fixture(scope="module")
def folder(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, published."""
    target = tmp_path_factory.mktemp("docs") / "results"
    assert main([str(runs), "--tiny", "--folder", str(target)]) == 0
    return target


def cells(folder: Path, text: str) -> list[tuple[dict[str, Any], str]]:
    """Every number of ours on the page, with the claim of the record that it names."""
    found = []
    for name, index, shown in CELL.findall(text):
        record = json.loads((folder / name / "record.json").read_text())
        found.append((record["claims"][int(index)], shown))
    return found


def check_numbers(folder: Path, text: str) -> None:
    """Each is the record's to the digits shown, each difference is of the two beside it, and each claim is there."""
    for claim, shown in cells(folder, text):
        if claim["value"] is None:
            assert shown == "–"
            continue
        number = shown.split("\N{NO-BREAK SPACE}")[0].replace("−", "-")
        assert float(number) == pytest.approx(claim["value"], rel=5e-4, abs=0.005 if claim["reference"] else 0)
    shown = {(name, int(i)) for name, i, _ in CELL.findall(text)}
    assert shown == {(r.name, i) for r in results(folder) for i in range(len(r.record["claims"]))}
    row = r'<td[^>]*>([\d.]+)[^<]*</td><td data-label="Ours"[^>]*>([−\d.]+)[^<]*</td><td[^>]*>([−+][\d.]+)</td>'
    for paper, ours, difference in re.findall(row, text):
        signed = [float(number.replace("−", "-")) for number in (paper, ours, difference)]
        assert signed[1] - signed[0] == pytest.approx(signed[2], abs=0.011)


def check_result(result: Result) -> None:
    """The published claims are what this version says of the published table."""
    again = json.loads(json.dumps([claim.as_dict() for claim in judge(result.record, result.table)]))
    for now, then in zip(again, result.record["claims"], strict=True):
        assert now.keys() == then.keys()
        for name, value in now.items():
            same = pytest.approx(value, rel=1e-6, abs=1e-12) if isinstance(value, float) else value
            assert then[name] == same, name
    assert len(result.table) == result.record["rows"]
    assert (result.folder / "figure.png").read_bytes()[:4] == b"\x89PNG"


def test_the_page_is_what_the_generator_makes() -> None:
    assert (RESULTS / "index.md").read_text() == page(), "run: python -m docs.build_results"


def test_published_numbers_are_the_records() -> None:
    check_numbers(RESULTS, page())
    for result in results():
        check_result(result)
        assert parse(result.record["command"].split()[1:]) == ["reproduce"]


def test_published_files() -> None:
    check()
    for item in remaining():
        assert parse(item.command.split()[1:]) == ["reproduce"]


def test_generator(folder: Path) -> None:
    text = (folder / "index.md").read_text()
    assert text == page(folder) == page(folder)
    check_numbers(folder, text)
    assert len(cells(folder, text)) >= 4
    for result in results(folder):
        check_result(result)
    assert [result.name for result in results(folder)] == [
        "ortiz2021/table1",
        "ortiz2021/table1.three-seeds",
        "samarin2022/fig6",
    ]
    for part in (
        "### ortiz2021/table1 · three-seeds: ",
        "{#ortiz2021-table1-three-seeds}",
        "The 3 results on this page cover 2 of the 40\nfigures",
        "64 of 50,000 training images",
        "2 epochs (paper: 200)",
        "- **Seeds:** 1 (paper preset: 3)",
        "tangentlab reproduce ortiz2021/table1 --preset tiny --variant three-seeds --data-dir DIR --out RUNS\n",
        "](samarin2022/fig6/table.csv)",
        "Undecided: No outcome of ",
        "**ortiz2021/fig2** Learning eigenfunctions of the kernel. Everything;",
        "tangentlab reproduce ortiz2021/fig2 --preset paper --data-dir DIR --out RUNS",
    ):
        assert part in text
    left = {item.experiment for item in remaining(folder)}
    assert left == {experiment.id for experiment in available()} - {"ortiz2021/table1", "samarin2022/fig6"}
    report = (folder / "report.html").read_text()
    assert all(f'<article id="{name}"' in report for name in ("ortiz2021-table1-three-seeds", "samarin2022-fig6"))


@pytest.mark.parametrize("published_here", [True, False])
def test_the_overview_has_every_result_with_its_verdicts(folder: Path, published_here: bool) -> None:
    place = RESULTS if published_here else folder
    found = results(place)
    table = page(place).split("## All results at a glance")[1].split("\n## ")[0]
    assert re.findall(r'data-label="Result"><a href="#([^"]+)"', table) == [anchor(result) for result in found]
    verdicts = [claim["verdict"] for result in found for claim in result.record["claims"]]
    for verdict, mark in zip(Verdict, "✓✗○", strict=True):
        assert sum(map(int, re.findall(rf">{mark} (\d+)<", table))) == verdicts.count(verdict)


def test_nothing_of_the_machine_is_published(folder: Path, runs: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and path.suffix != ".png":
            assert not published.MACHINE.search(path.read_text()), path
            assert str(runs) not in path.read_text()
    record = json.loads((folder / "samarin2022" / "fig6" / "record.json").read_text())
    assert record["data"]["digits"]["source"] == "Digits in DIR/digits"
    assert {path.suffix for path in folder.rglob("*.*")} >= {".md", ".html", ".json", ".csv", ".png"}
    (folder / "notes.toml").write_text("# in /home/somebody/notes")
    with pytest.raises(TangentError, match="a path of a machine: /home/somebody"):
        check(folder)
    (folder / "notes.toml").unlink()


def test_a_wrong_number_is_noticed(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "results")
    text = (copy / "index.md").read_text()
    name, index, shown = next(cell for cell in CELL.findall(text) if cell[2] != "–")
    other = text.replace(
        f'{name}#{index}">{shown}', f'{name}#{index}">{float(shown.split()[0].replace("−", "-")) + 1:.2f}'
    )
    assert other != text
    with pytest.raises(AssertionError):
        check_numbers(copy, other)
    table = copy / "ortiz2021" / "table1" / "table.csv"
    table.write_text(re.sub(r"(mlp,0,0,)[\d.]+", r"\g<1>0.999", table.read_text()))
    with pytest.raises(AssertionError):
        check_result(next(result for result in results(copy) if result.name == "ortiz2021/table1"))


def test_what_is_published_can_be_judged_again(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "results")
    place = copy / "ortiz2021" / "table1" / "record.json"
    record = json.loads(place.read_text())
    older = [verdict for verdict in Verdict if verdict != record["claims"][0]["verdict"]]  # by an older rule
    record["claims"][0]["verdict"] = older[0]
    place.write_text(json.dumps(record))
    assert len(publish([copy], copy, presets=("tiny",))) == 3
    for path in (*folder.rglob("record.json"), *folder.rglob("table.csv")):
        assert (copy / path.relative_to(folder)).read_bytes() == path.read_bytes()


def test_notes_and_what_remains(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "results")
    (copy / "notes.toml").write_text('["samarin2022/fig6"]\nnotes = ["Because."]\n')
    entry = {
        "experiment": "ortiz2021/table1",
        "missing": "ResNet18.",
        "cost": "a day",
        "command": "tangentlab reproduce ortiz2021/table1 --preset paper",
    }

    def write(**changes: str) -> None:
        lines = [f'{name} = "{value}"' for name, value in {**entry, **changes}.items()]
        (copy / "remaining.toml").write_text("\n".join(["[[remaining]]", *lines]))

    write()
    text = page(copy)
    assert "- Because." in text
    assert "ResNet18. *Estimated cost:* a day." in text
    assert "**ortiz2021/fig2**" in text  # still listed by itself
    write(experiment="ortiz2021/fig99")
    with pytest.raises(TangentError, match="no experiment"):
        remaining(copy)
    write(command="tangentlab reproduce ortiz2021/fig2")
    with pytest.raises(TangentError, match="does not run ortiz2021/table1"):
        remaining(copy)
    write(note="x")
    with pytest.raises(TangentError, match="Give experiment, missing"):
        remaining(copy)
    (copy / "notes.toml").write_text('["samarin2022/fig7"]\nnotes = ["Because."]\n')
    with pytest.raises(TangentError, match="which is not published"):
        notes(copy)


def test_refusals(runs: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "results"
    assert publish([runs], target) == []  # the tiny preset is not worth it
    with pytest.raises(TangentError, match="both results of"):
        publish([runs, runs], target, presets=("tiny",))
    assert main([str(runs), "--tiny", "--folder", str(target), "--limit", "0.1"]) == 1
    assert "more than 0.1" in capsys.readouterr().err
    (target / "weights.pt").touch()
    with pytest.raises(TangentError, match=r"weights\.pt is neither"):
        check(target)


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("tangentlab reproduce a --out /x/y -v", "tangentlab reproduce a --data-dir DIR --out RUNS"),
        ("tangentlab reproduce a --data-dir=/x --again", "tangentlab reproduce a --data-dir DIR --out RUNS"),
        (
            "tangentlab reproduce a --set widths=1,2 --seeds 3 --workers 2 -q --json",
            "tangentlab reproduce a --set widths=1,2 --seeds 3 --data-dir DIR --out RUNS",
        ),
    ],
)
def test_commands_as_a_user_types_them(typed: str, kept: str) -> None:
    assert command(typed) == kept
    assert command(kept) == kept


def test_words(folder: Path) -> None:
    assert [duration(s) for s in (0.51, 12.4, 100, 7200)] == ["0.5 s", "12 s", "1.7 min", "2.0 h"]
    work: dict[str, Any] = {"seconds": 100, "work": {"computed": 0}}
    assert wall_clock(work) == "1.7 min (all units of work were already finished)"
    assert wall_clock({"seconds": 100, "work": {"computed": 3}}) == "1.7 min"
    assert wall_clock({**work, "work_seconds": 7200.0}) == "2.0 h"
    found = results(folder)[0]
    assert scale(found).startswith("The tiny preset: data set digits (paper: CIFAR-10)")
    published_as = {**found.record, "preset": "small", "spec": {"models": ["mlp", "lenet", "resnet18"]}}
    published_as["spec"]["resnet_activation"] = "gelu"
    assert scale(Result(found.id, found.folder, found.table, published_as, False)) == "As published."
    published_as["spec"] = {"models": ["mlp"], "n_train": 10_000}
    assert (
        scale(Result(found.id, found.folder, found.table, published_as, False))
        == "Networks MLP (paper: MLP, LeNet, ResNet18); 10,000 of 50,000 training images."
    )
    assert "program" not in clean(found.record)


def test_the_readme_has_the_numbers_of_verdicts() -> None:
    counts = Counter(claim["verdict"] for result in results() for claim in result.record["claims"])
    text = " ".join((RESULTS.parents[1] / "README.md").read_text().split())
    found = re.search(r"Of (\d+) claims, (\d+) hold, (\d+) do not hold, and (\d+) are undecided", text)
    assert found is not None
    expected = [sum(counts.values()), *(counts[verdict] for verdict in Verdict)]
    assert [int(number) for number in found.groups()] == expected
