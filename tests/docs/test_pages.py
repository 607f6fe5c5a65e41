"""Every code block of the documentation runs and prints what the page shows."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.build_examples import DOCS, Block, Page, pages, words

ROOT = DOCS.parent
PAGES = [page for page in pages() if page.runs]
PEERS = [
    (page, block) for page in PAGES for block in page.blocks() if block.tool not in (None, "cifar10", "mnist", "minilm")
]
NEEDED = {
    "cookbook-language-model-attribution": "transformers",
    "cookbook-text-attribution": "transformers",
    "cookbook-transformers": "transformers",
    "cookbook-watching-the-kernel": "accelerate",
    "cookbook-integrations": "gpytorch",
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_output_is_what_the_page_shows(page: Page, tmp_path: Path) -> None:
    """Words must be the same; numbers may round differently on another machine."""
    if page.name in NEEDED:
        pytest.importorskip(NEEDED[page.name], reason=f"{NEEDED[page.name]} is not installed: pip install '.[dev]'")
    fresh = page.render(tmp_path)
    assert words(fresh) == words(page.text), f"run: python -m docs.build_examples {page.name}"
    shown = sorted(path.name for path in (DOCS / "pictures").glob(f"{page.name}-*.png"))
    drawn = sorted(path.name for path in tmp_path.glob("*.png"))
    assert set(drawn) <= set(shown)
    assert all(f"pictures/{name}" in page.text for name in shown), "a picture is left over"


def test_every_recipe_has_output_and_a_picture() -> None:
    recipes = [page for page in PAGES if page.name.startswith("cookbook-")]
    assert len(recipes) >= 9
    for page in recipes:
        assert "```text" in page.text, page.name
        assert "](../pictures/" in page.text, page.name


@pytest.mark.parametrize(("page", "block"), PEERS, ids=[block.tool for _, block in PEERS])
def test_blocks_of_other_tools(page: Page, block: Block, tmp_path: Path) -> None:
    """In the environments that the benchmarks make for their peers; other tools have tests of their own."""
    if not (ROOT / "benchmarks" / f"requirements-{block.tool}.txt").exists():
        pytest.skip(f"the block needs {block.tool}, which is not a Python package of an environment of the benchmarks")
    python = ROOT / f".bench-{block.tool}" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{block.tool} is not installed: python -m benchmarks makes its environment")
    done = subprocess.run([python, "-c", block.code], capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr


def test_open_figures_of_a_caller_are_not_the_pages(tmp_path: Path) -> None:
    import matplotlib.pyplot as plt

    plt.figure()
    page = next(page for page in PAGES if page.runs and "](pictures/" not in page.text)
    assert "](pictures/" not in page.render(tmp_path)
    assert not list(tmp_path.glob("*.png"))


def test_a_changed_output_is_noticed(tmp_path: Path) -> None:
    copy = tmp_path / "docs"
    shutil.copytree(DOCS, copy, ignore=shutil.ignore_patterns("pictures", "cookbook", "__pycache__"))
    (copy / "sample.md").write_text("```python\nprint('a', 1.5)\n```\n")
    code = "from docs.build_examples import main; main(['sample'])"
    run = [sys.executable, "-c", code]
    subprocess.run(run, cwd=tmp_path, check=True, env={"PYTHONPATH": f"{tmp_path}:{ROOT}"}, capture_output=True)
    text = (copy / "sample.md").read_text()
    assert "a 1.5" in text
    assert words(text) == words(text.replace("1.5", "2.5"))
    assert words(text) != words(text.replace("a 1.5", "b 1.5"))
