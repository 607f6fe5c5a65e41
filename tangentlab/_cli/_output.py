"""What commands print and write."""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from tangentlab._files import make_folder, write_bytes, write_text

if TYPE_CHECKING:
    import pandas as pd

INTERRUPTED = 130
"""Exit code after Ctrl-C."""


def say(facts: Mapping[str, Any], as_json: bool) -> None:
    """Facts on standard output: JSON for programs, aligned lines for people."""
    if as_json:
        print(json.dumps({name: _plain(value) for name, value in facts.items()}, indent=1))
        return
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        print(f"{name.replace('_', ' '):<{width}}  {_show(value)}")


def _plain(value: Any) -> Any:
    """JSON has neither NaN nor paths."""
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
    """The folder of ``--out``; without one, nothing is written."""

    def __init__(self, path: Path | None) -> None:
        self.path = None if path is None else make_folder(path)

    def table(self, name: str, table: "pd.DataFrame", index: bool = False) -> None:
        """A CSV file."""
        if self.path is not None:
            write_text(self.path / name, table.to_csv(index=index))

    def figure(self, name: str, axes: Any) -> None:
        """A PNG file of the figure that some axes are on."""
        if self.path is not None:
            write_bytes(self.path / name, lambda file: axes.figure.savefig(file, dpi=150, bbox_inches="tight"))

    def arrays(self, name: str, **arrays: Any) -> None:
        """An NPZ file."""
        import numpy as np

        if self.path is not None:
            write_bytes(self.path / name, lambda file: np.savez(file, **arrays))

    def record(self, facts: Mapping[str, Any]) -> None:
        """``record.json``: what was asked and what came of it."""
        if self.path is not None:
            write_text(self.path / "record.json", json.dumps(_plain(dict(facts)), indent=1) + "\n")


@contextmanager
def interruptible(hint: str) -> Iterator[None]:
    """Ctrl-C ends with a message and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        Console(stderr=True, highlight=False).print(f"Stopped. {hint}", soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None
