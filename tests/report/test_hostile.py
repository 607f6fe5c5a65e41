"""Untrusted records: every field is text on the page, and an invalid record is refused by name."""

import copy
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tangentlab import TangentError
from tangentlab.report import build
from tests.report.test_page import read

NAME = "samarin2022/fig7"
SCRIPT = "</script></title><script>window.hit=1</script><img src=x onerror=window.hit=1>\"'><b>"


@pytest.fixture
def folder(runs: Path, tmp_path: Path) -> Path:
    """A result to spoil."""
    target = tmp_path / "runs" / NAME
    shutil.copytree(runs / NAME, target)
    return target


def rewrite(folder: Path, change: Any) -> None:
    path = folder / "record.json"
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def strings(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all strings, and of the keys of dictionaries as (..., "key of")."""
    if isinstance(value, str):
        yield path
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from strings(part, (*path, key))
        yield (*path, "key of")
    elif isinstance(value, list):
        for i, part in enumerate(value):
            yield from strings(part, (*path, i))


def put(record: Any, path: tuple[Any, ...], text: str) -> Any:
    spoiled = copy.deepcopy(record)
    holder = spoiled
    for step in path[:-1]:
        holder = holder[step]
    holder[text if path[-1] == "key of" else path[-1]] = text
    return spoiled


def test_no_string_of_a_record_becomes_markup(folder: Path, tmp_path: Path) -> None:
    """Every string and every key in turn holds markup: it is shown as text, or the record is refused."""
    record = json.loads((folder / "record.json").read_text())
    places = list(strings(record))
    assert {("id",), ("variant",), ("title",), ("claims", 0, "statement"), ("spec", "key of")} <= set(places)
    shown = refused = 0
    for path in places:
        (folder / "record.json").write_text(json.dumps(put(record, path, SCRIPT)))
        try:
            page = build(tmp_path / "runs", tmp_path / "page.html")
        except TangentError as error:
            refused += str(folder) in str(error)
            continue
        reader = read(page)
        assert sum(tag == "script" for tag, _ in reader.tags) == 2, path
        assert not [tag for tag, _ in reader.tags if tag == "img"], path
        assert not [name for _, attributes in reader.tags for name in attributes if name.startswith("on")], path
        assert reader.open == [], path
        shown += 1
    assert shown + refused == len(places)
    assert shown > 10
    assert refused >= 2  # id and variant are addresses and folders, not free text


def test_no_cell_of_a_table_and_no_text_of_a_figure_becomes_markup(folder: Path, tmp_path: Path) -> None:
    figure = json.loads((folder / "figure.json").read_text())
    for panel in figure["concat"]:
        panel["title"] = {"text": SCRIPT}
    (folder / "figure.json").write_text(json.dumps(figure))
    head, _, rows = (folder / "table.csv").read_text().partition("\n")
    quoted = '"' + SCRIPT.replace('"', '""') + '"'
    (folder / "table.csv").write_text(f"{head},{quoted}\n" + "".join(f"{row},{quoted}\n" for row in rows.split()))
    reader = read(build(tmp_path / "runs", tmp_path / "page.html"))
    assert sum(tag == "script" for tag, _ in reader.tags) == 2
    assert not [tag for tag, _ in reader.tags if tag == "img"]


MALFORMED: dict[str, Any] = {
    "a list": lambda record: [record],
    "no id": lambda record: {k: v for k, v in record.items() if k != "id"},
    "id of another kind": lambda record: record | {"id": 7},
    "id that climbs": lambda record: record | {"id": "../../evil"},
    "variant of another kind": lambda record: record | {"variant": ["x"]},
    "variant that is no word": lambda record: record | {"variant": "a/b"},
    "claims are none": lambda record: record | {"claims": None},
    "claims are text": lambda record: record | {"claims": ["holds"]},
    "unknown verdict": lambda record: record | {"claims": [record["claims"][0] | {"verdict": "splendid"}]},
    "value is text": lambda record: record | {"claims": [record["claims"][0] | {"value": "<b>"}]},
    "low is text": lambda record: record | {"claims": [record["claims"][0] | {"low": "<b>"}]},
    "scope is unknown": lambda record: record | {"claims": [record["claims"][0] | {"scope": "everywhere"}]},
    "units are a number": lambda record: record | {"claims": [record["claims"][0] | {"units": 3}]},
    "claim without threshold": lambda record: (
        record | {"claims": [{k: v for k, v in record["claims"][0].items() if k != "threshold"}]}
    ),
    "seconds are text": lambda record: record | {"seconds": "long"},
    "rows are text": lambda record: record | {"rows": "many"},
    "rows are others": lambda record: record | {"rows": record["rows"] + 1},
    "preset is a number": lambda record: record | {"preset": 1},
    "hardware is missing": lambda record: {k: v for k, v in record.items() if k != "hardware"},
    "hardware is text": lambda record: record | {"hardware": "a machine"},
    "gpus are a number": lambda record: record | {"hardware": record["hardware"] | {"gpus": 3}},
    "work is a list": lambda record: record | {"work": []},
    "data is a list": lambda record: record | {"data": ["mnist"]},
    "data without source": lambda record: record | {"data": {"mnist": {"original": True}}},
    "data without original": lambda record: record | {"data": {"mnist": {"source": "MNIST"}}},
    "original is a number": lambda record: record | {"data": {"mnist": {"source": "MNIST", "original": 0}}},
    "seeds are a number": lambda record: record | {"seeds": 3},
    "versions are a list": lambda record: record | {"versions": ["1"]},
    "spec is a list": lambda record: record | {"spec": [1]},
    "deviations hold numbers": lambda record: record | {"deviations": [1]},
    "a lone surrogate": lambda record: record | {"title": "\ud800"},
    "another format": lambda record: record | {"format": 3},
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_malformed_records_are_refused(kind: str, folder: Path, tmp_path: Path) -> None:
    path = folder / "record.json"
    path.write_text(json.dumps(MALFORMED[kind](json.loads(path.read_text()))))
    refused(folder, tmp_path)


CONTENTS: dict[str, bytes] = {
    "empty": b"",
    "no JSON": b"{",
    "not UTF-8": b'{"format": "\xff"}',
    "NUL": b"\0" * 100,
    "deep": b"[" * 100_000,
    "deep and closed": b"[" * 5_000 + b"]" * 5_000,
    "NaN": b'{"concat": [NaN], "format": NaN}',
    "a number": b"3",
    "null": b"null",
    "key twice": b'{"concat": [], "concat": [], "format": 1, "format": 1}',
    "a number of a million digits": b"1" * 1_000_000,
}


@pytest.mark.parametrize("file", ["record.json", "figure.json"])
@pytest.mark.parametrize("kind", CONTENTS)
def test_damaged_json_is_refused(kind: str, file: str, folder: Path, tmp_path: Path) -> None:
    (folder / file).write_bytes(CONTENTS[kind])
    refused(folder, tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe\x00",
        b"a,b\n1\n1,2,3,4\n",
        b'a,b\n"unclosed\n',
        b"x" * 200_000,
        b"\0\0\0\n",
        b"a\n" * 3,
    ],
)
def test_damaged_tables_are_refused(content: bytes, folder: Path, tmp_path: Path) -> None:
    (folder / "table.csv").write_bytes(content)
    refused(folder, tmp_path)


def test_a_table_with_rows_cut_off_is_refused(folder: Path, tmp_path: Path) -> None:
    lines = (folder / "table.csv").read_text().splitlines(keepends=True)
    (folder / "table.csv").write_text("".join(lines[:-1]))
    refused(folder, tmp_path)


@pytest.mark.parametrize("panels", [[], {}, [1], "text", [[]], None])
def test_figures_that_are_none(panels: Any, folder: Path, tmp_path: Path) -> None:
    (folder / "figure.json").write_text(json.dumps({"concat": panels}))
    refused(folder, tmp_path)


@pytest.mark.parametrize("file", ["record.json", "table.csv", "figure.json"])
def test_what_is_no_file_is_refused(file: str, folder: Path, tmp_path: Path) -> None:
    (folder / file).unlink()
    (folder / file).mkdir()
    refused(folder, tmp_path)
    (folder / file).rmdir()
    os.mkfifo(folder / file)  # opening it would wait for a writer for ever
    refused(folder, tmp_path)


@pytest.mark.parametrize("file", ["record.json", "table.csv", "figure.json"])
def test_files_too_large_are_refused_unread(file: str, folder: Path, tmp_path: Path) -> None:
    with (folder / file).open("r+b") as opened:
        opened.truncate(2**40)  # sparse: no bytes on the disk
    refused(folder, tmp_path, "1,099,511,627,776 bytes")


def refused(folder: Path, tmp_path: Path, fragment: str = "cannot be read") -> None:
    """By the library with the folder's name, by the command line without a traceback; the old page stays."""
    from tangentlab.cli import app

    out = tmp_path / "page.html"
    out.write_text("the page before")
    with pytest.raises(TangentError) as caught:
        build(tmp_path / "runs", out)
    assert str(folder) in str(caught.value)
    assert fragment in str(caught.value)
    assert caught.value.remedy
    assert len(str(caught.value)) < 1000
    assert isinstance(
        CliRunner().invoke(app, ["report", str(tmp_path / "runs"), "--out", str(out)]).exception, TangentError
    )
    assert out.read_text() == "the page before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "runs"]


def test_the_policy_allows_no_inline_code_or_style_and_no_eval(page: Path) -> None:
    text = page.read_text()
    (policy,) = [a["content"] for tag, a in read(page).tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert "unsafe" not in policy
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert re.fullmatch(r"'sha256-[A-Za-z0-9+/]{43}='", rules["script-src"])
    assert re.fullmatch(r"'sha256-[A-Za-z0-9+/]{43}='", rules["style-src"])
    assert "style=" not in re.sub(r"<script.*?</script>", "", text, flags=re.S)
    assert text.index("Content-Security-Policy") < text.index("<style")


@pytest.mark.parametrize("identity", ["data/x", "main/x", "all/claims", "samarin2022/fig7-title"])
def test_an_address_of_the_page_is_not_taken(identity: str, folder: Path, tmp_path: Path) -> None:
    """A section with the id "data" would stand before the script of that id."""
    other = tmp_path / "runs" / "other"
    shutil.copytree(folder, other)
    rewrite(other, lambda record: record.update(id=identity))
    out = tmp_path / "page.html"
    with pytest.raises(TangentError, match="cannot be read into the page"):
        build(tmp_path / "runs", out)
    assert not out.exists()


def test_two_names_with_one_address(folder: Path, tmp_path: Path) -> None:
    for name, change in (("a", {"id": "samarin2022/fig7-x"}), ("b", {"variant": "x"})):
        other = tmp_path / "runs" / name
        shutil.copytree(folder, other)
        rewrite(other, lambda record, change=change: record.update(change))
    with pytest.raises(TangentError, match="samarin2022/fig7"):
        build(tmp_path / "runs", tmp_path / "page.html")
