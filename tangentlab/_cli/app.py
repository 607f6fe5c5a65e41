"""The command line."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from tangentlab._cli import (
    attribute,
    bench,
    checkpoints,
    explore,
    forecast,
    help,
    measures,
    posterior,
    regress,
    report,
    reproduce,
    select,
    training,
)
from tangentlab._cli._command import CommandGroup, command
from tangentlab._cli._options import option
from tangentlab._cli._remedies import on_command_line
from tangentlab._cli._welcome import welcome
from tangentlab._cli.kernel import app as kernel
from tangentlab._errors import TangentError
from tangentlab._version import __version__
from tangentlab._warnings import show_plainly

app = typer.Typer(
    help="What a neural network's linearization can and cannot say about it.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    cls=CommandGroup,
)
app.add_typer(kernel, name="kernel")
for part in (
    reproduce,
    report,
    training,
    measures,
    checkpoints,
    regress,
    posterior,
    forecast,
    attribute,
    explore,
    select,
    bench,
    help,
):
    app.registered_commands += part.app.registered_commands


def _version(wanted: bool) -> None:
    if wanted:
        print(f"tangentlab {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Handle the common options, and a call without a command."""
    if context.invoked_subcommand is None:
        welcome(Console(highlight=False))


@command(app, stopped="Rerun the command to resume.")
def demo(
    out: Annotated[Path, option(value="FOLDER", help="Folder to write pictures, results and the page to.")] = Path(
        "tangentlab-demo"
    ),
    seed: Annotated[int, option(value="N", help="Seed for the weights of the first kernel.")] = 0,
    workers: Annotated[int, option(value="N", min=1, help="Number of processes for the experiments.")] = min(
        2, os.cpu_count() or 1
    ),
    kernel_only: Annotated[bool, option("--kernel-only", help="Stop after the first kernel.")] = False,
    quiet: report.Quiet = False,
) -> None:
    """Compute a LeNet's kernel on scikit-learn's digits, run every experiment at its smallest scale, and report them.

    Example: tangentlab demo --out demo-out
    """
    from tangentlab.demo import run

    run(out, seed, workers, kernel_only, Console(highlight=False, quiet=quiet))


def main() -> None:
    """Run the command line. An error of the user's becomes a message and exit code 1, never a traceback."""
    show_plainly()
    os.environ.setdefault("MPLBACKEND", "Agg")  # pictures go to files
    try:
        app()
    except TangentError as refusal:
        error = on_command_line(refusal)
        more = f"tangentlab help {error.topic}" if error.topic else ""
        console = Console(stderr=True)
        console.print(f"[bold red]Error:[/] {escape(error.what)}", highlight=False)
        for label, text in (("Why", error.why), ("Remedy", error.remedy), ("More", more)):
            if text:
                console.print(f"  [bold]{label}:[/] {escape(text)}", highlight=False)
        sys.exit(1)
