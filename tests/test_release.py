"""What a release is checked with, the extras, and the pages about them."""

import importlib.util
import re
from pathlib import Path

import pytest

from tangentlab import TangentError, _extras

pytest.importorskip("packaging", reason="packaging is not installed: pip install '.[dev]'")

from packaging.requirements import Requirement

from release import bounds
from release.__main__ import cases

ROOT = Path(__file__).resolve().parents[1]


def test_every_dependency_for_users_has_a_lower_bound() -> None:
    for requirement in bounds.declared(*bounds.FEATURES):
        assert re.fullmatch(r"[\d.]+", bounds.lower_bound(requirement))
    with pytest.raises(ValueError, match="one lower bound"):
        bounds.lower_bound(Requirement("numpy"))


def test_lowest_versions() -> None:
    found = dict(line.split("==") for line in bounds.lowest("dask", "slurm"))
    assert {"numpy", "zarr", "dask", "distributed", "dask-jobqueue"} <= found.keys()
    assert not {"torch", "tangentlab", "vl-convert-python"} & found.keys()


def test_every_extra_is_tried() -> None:
    extras = bounds.project()["optional-dependencies"].keys()
    assert extras - {"docs", "dev", "soak"} == set(bounds.FEATURES)
    tried = cases("torch==2.13.0")
    assert {case.kind for case in tried} == {"whl", "tar.gz"}
    assert all("torch==2.13.0" in case.constraints for case in tried)
    assert any(case.extras == bounds.FEATURES for case in tried)


@pytest.mark.parametrize("page", ["dependencies.md"])
def test_the_page_names_every_dependency(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    for requirement in bounds.declared(*bounds.FEATURES):
        assert f"| {requirement.name}" in text, requirement.name
    for extra in bounds.FEATURES:
        assert f"`{extra}`" in text, extra


def test_extras_are_named_where_they_are_missing() -> None:
    with pytest.raises(TangentError, match=r"Run pip install 'tangentlab\[dask\]', or not\.") as refusal:
        _extras.require("no_such_module", "Something", "dask", "It is needed.", ", or not")
    assert refusal.value.what == "Something is not installed."


def test_extras_in_messages_exist() -> None:
    extras = bounds.project()["optional-dependencies"].keys()
    seen = set()
    for path in (ROOT / "tangentlab").rglob("*.py"):
        text = path.read_text()
        named = re.findall(r"tangentlab\[(\w+)\]", text)
        named += re.findall(r'require\(\s*"[^"]*",\s*"[^"]*",\s*"(\w+)"', text)
        named += re.findall(r'missing\(\s*"[^"]*",\s*"(\w+)"', text)
        assert set(named) <= set(extras), path
        seen |= set(named)
    assert seen >= set(bounds.FEATURES) - {"lightning"}


def test_version_and_changelog_agree() -> None:
    assert importlib.util.find_spec("tangentlab") is not None
    version = re.search(r'"(.+)"', (ROOT / "tangentlab" / "_version.py").read_text())
    assert version is not None
    assert re.search(rf"^## {re.escape(version[1])} \(\d{{4}}-\d\d-\d\d\)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
