"""``tangentlab report``: one page for everything that was run."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def report(
    runs: Annotated[Path, typer.Argument(help="Folder of the results, the --out of reproduce.")] = Path("runs"),
    out: Annotated[Path, typer.Option(help="The page.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="Title of the page.", show_default=False)] = "",
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Write one self-contained HTML page of all finished results.

    Example: tangentlab report runs --out report.html
    """
    from tangentlab.report import build

    path = build(runs, out, title=title)
    Console(quiet=quiet, highlight=False).print(f"{path} ({path.stat().st_size / 2**20:.1f} MiB)")
