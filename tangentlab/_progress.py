"""One progress bar for all long computations: kernels, training, downloads."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


class Ticker(Protocol):
    """The interface that a computation reports to: ``advance(steps, note)``."""

    def __call__(self, steps: float = 1, note: str | None = None) -> None: ...


def silent(steps: float = 1, note: str | None = None) -> None:
    """Report nothing."""


VARIABLE = "TANGENTLAB_PROGRESS"
"""``off`` in the environment: no bars but those that are asked for."""


def _notebook() -> bool:
    """Return whether this is a notebook that can show a bar: without ipywidgets there would be a warning instead."""
    return "ipykernel" in sys.modules and find_spec("ipywidgets") is not None


@contextmanager
def progress_bar(title: str, total: float, show: bool | None = None) -> Iterator[Ticker]:
    """Show a bar on standard error with rate and remaining time, or return a ticker that does nothing.

    Args:
        title: The name of the computation.
        total: The number of steps.
        show: Whether to show the bar; None shows it if standard error is a terminal or a notebook, unless the
            environment has ``TANGENTLAB_PROGRESS=off``. A bar in a notebook needs the package ipywidgets.
    """
    if show is None:
        show = os.environ.get(VARIABLE, "").lower() != "off" and (sys.stderr.isatty() or _notebook())
    if not show:
        yield silent
        return
    with _display() as progress:
        task = progress.add_task(title, total=total, note="")

        def tick(steps: float = 1, note: str | None = None) -> None:
            progress.advance(task, steps)
            if note is not None:
                progress.update(task, note=note)

        try:
            yield tick
        finally:
            # The display is drawn ten times a second: a computation that ends sooner shows how far it came, too.
            progress.refresh()
            progress.remove_task(task)


_active: Progress | None = None


@contextmanager
def _display() -> Iterator[Progress]:
    """Return the bars on the screen: the present ones, for a nested computation, or new ones."""
    global _active
    if _active is not None:
        yield _active
        return
    columns = (
        TextColumn("[progress.description]{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        _active = progress
        try:
            yield progress
        finally:
            _active = None
