"""Output of commands: printed results and files."""

import json
import math
import shutil
import textwrap
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from tangentlab._files import make_folder, write_bytes, write_text

if TYPE_CHECKING:
    import pandas as pd

_WIDTH = 100
"""Columns where there is no terminal."""
_GAP = 2


def columns() -> int:
    """Return the number of columns of the terminal, or the value of the variable COLUMNS."""
    return shutil.get_terminal_size((_WIDTH, 24)).columns


def note(text: str, quiet: bool) -> None:
    """Print a remark on standard error, unless ``quiet``."""
    if not quiet:
        Console(stderr=True, highlight=False).print(text, soft_wrap=True, markup=False)


def say_text(text: str) -> None:
    """Print lines on standard output, wrapped at the width of the terminal, with continuation lines indented."""
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()) + 2 * _GAP)
        print("\n".join(_wrapped(line, columns(), indent)))


def say_table(table: "pd.DataFrame", digits: int = 6) -> None:
    """Print a table on standard output; one block of lines per row if the columns do not fit side by side."""
    rows = [[_cell(value, digits) for value in row] for row in table.itertuples(index=False)]
    heads = [str(name).replace("_", " ") for name in table.columns]
    parts = [[head, *(row[number] for row in rows)] for number, head in enumerate(heads)]
    # Headings are broken between words; so are texts, where whole ones are too wide.
    for whole in (True, False):
        widths = [max(len(w) for w in (head.split() + (cells if whole else _words(cells)))) for head, *cells in parts]
        if sum(widths) + _GAP * (len(widths) - 1) <= columns():
            text = [any(cell[:1].isalpha() for cell in cells) for _, *cells in parts]
            for number, line in enumerate([heads, *rows]):
                print(_row(line, widths, text, bottom=number == 0))
            return
    for number, row in enumerate(rows):
        if number:
            print()
        say(dict(zip(heads, row, strict=True)), False)


def _words(cells: list[str]) -> list[str]:
    return [word for cell in cells for word in cell.split()]


def _row(cells: list[str], widths: list[int], text: list[bool], bottom: bool) -> str:
    """Format one row of a table, in as many lines as its highest cell; cells are aligned at the bottom
    or at the top."""
    parts = [_wrapped(cell, width, "", 1) for cell, width in zip(cells, widths, strict=True)]
    height = max(map(len, parts))
    parts = [[""] * (height - len(p)) + p if bottom else p + [""] * (height - len(p)) for p in parts]
    lines = [
        (" " * _GAP).join(
            part.ljust(width) if left else part.rjust(width)
            for part, width, left in zip(line, widths, text, strict=True)
        )
        for line in zip(*parts, strict=True)
    ]
    return "\n".join(line.rstrip() for line in lines)


def _cell(value: Any, digits: int) -> str:
    if isinstance(value, float):
        return "-" if math.isnan(value) else f"{value:.{digits}g}"
    return str(value)


def _wrapped(text: str, width: int, indent: str, least: int = 20) -> list[str]:
    """Wrap text into lines of at most ``width`` characters, between words only."""
    lines = textwrap.wrap(
        text, max(least, width), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False,
        drop_whitespace=True, replace_whitespace=False,
    )  # fmt: skip
    return lines or [""]


def say(facts: Mapping[str, Any], as_json: bool) -> None:
    """Print facts on standard output: JSON, or aligned lines."""
    if as_json:
        print(json.dumps({name: _plain(value) for name, value in facts.items()}, indent=1))
        return
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        line = f"{name.replace('_', ' '):<{width}}  {_show(value)}"
        print("\n".join(_wrapped(line, columns(), " " * (width + _GAP))))


def _plain(value: Any) -> Any:
    """Return a value that JSON can represent: no NaN and no paths."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value if isinstance(value, bool | int | str) or value is None else str(value)


def _show(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return f"{value:.6g}"


class Folder:
    """The folder of ``--out``. Without one, nothing is written."""

    def __init__(self, path: Path | None) -> None:
        self.path = None if path is None else make_folder(path)

    def table(self, name: str, table: "pd.DataFrame", index: bool = False) -> None:
        """Write a CSV file."""
        if self.path is not None:
            write_text(self.path / name, table.to_csv(index=index))

    def figure(self, name: str, draw: Callable[[Any], Any]) -> None:
        """Write a PNG file of the figure that contains the axes which ``draw(tangentlab.plot)`` returns, if any.

        Without Matplotlib there is no picture and a remark says so: a command's numbers do not depend on it.
        """
        if self.path is None:
            return
        if find_spec("matplotlib") is None:
            note(f"{name} was not drawn: Matplotlib is not installed. Run pip install 'tangentlab[plot]'.", False)
            return
        from tangentlab import plot

        if (axes := draw(plot)) is not None:
            write_bytes(self.path / name, lambda file: axes.figure.savefig(file, dpi=150, bbox_inches="tight"))

    def arrays(self, name: str, **arrays: Any) -> None:
        """Write an NPZ file."""
        import numpy as np

        if self.path is not None:
            write_bytes(self.path / name, lambda file: np.savez(file, **arrays))

    def tensors(self, name: str, state: Mapping[str, Any]) -> None:
        """Write a state dict with ``torch.save``."""
        import torch

        if self.path is not None:
            write_bytes(self.path / name, lambda file: torch.save(dict(state), file))

    def record(self, facts: Mapping[str, Any]) -> None:
        """Write ``record.json``: the options and the result."""
        if self.path is not None:
            write_text(self.path / "record.json", json.dumps(_plain(dict(facts)), indent=1) + "\n")
