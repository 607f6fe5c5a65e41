"""Prose is in American spelling, and keeps to the choices of the contributing guide: pages, docstrings and messages."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from docs.build_examples import BEGIN, DOCS, END

ROOT = DOCS.parent
# Two pages that are revised with the code that they describe.
LEFT_OUT = [DOCS / name for name in ("cookbook/store.md", "threat-model.md")]
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
# The same for docstrings and messages of the code.
REPLACED_IN_CODE = [
    *REPLACED,
    r"\b(?:once|one) an? (?:pair|row|sample|class|run|update|epoch|evaluation|direction|width|threshold|case|module)\b",
    r"\bone (?:logit|target|label|line|process|color|panel) an? (?!time\b)\w+",
    r"\b(?:nobody|somebody|whoever)\b",
    r"\byardstick\b",
]
# Modules whose texts are not checked yet.
CODE_LEFT_OUT: list[Path] = []
CODE = [
    *(path for path in sorted((ROOT / "tangentlab").rglob("*.py")) if path not in CODE_LEFT_OUT),
    *sorted(path for folder in ("benchmarks", "soak", "docs") for path in (ROOT / folder).rglob("*.py")),
]
# Names of the public interface that keep their spelling.
KEPT = r"\b[Nn]ormalis(?:e|ation)\b"
IMPERATIVES = set(
    """
    Acquire Add Append Apply Average Begin Build Call Center Change Check Choose Close Compare Complete Compute
    Concatenate Convert Copy Correct Count Create Cut Damage Declare Decompose Describe Digest Do Draw Encode End
    Estimate Execute Expand Explain Export Fill Find Fit Flatten Flush Follow Fork Format Group Handle Hash Import
    Index Install Iterate Judge Kill Let List Load Lock Look Make Map Measure Move Multiply Mutate Name Normalize Open
    Order Pad Parse Place Plan Plot Predict Prepare Print Probe Put Queue Raise Read Record Recover Reduce Refuse
    Register Release Remove Repeat Replace Report Reproduce Restart Restore Resume Return Run Save Scale Seed Seek
    Select Set Show Silence Solve Split Start Stop Store Submit Suggest Sum Switch Take Test Time Train Try Turn Undo
    Unfold Unlock Unpack Wait Warn Wrap Write Yield
    """.split()
)


class Text(NamedTuple):
    """A docstring or another string with words in it, and where it is."""

    path: Path
    line: int
    words: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.words.splitlines()[0]}"


class Documented(NamedTuple):
    """A class, function or property with a docstring."""

    text: Text
    kind: str


def documented(path: Path) -> Iterator[Documented]:
    """Classes, functions and properties of a module, the ones that a user never sees included."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            words = ast.get_docstring(node)
            if words:
                decorators = " ".join(map(ast.unparse, node.decorator_list))
                kind = "property" if "property" in decorators else "rule" if "rule(" in decorators else "function"
                kind = "class" if isinstance(node, ast.ClassDef) else kind
                yield Documented(Text(path, node.lineno, words), kind)


def texts(path: Path) -> Iterator[Text]:
    """All strings of a module that consist of words, without code in them."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            words = re.sub(r"``.*?``|`[^`\n]*`|^ *>>>.*$|^ +\w+: |\w+=\S+", "", node.value, flags=re.M | re.S)
            yield Text(path, node.lineno, re.sub(KEPT, "", words))


def refusals(path: Path) -> Iterator[Text]:
    """What, why and remedy of every :class:`TangentError` that a module raises, as far as they are written there."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "TangentError":
            for part in [*node.args, *(keyword.value for keyword in node.keywords)]:
                yield from (Text(path, node.lineno, words) for words in _sentences(part) if words)


def _sentences(part: ast.expr) -> Iterator[str]:
    """The alternatives of a message; a value that is put into it is written as {}."""
    if isinstance(part, ast.IfExp):
        yield from (*_sentences(part.body), *_sentences(part.orelse))
    elif isinstance(part, ast.Constant) and isinstance(part.value, str):
        yield part.value
    elif isinstance(part, ast.JoinedStr):
        yield "".join(value.value if isinstance(value, ast.Constant) else "{}" for value in part.values)


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


def test_american_spelling_of_code(tmp_path: Path) -> None:
    """All strings in one go, each in a line of its own."""
    found = [text for path in CODE for text in texts(path)]
    said = british("\n".join(" ".join(text.words.split()) for text in found), tmp_path)
    wrong = [re.match(r".*prose\.txt:(\d+): (.*)", message) for message in said.splitlines()]
    assert [f"{found[int(m[1]) - 1]} ({m[2]})" for m in wrong if m] == []


def test_replaced_words_of_code() -> None:
    found = [
        f"{text} ({match[0]})"
        for path in CODE
        for text in texts(path)
        for pattern in REPLACED_IN_CODE
        for match in re.finditer(pattern, " ".join(text.words.split()), re.I)
    ]
    assert found == []


def mood(entry: Documented) -> str:
    """What is wrong with how a docstring starts; empty for nothing."""
    first = re.split(r"[ ,.:;]", entry.text.words.strip(), maxsplit=1)[0]
    if entry.kind == "rule":  # what the operation computes, for the table of rules
        return ""
    if entry.kind == "function":
        return "" if first in IMPERATIVES else "a function's docstring starts with an imperative"
    if first in IMPERATIVES or (first.endswith("s") and first[:-1] in IMPERATIVES - {"Test", "Time", "Set", "Map"}):
        return f"the docstring of a {entry.kind} starts with a noun phrase"
    return ""


def test_docstrings_start_in_one_mood() -> None:
    wrong = [(entry, mood(entry)) for path in CODE for entry in documented(path)]
    assert [f"{entry.text} ({said})" for entry, said in wrong if said] == []


@pytest.mark.parametrize(
    ("words", "kind", "right"),
    [
        ("Return the kernel.", "function", True),
        ("The kernel.", "function", False),
        ("Returns the kernel.", "function", False),
        ("The kernel.", "property", True),
        ("Return the kernel.", "property", False),
        ("y = x W^T + b.", "rule", True),
        ("y = x W^T + b.", "function", False),
        ("Computes the kernel.", "class", False),
        ("Weights of a network.", "class", True),
    ],
)
def test_moods_are_told_apart(words: str, kind: str, right: bool) -> None:
    assert (mood(Documented(Text(ROOT / "a.py", 1, words), kind)) == "") is right


def sentence(words: str) -> bool:
    """Whether a part of a message is one: it starts with a capital, a value or code, and ends with a period."""
    return bool(re.match(r"[A-Z{0-9\-`'\"(\\]|\w+[=.(_]|[a-z]+\d", words)) and bool(re.search(r"[.?}]$", words.strip()))


def test_messages_are_sentences() -> None:
    wrong = [str(text) for path in CODE for text in refusals(path) if not sentence(text.words)]
    assert wrong == []


@pytest.mark.parametrize(
    ("words", "right"),
    [
        ("The kernel is zero.", True),
        ("{} is not a folder.", True),
        ("--shape is {}.", True),
        ("n_train={} is too large.", True),
        ("the kernel is zero.", False),
        ("The kernel is zero", False),
    ],
)
def test_sentences_are_recognized(words: str, right: bool) -> None:
    assert sentence(words) is right


def test_british_spelling_of_code_is_noticed(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('"""The initialisation of ``colour``, one row a sample."""\nnormalisation = "colour"\n')
    (text,) = texts(module)
    assert british(text.words, tmp_path).count("==>") == 1
    assert any(re.search(pattern, text.words) for pattern in REPLACED_IN_CODE)
