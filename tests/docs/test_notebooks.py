"""Notebooks run from start to end, and show what they print and draw."""

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: pip install '.[dev]'")
pytest.importorskip("nbclient", reason="nbclient is not installed: pip install '.[dev]'")

from docs.build_examples import words  # noqa: E402
from docs.build_notebooks import execute, installs, notebooks, page, pictures, texts  # noqa: E402


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_notebook(path: Path) -> None:
    """Words of the outputs must be the same; numbers may round differently on another machine."""
    kept, fresh = nbformat.read(path, as_version=4), execute(path)
    again = f"run: python -m docs.build_notebooks {path.stem}"
    assert [words(text) for text in texts(fresh)] == [words(text) for text in texts(kept)], again
    assert len(pictures(fresh)) == len(pictures(kept)), again
    assert "widgets" not in {**fresh.metadata, **kept.metadata}, again


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_form(path: Path) -> None:
    """Small, with outputs, ready for a hosted notebook, and a page of the site."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert path.stat().st_size < 500_000
    assert "Time: about" in notebook.cells[0].source
    assert [installs(cell) for cell in notebook.cells].index(True) == 1
    assert "%pip install" in notebook.cells[1].source
    assert pictures(notebook)
    text, drawn = page(path)
    assert text.startswith("# ")
    assert len(drawn) == len(pictures(notebook))
    assert all(f"]({name})" in text for name in drawn)
