"""The page as a file: one, whole, and with everything in it."""

import json
import re
import shutil
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tangentlab import TangentError
from tangentlab.report import build
from tests.report.conftest import NAMES


class Reader(HTMLParser):
    """Collects tags, ids and texts, and checks that tags are closed in order."""

    VOID = ("meta", "link", "input", "br", "i")

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, Any]]] = []
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data


def read(page: Path) -> Reader:
    reader = Reader()
    reader.feed(page.read_text())
    return reader


def test_is_well_formed_and_complete(page: Path, runs: Path) -> None:
    reader = read(page)
    assert reader.open == []
    identities = [attributes["id"] for _, attributes in reader.tags if "id" in attributes]
    assert len(identities) == len(set(identities))
    for name in NAMES:
        assert name.replace("/", "-") in identities
        record = json.loads((runs / name / "record.json").read_text())
        assert record["command"] in reader.text
        for claim in record["claims"]:
            assert reader.text.count(claim["statement"]) == 2  # in the summary and with its figure


def test_asks_for_nothing_outside(page: Path) -> None:
    reader = read(page)
    assert sum(tag == "script" for tag, _ in reader.tags) == 2
    for _, attributes in reader.tags:
        for name in ("src", "href"):
            assert attributes.get(name, "#").startswith(("#", "data:"))
    style = re.search(r"<style>(.*?)</style>", page.read_text(), re.S)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]


def test_is_accessible_where_markup_can_tell(page: Path) -> None:
    reader = read(page)
    assert ("html", {"lang": "en"}) in reader.tags
    for tag, attributes in reader.tags:
        if tag == "th":
            assert attributes["scope"] == "col"
        if attributes.get("role") in ("img", "region"):
            assert attributes["aria-label"]
    levels = [int(tag[1]) for tag, _ in reader.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))


def test_text_is_escaped(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "samarin2022" / "fig7"
    folder.mkdir(parents=True)
    for file in (runs / "samarin2022" / "fig7").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    record = json.loads((folder / "record.json").read_text())
    record["title"] = "</script><script>alert(1)</script>"
    (folder / "record.json").write_text(json.dumps(record))
    table = (folder / "table.csv").read_text().replace("digits", "</script><!-- <b>")
    (folder / "table.csv").write_text(table)
    reader = read(build(tmp_path / "runs", tmp_path / "page.html"))
    assert sum(tag == "script" for tag, _ in reader.tags) == 2
    assert "alert(1)" in reader.text


@pytest.mark.parametrize("file", ["record.json", "table.csv", "figure.json"])
def test_a_damaged_result_is_named(file: str, runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "ortiz2021" / "fig9"
    shutil.copytree(runs / "ortiz2021" / "fig9", folder)
    (folder / file).unlink()
    (folder / "record.json").touch()  # empty, if it was the one
    with pytest.raises(TangentError, match=r"fig9.* cannot be read"):
        build(tmp_path, tmp_path / "page.html")
