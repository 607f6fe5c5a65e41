"""Prose is in American spelling, and keeps to the choices of the contributing guide."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.build_examples import BEGIN, DOCS, END

ROOT = DOCS.parent
# Written by a generator from words of the code; and two pages that are revised with the code that they describe.
LEFT_OUT = [DOCS / name for name in ("results/index.md", "cookbook/store.md", "threat-model.md")]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(path for path in (ROOT / ".github").rglob("*.*") if path.is_file()),
    *sorted(path for path in DOCS.rglob("*.md") if path not in LEFT_OUT),
    DOCS / "results" / "notes.toml",
    DOCS / "results" / "remaining.toml",
]
# What the style section of the contributing guide replaces, outside of that section.
REPLACED = [
    r"\bdoors?\b",
    r"\bpromised\b",
    r"the same command again",
    r"one way through",
    r"\b(?:one|a) (?:number|row|file|pass|value|seed|backward pass) an? (?!time\b)\w+",
    r"goes on where it",
]


def prose(path: Path) -> str:
    """A page without code, outputs, links' targets and the section that names what not to write."""
    text = path.read_text()
    text = re.sub(rf"{re.escape(BEGIN)}.*?{re.escape(END)}", "", text, flags=re.S)
    text = re.sub(r"^```.*?^```$|^## Style\n.*?(?=^## |\Z)", "", text, flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`|\]\([^)]*\)|https?://\S+", "", text)


def british(text: str, folder: Path) -> str:
    """What codespell would write in another way."""
    file = folder / "prose.txt"
    file.write_text(text)
    command = [sys.executable, "-m", "codespell_lib", "--builtin", "en-GB_to_en-US", file]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True).stdout


@pytest.fixture(autouse=True)
def _codespell() -> None:
    pytest.importorskip("codespell_lib", reason="codespell is not installed: pip install '.[dev]'")


def test_american_spelling(tmp_path: Path) -> None:
    """All pages in one go, each line under its page's name."""
    lines = [(path, line) for path in PAGES for line in prose(path).splitlines()]
    found = british("\n".join(line for _, line in lines), tmp_path)
    wrong = [re.match(r".*prose\.txt:(\d+): (.*)", message) for message in found.splitlines()]
    assert [f"{lines[int(m[1]) - 1][0].relative_to(ROOT)}: {m[2]}" for m in wrong if m] == []


def test_replaced_words() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in PAGES
        for pattern in REPLACED
        for match in re.finditer(pattern, " ".join(prose(path).split()), re.I)
    ]
    assert found == []


def test_british_spelling_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("The initialisation.\n\n```python\ncolour = 1\n```\n\n`behaviour`, and [it](licence.md).\n")
    assert british(prose(page), tmp_path).count("==>") == 1
    assert "initialisation ==> initialization" in british(prose(page), tmp_path)
