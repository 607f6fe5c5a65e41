"""``tangentlab reproduce`` and ``tangentlab report`` as a user calls them."""

import json
from pathlib import Path

import pytest

from tests.conftest import Program
from tests.test_cli import call


def test_list() -> None:
    result = call("reproduce", "list", "--json")
    rows = json.loads(result.stdout)
    assert len(rows) == 40
    assert rows[0]["id"] == "ortiz2021/fig2"
    assert all(row["cost"] for row in rows)


def test_one_figure_and_its_page(tmp_path: Path) -> None:
    runs = str(tmp_path / "runs")
    options = ("--out", runs, "--set", "samples=12", "--set", "widths=0.5,1", "--seed", "3")
    result = call("reproduce", "samarin2022/fig6", *options, "-v")
    assert result.returncode == 0, result.stderr
    assert "Tested: other data." in result.stdout
    assert "The effective rank grows with width" in result.stdout
    record = json.loads((tmp_path / "runs" / "samarin2022" / "fig6" / "record.json").read_text())
    assert record["spec"]["samples"] == 12
    assert record["seeds"] == [3]
    assert "--set samples=12" in record["command"]
    again = call("reproduce", "samarin2022/fig6", *options)
    assert "finished before" in again.stdout
    assert call("reproduce", "samarin2022/fig6", *options, "-q").stdout == ""
    page = call("report", runs, "--out", str(tmp_path / "page.html"))
    assert page.returncode == 0, page.stderr
    assert (tmp_path / "page.html").stat().st_size > 5e5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("reproduce", "ortiz2021/fig22"), "Did you mean"),
        (("reproduce", "ortiz2022"), "Did you mean 'ortiz2021'"),
        (("reproduce", "ortiz2021/fig2", "--preset", "huge"), "no preset 'huge'"),
        (("reproduce", "ortiz2021/fig2", "--set", "epoch=3"), "Did you mean 'epochs'"),
        (("reproduce", "ortiz2021/fig2", "--set", "epochs=three"), "not a whole number"),
        (("reproduce", "ortiz2021/fig2", "--set", "epochs"), "sets nothing"),
        (("reproduce", "ortiz2021/fig2", "--set", "models=lenet5"), "There is no model"),
        (("reproduce", "ortiz2021/fig2", "--out", "/proc/tangentlab"), "cannot be written to"),
        (("reproduce", "ortiz2021/fig2", "--set", "n_train=5000"), "exceeds the 1,437 images"),
        (("reproduce", "ortiz2021/fig2", "--variant", "My Run"), "For example 'my-run'"),
        (("report", "/nowhere"), "is not a folder"),
    ],
)
def test_refusals(arguments: tuple[str, ...], message: str, tmp_path: Path, program: Program) -> None:
    place = () if "--out" in arguments or arguments[0] == "report" else ("--out", str(tmp_path))
    code, text = program(*arguments, *place)
    assert code == 1
    assert message in text


def test_missing_data(tmp_path: Path) -> None:
    result = call(
        "reproduce",
        "samarin2022/fig5",
        "--preset",
        "paper",
        "--out",
        str(tmp_path / "runs"),
        "--data-dir",
        str(tmp_path),
    )
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "Error" in result.stderr


def test_no_results(tmp_path: Path) -> None:
    result = call("report", str(tmp_path), "--out", str(tmp_path / "page.html"))
    assert result.returncode == 1
    assert "no finished results" in " ".join(result.stderr.split())
    assert not (tmp_path / "page.html").exists()
