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

from tangentlab._errors import TangentError

_MARKS = {"holds": "[green]✓[/]", "does not hold": "[red]✗[/]", "not decidable at this scale": "[yellow]○[/]"}


def complete(incomplete: str) -> list[str]:
    """Ids for the shell."""
    from tangentlab.experiments import available

    names = ["list", "all", *(experiment.id for experiment in available())]
    return [name for name in names if name.startswith(incomplete)]


def reproduce(
    ids: Annotated[
        list[str],
        typer.Argument(
            help="Ids such as ortiz2021/fig2, a paper such as samarin2022, [bold]all[/], or [bold]list[/].",
            autocompletion=complete,
            show_default=False,
        ),
    ],
    preset: Annotated[
        str, typer.Option(help="tiny: seconds; small: at most a few hours; paper: as published.")
    ] = "tiny",
    out: Annotated[Path, typer.Option(help="Folder of the results.")] = Path("runs"),
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the data sets.")] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", help="FIELD=VALUE of the spec, as often as needed.", show_default=False)
    ] = None,
    variant: Annotated[
        str, typer.Option(help="A word that keeps this result beside others of the same id.", show_default=False)
    ] = "",
    seed: Annotated[int | None, typer.Option(help="The first seed.", show_default=False)] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds.", show_default=False)] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.", show_default=False)] = None,
    workers: Annotated[int, typer.Option(help="Processes that share the work.")] = 1,
    again: Annotated[bool, typer.Option(help="Also run what is finished; finished units of work are used.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print results as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="Print nothing but errors.")] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Print every claim with its explanation.")] = False,
) -> None:
    """Run figures, tables and theorems of the papers again and check their claims.

    What is finished is not repeated: an interrupted run continues where it was. Exit code 0 says that everything ran,
    whatever the verdicts.

    \b
    Examples:
      tangentlab reproduce list
      tangentlab reproduce samarin2022/fig6 ortiz2021/fig2
      tangentlab reproduce all --workers 2 --out runs
      tangentlab reproduce ortiz2021/table1 --preset small --set models=mlp --data-dir ~/data
      tangentlab reproduce ortiz2021/table1 --preset small --set models=lenet --variant lenet
    """
    from tangentlab import experiments
    from tangentlab.experiments._variant import check_variant

    console = Console(stderr=as_json, quiet=quiet, highlight=False)
    if ids == ["list"]:
        _list(preset, as_json, console)
        return
    names = _chosen(ids)
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


def _chosen(ids: list[str]) -> list[str]:
    """Ids, papers and ``all``, each experiment once."""
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
    table = Table("id", "title", f"cost of {preset}", box=None, header_style="bold", pad_edge=False)
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
                f"{claim['paper']}). {claim['explanation']}"
            )
        console.print(f"  {result.folder}")


def _totals(results: list[Any], console: Console) -> None:
    counts: dict[str, int] = dict.fromkeys(_MARKS, 0)
    for result in results:
        for verdict, number in result.verdicts().items():
            counts[verdict] += number
    text = ", ".join(f"{_MARKS[name]} {number} {name}" for name, number in counts.items())
    console.print(f"{len(results)} experiments; claims: {text}.")
