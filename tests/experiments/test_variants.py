"""Several results of one id beside each other: names, folders, shared work, and the page."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tangentlab import TangentError
from tangentlab.experiments import reproduce
from tangentlab.experiments._variant import LONGEST, check_variant, result_name
from tangentlab.report import build
from tangentlab.report._collect import collect

NAME = "samarin2022/fig6"
SMALL = {"samples": 12, "widths": (0.5, 1.0), "sets": ("digits",)}


@pytest.mark.parametrize("name", ["", "lenet", "x10", "mlp-3-seeds", "2", "a" * LONGEST])
def test_names(name: str) -> None:
    assert check_variant(name) == name


@pytest.mark.parametrize(
    "name", ["LeNet", "a b", "a/b", "..", ".hidden", "a.b", "-a", "a-", "a--b", "é", "a" * (LONGEST + 1), "a\n"]
)
def test_names_that_are_refused(name: str) -> None:
    with pytest.raises(TangentError, match="cannot name a result") as refused:
        check_variant(name)
    proposed = re.search(r"'(.*)'", str(refused.value.remedy))
    assert proposed is not None
    check_variant(proposed[1])


@given(st.text(max_size=60))
def test_a_name_that_passes_is_one_part_of_a_path(name: str) -> None:
    try:
        check_variant(name)
    except TangentError:
        return
    path = Path("out") / result_name(NAME, name)
    assert path.parent == Path("out/samarin2022")
    assert path.name.lower() == path.name


def test_results_stand_beside_each_other_and_share_their_work(tmp_path: Path) -> None:
    plain = reproduce(NAME, out=tmp_path, overrides=SMALL, progress=False)
    narrow = reproduce(NAME, out=tmp_path, overrides={**SMALL, "widths": (0.5,)}, variant="narrow", progress=False)
    assert plain.folder == tmp_path / "samarin2022" / "fig6"
    assert narrow.folder == tmp_path / "samarin2022" / "fig6.narrow"
    assert (plain.name, narrow.name) == (NAME, f"{NAME}.narrow")
    assert json.loads((narrow.folder / "record.json").read_text())["variant"] == "narrow"
    assert narrow.record["command"].endswith("--set widths=0.5 --set sets=digits --variant narrow")
    assert narrow.record["work"] == {"computed": 0, "reused": 1}
    assert not reproduce(NAME, out=tmp_path, overrides=SMALL, progress=False).computed  # still there

    entries = collect(tmp_path)
    assert [entry.label for entry in entries] == [NAME, f"{NAME} · narrow"]
    text = build(tmp_path, tmp_path / "page.html").read_text()
    for anchor in ("samarin2022-fig6", "samarin2022-fig6-narrow"):
        assert text.count(f'<article id="{anchor}"') == 1
        assert f'href="#{anchor}"' in text
    assert "1 figures, tables and theorems of three papers, run again (2 results)" in text


def test_a_bad_name_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(TangentError, match="cannot name a result"):
        reproduce(NAME, out=tmp_path / "runs", variant="a/b", progress=False)
    assert not (tmp_path / "runs").exists()


def test_two_results_of_one_name_are_refused(tmp_path: Path) -> None:
    for folder in ("first", "second"):
        reproduce(NAME, out=tmp_path / folder, overrides=SMALL, progress=False)
    with pytest.raises(TangentError, match=f"both results of {NAME}"):
        collect(tmp_path)
