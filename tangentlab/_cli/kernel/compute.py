"""``tangentlab kernel compute`` and ``resume``."""

from typing import TYPE_CHECKING, Annotated

import typer

from tangentlab._cli import _options as options
from tangentlab._cli._command import command
from tangentlab._cli._output import note
from tangentlab._cli.kernel._common import Tile, library_options, say_result, store_options

if TYPE_CHECKING:
    from tangentlab._cli._recipe import Recipe

app = typer.Typer()
_RESUME = "Finished tiles are kept. Resume with: tangentlab kernel resume "


@command(app, stopped=_RESUME + "{out}")
def compute(
    *,
    out: options.StoreOut,
    network: options.NetworkOptions,
    samples: options.SplitOptions,
    kernel: options.KernelOptions,
    work: options.WorkOptions,
    tile: Tile = None,
    dry_run: Annotated[
        bool, options.option("--dry-run", help="Print an estimate of time, memory and disk, and compute nothing.")
    ] = False,
    output: options.OutputOptions,
) -> None:
    """Compute a kernel into a store. Rerun the command to resume after an interruption.

    Without --checkpoint, the store keeps the initial weights of the network in its file weights.pt.

    Example: tangentlab kernel compute --model lenet -o variant=ortiz2021 -o outputs=1 --data cifar10 --split all
    --memory 8GiB --out lenet.zarr
    """
    from tangentlab._cli._recipe import make_recipe

    _run(out, make_recipe(network, samples), kernel, work, output, tile, dry_run)


@command(app, stopped=_RESUME + "{path}")
def resume(
    *,
    path: options.StoreArgument,
    work: options.WorkOptions,
    device: options.Device = None,
    memory: options.Memory = None,
    output: options.OutputOptions,
) -> None:
    """Resume a store that 'tangentlab kernel compute' began. It remembers model, data and options.

    Example: tangentlab kernel resume lenet.zarr
    """
    from dataclasses import replace

    from tangentlab._cli._kernels import remembered

    recipe, kernel = remembered(path)
    _run(path, recipe, replace(kernel, device=device, memory=memory), work, output)


def _run(
    path: options.StorePath,
    recipe: "Recipe",
    kernel: options.KernelOptions,
    work: options.WorkOptions,
    output: options.OutputOptions,
    tile: int | None = None,
    dry_run: bool = False,
) -> None:
    from tangentlab import store
    from tangentlab._cli._kernels import engine, machines, stored_network
    from tangentlab._cli._readouts import with_absolute_paths
    from tangentlab.store.internal import exists

    kernel = with_absolute_paths(kernel)
    x = recipe.load_samples()
    model = stored_network(path, recipe, x, output)
    chosen = library_options(kernel, tile, recipe)
    if dry_run or (not output.quiet and not exists(path)):
        workers, processes, memory = machines(work, kernel.memory)
        shared = {"workers": workers, "processes": processes, "memory_budget": memory}
        estimate = store.estimate(model, x, path, **chosen | shared)
        if dry_run:
            say_result(estimate.to_json() if output.as_json else str(estimate), output)
            return
        note(str(estimate), output.quiet)
    with engine(work, kernel.memory) as (places, memory):
        found = store.compute(
            model,
            x,
            path,
            **chosen | {"memory_budget": memory},
            **store_options(recipe, kernel),
            engine=places,
            scratch=work.scratch,
            progress=output.progress,
        )
    state = {
        "path": str(found.path),
        "shape": list(found.shape),
        "complete": found.complete,
        "progress": found.progress,
    }
    say_result(state if output.as_json else repr(found), output)
