"""``tangentlab report``: one page for all results."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tangentlab._cli import _options as options
from tangentlab._cli._command import command

app = typer.Typer()
Quiet = Annotated[bool, options.option("--quiet", "-q", help="Print nothing but errors.")]


@command(app)
def report(
    runs: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Folder of the results, the --out of reproduce.")
    ] = Path("runs"),
    out: Annotated[Path, options.option(value="FILE", help="HTML file to write.")] = Path("report.html"),
    title: Annotated[str, options.option(value="TITLE", help="Title of the page.", show_default=False)] = "",
    quiet: Quiet = False,
) -> None:
    """Write one self-contained HTML page of all finished results.

    Example: tangentlab report runs --out report.html
    """
    from tangentlab.report import build

    path = build(runs, out, title=title)
    Console(quiet=quiet, highlight=False).print(f"{path} ({path.stat().st_size / 2**20:.1f} MiB)")
