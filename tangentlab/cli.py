"""The command line."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tangentlab._cli.bench import bench
from tangentlab._cli.kernel import app as kernel
from tangentlab._cli.measures import align, nads, regress, spectrum
from tangentlab._cli.report import report
from tangentlab._cli.reproduce import reproduce
from tangentlab._cli.training import compare, linearize, train
from tangentlab._errors import TangentError
from tangentlab._version import __version__

app = typer.Typer(
    help="What a neural network's linearization can and cannot say about it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.add_typer(kernel, name="kernel")
for command in (reproduce, report, train, linearize, compare, spectrum, regress, align, nads, bench):
    app.command()(command)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"tangentlab {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Common options."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for pictures, results and the page.")] = Path("tangentlab-demo"),
    seed: Annotated[int, typer.Option(help="Seed of the first kernel's weights.")] = 0,
    workers: Annotated[int, typer.Option(min=1, help="Processes for the experiments.")] = min(2, os.cpu_count() or 1),
    kernel_only: Annotated[bool, typer.Option("--kernel-only", help="Stop after the first kernel.")] = False,
) -> None:
    """A LeNet's kernel on scikit-learn's digits, every experiment at its smallest scale, and a page of them all.

    Example: tangentlab demo --out demo-out
    """
    from tangentlab.demo import run

    run(out, seed, workers, kernel_only, Console(highlight=False))


def main() -> None:
    """Entry point: a refusal becomes a message and exit code 1, never a traceback."""
    os.environ.setdefault("MPLBACKEND", "Agg")  # pictures go to files
    try:
        app()
    except TangentError as error:
        console = Console(stderr=True)
        console.print(f"[bold red]Error:[/] {error.what}", highlight=False)
        for label, text in (("Why", error.why), ("Remedy", error.remedy)):
            if text:
                console.print(f"  [bold]{label}:[/] {text}", highlight=False)
        sys.exit(1)
