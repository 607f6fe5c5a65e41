"""``tangentlab reproduce``: figures and tables of the papers by id."""

import json
import shlex
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tangentlab._cli._command import command
from tangentlab._cli._options import option
from tangentlab._errors import TangentError

_MARKS = {"holds": "[green]✓[/]", "does not hold": "[red]✗[/]", "undecided": "[yellow]○[/]"}


def complete(incomplete: str) -> list[str]:
    """Return the ids for completion in the shell."""
    from tangentlab.experiments import available

    names = ["list", "all", *(experiment.id for experiment in available())]
    return [name for name in names if name.startswith(incomplete)]


app = typer.Typer(rich_markup_mode="rich")


@command(app, stopped="Finished units of work are kept. Rerun the command to resume.")
def reproduce(
    ids: Annotated[
        list[str],
        typer.Argument(
            metavar="ID...",
            help="Ids such as ortiz2021/fig2, a paper such as samarin2022, all, or list.",
            autocompletion=complete,
            show_default=False,
        ),
    ],
    preset: Annotated[
        str,
        option(value="NAME", help="Scale of the experiments: tiny (seconds), small (at most a few hours), or paper."),
    ] = "tiny",
    out: Annotated[Path, option(value="FOLDER", help="Folder to write the results to.")] = Path("runs"),
    data_dir: Annotated[Path | None, option(value="FOLDER", help="Folder that holds the data sets.")] = None,
    assignments: Annotated[
        list[str] | None,
        option(
            "--set", value="FIELD=VALUE", show_default=False,
            help="Field of the experiment's specification to change. Repeat the option for further fields.",
        ),
    ] = None,
    variant: Annotated[
        str,
        option(value="WORD", help="Word that distinguishes this result from others of the same id.",
        show_default=False),
    ] = "",
    seed: Annotated[int | None, option(value="N", help="First seed to use.", show_default=False)] = None,
    seeds: Annotated[int | None, option(value="N", help="Number of seeds to use.", show_default=False)] = None,
    device: Annotated[
        str | None, option(value="DEVICE", help="Device to compute on: cpu or cuda.", show_default=False)
    ] = None,
    workers: Annotated[int, option(value="N", help="Number of processes that share the work.")] = 1,
    again: Annotated[
        bool,
        option("--again/--no-again", help="Also run experiments that are finished; finished units of work are used."),
    ] = False,
    as_json: Annotated[bool, option("--json", help="Print the results as JSON.")] = False,
    quiet: Annotated[bool, option("--quiet", "-q", help="Print nothing but errors.")] = False,
    verbose: Annotated[
        bool, option("--verbose", "-v", help="Print every claim with its explanation.")
    ] = False,
) -> None:  # fmt: skip
    """Reproduce figures, tables and theorems of the papers and check their claims.

    Finished work is not repeated: rerun the command to resume after an interruption. Exit code 0 says that everything
    ran, regardless of the verdicts.

    \b
    Examples:
      tangentlab reproduce list
      tangentlab reproduce samarin2022/fig6 ortiz2021/fig2
      tangentlab reproduce all --workers 2 --out runs
      tangentlab reproduce ortiz2021/table1 --preset small --set models=mlp --data-dir ~/data
      tangentlab reproduce ortiz2021/table1 --preset small --set models=lenet --variant lenet
    """
    from tangentlab import experiments
    from tangentlab.experiments.internal import check_variant

    console = Console(stderr=as_json, quiet=quiet, highlight=False)
    if ids == ["list"]:
        _list(preset, as_json, console)
        return
    names = _chosen(ids)
    _refuse_repeated(assignments or [])
    overrides: dict[str, Any] = dict(experiments.parse_assignments(assignments or []))
    overrides |= {
        name: value for name, value in (("seed", seed), ("seeds", seeds), ("device", device)) if value is not None
    }
    check_variant(variant)
    for name in names:  # refuse a wrong override before anything runs
        experiments.spec_of(experiments.get(name), preset, overrides)
    context = experiments.open_context(out, data_dir=data_dir, workers=workers, progress=False if quiet else None)
    command = " ".join(["tangentlab", *map(shlex.quote, sys.argv[1:])]) if len(names) == 1 else None
    results, failures = [], []
    try:
        for name in names:
            try:
                result = experiments.reproduce(
                    name,
                    preset,
                    out=out,
                    overrides=overrides,
                    variant=variant,
                    again=again,
                    context=context,
                    command=command,
                )
            except TangentError as error:
                if len(names) == 1:
                    raise
                failures.append((name, error))
                console.print(f"[red]✗[/] {name}: {error.what}")
                continue
            results.append(result)
            _show(result, console, verbose)
    finally:
        context.close()
    if as_json:
        print(json.dumps([result.record for result in results], indent=1))
    elif len(names) > 1:
        _totals(results, console)
    if failures:
        name, first = failures[0]
        raise TangentError(
            f"{len(failures)} of {len(names)} experiments could not run; the first, {name}: {first.what}",
            first.why,
            first.remedy,
        )


def _refuse_repeated(assignments: list[str]) -> None:
    fields = [text.partition("=")[0].strip() for text in assignments]
    for name in fields:
        if fields.count(name) > 1:
            raise TangentError(f"{name} was given twice.", "One value would be lost.", f"Pass one --set {name}=VALUE.")


def _chosen(ids: list[str]) -> list[str]:
    """Return the ids of experiments, papers and ``all``, each experiment once."""
    from tangentlab import experiments

    known = [experiment.id for experiment in experiments.available()]
    papers = list(dict.fromkeys(name.partition("/")[0] for name in known))
    chosen: list[str] = []
    for name in ids:
        if name == "all":
            chosen += known
        elif name in papers:
            chosen += [identity for identity in known if identity.startswith(f"{name}/")]
        elif "/" not in name and (close := get_close_matches(name, [*papers, "all", "list"], n=1, cutoff=0.6)):
            raise TangentError(f"There is no experiment or paper {name!r}.", remedy=f"Did you mean {close[0]!r}?")
        else:
            chosen.append(experiments.get(name).id)
    return list(dict.fromkeys(chosen))


def _list(preset: str, as_json: bool, console: Console) -> None:
    from tangentlab import experiments

    rows = [
        {"id": e.id, "title": e.title, "shows": e.shows, "cost": e.cost[experiments.spec_of(e, preset).preset]}
        for e in experiments.available()
    ]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("id", no_wrap=True, min_width=max(len(row["id"]) for row in rows))
    table.add_column("title", overflow="fold")
    table.add_column(f"cost of {preset}", overflow="fold")
    for row in rows:
        table.add_row(row["id"], row["title"], row["cost"])
    console.print(table)


def _show(result: Any, console: Console, verbose: bool) -> None:
    record = result.record
    took = f"{record['seconds']:.1f} s" if result.computed else "finished before"
    marks = "".join(_MARKS[claim["verdict"]] for claim in record["claims"])
    console.print(f"[bold]{result.name}[/] {record['title']} ({took}) {marks}")
    if verbose:
        for claim in record["claims"]:
            value = "-" if claim["value"] is None else f"{claim['value']:.4g}"
            console.print(
                f"  {_MARKS[claim['verdict']]} {claim['statement']}: {value} (needed {claim['threshold']}; paper: "
                f"{claim['paper']}). {claim['explanation']} Tested: {claim['scope']}."
            )
        console.print(f"  {result.folder}")


def _totals(results: list[Any], console: Console) -> None:
    counts: dict[str, int] = dict.fromkeys(_MARKS, 0)
    for result in results:
        for verdict, number in result.verdicts().items():
            counts[verdict] += number
    text = ", ".join(f"{_MARKS[name]} {number} {name}" for name, number in counts.items())
    console.print(f"{len(results)} experiments; claims: {text}.")
