"""``tangentlab kernel submit``."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tangentlab._cli import _options as options
from tangentlab._cli._command import command
from tangentlab._cli._output import note
from tangentlab._cli.kernel._common import Tile, library_options, say_result, store_options
from tangentlab._errors import TangentError

if TYPE_CHECKING:
    from tangentlab.engines import Resources

app = typer.Typer()


@command(app, stopped="Nothing was submitted. Rerun the command.")
def submit(
    *,
    out: options.StoreOut,
    slurm: Annotated[bool, options.option("--slurm", help="Submit a job array to Slurm.")] = False,
    shards: Annotated[
        int, options.option(value="N", min=1, help="Number of tasks of the job array, each of which computes a part.")
    ] = 8,
    cpus: Annotated[
        int | None,
        options.option(value="N", min=1, help="Cores, and threads, per task; by default those PyTorch uses here."),
    ] = None,
    time: Annotated[
        str | None,
        options.option(value="TIME", help="Time limit per task as Slurm writes it; by default twice the estimate."),
    ] = None,
    sbatch: Annotated[
        list[str] | None,
        options.option(
            value="OPTION", help="Further option of sbatch, for instance --sbatch=--partition=long. Repeat for others."
        ),
    ] = None,
    logs: Annotated[
        Path | None, options.option(value="FOLDER", help="Folder for the tasks' output; by default STORE.logs.")
    ] = None,
    network: options.NetworkOptions,
    samples: options.SplitOptions,
    kernel: options.KernelOptions,
    tile: Tile = None,
    scratch: Annotated[
        Path | None,
        options.option(value="FOLDER", help="Folder for factors that tasks share; by default inside the store."),
    ] = None,
    dry_run: Annotated[
        bool, options.option("--dry-run", help="Print the job script and submit nothing; no store is created.")
    ] = False,
    output: options.OutputOptions,
) -> None:
    """Submit a job array that computes a kernel: with the memory, time and threads of an estimate measured here.

    Repeat the command to submit what is missing: parts that are complete, and tasks that are queued or running, are
    left out. For an existing store, --out is enough, because it remembers model, data and options.

    Example: tangentlab kernel submit --slurm --model lenet -o variant=ortiz2021 --data cifar10 --split all --shards 16
    --out /scratch/lenet.zarr
    """
    from tangentlab import engines, store
    from tangentlab._cli._kernels import remembered, stored_network
    from tangentlab._cli._readouts import with_absolute_paths
    from tangentlab._cli._recipe import make_recipe
    from tangentlab._memory import show_bytes
    from tangentlab.store.internal import exists

    if not slurm:
        raise TangentError(
            "--slurm is missing.", "Slurm is the only batch system that submit supports.", "Pass --slurm."
        )
    if not dry_run:
        engines.require_slurm()
    out = out.absolute() if isinstance(out, Path) else out
    if exists(out) and network.model is None:
        recipe, known = remembered(out)
        kernel = replace(known, device=kernel.device, memory=kernel.memory)
    else:
        recipe, kernel = make_recipe(network, samples), with_absolute_paths(kernel)
    x = recipe.load_samples()
    model = stored_network(out, recipe, x, output)
    chosen = library_options(kernel, tile, recipe)
    resources, budget = _resources(model, x, out, shards, cpus, chosen)
    name = "tangentlab-kernel"
    todo: list[int] = list(range(shards))
    queued: dict[int, str] = {}
    if exists(out) or not dry_run:
        found = store.create(model, x, out, **chosen | {"memory_budget": budget}, **store_options(recipe, kernel))
        name = f"kernel-{found.manifest.key[:8]}-{shards}"
        queued = {} if dry_run else engines.slurm_queue(name)
        missing = store.missing_shards(out, shards)
        todo = [shard for shard in missing if shard not in queued]
        if not missing:
            say_result({"job": None, "shards": []} if output.as_json else f"{out} is complete.", output)
            return
        if not todo:
            text = f"Every missing part of {out} is queued or running: {engines.array_of(sorted(queued))}."
            say_result({"job": None, "shards": []} if output.as_json else text, output)
            return
    logs = (logs or _beside(out)).absolute()
    script = engines.slurm_script(
        name,
        _task(out, shards, budget, kernel.device, scratch),
        todo,
        resources,
        options=[*([f"--time={time}"] if time else []), f"--output={logs}/%A_%a.log", *(sbatch or [])],
    )
    if dry_run:
        if output.as_json:
            say_result({"script": script, "shards": todo}, output)
        else:
            print(script, end="")  # as it is: wrapped lines would be another script
        return
    logs.mkdir(parents=True, exist_ok=True)
    job = engines.slurm_submit(script)
    asked = f"{resources.cpus} cores, {show_bytes(resources.memory)}, {time or resources.time} per task"
    note(f"Requested {asked}. See how far it is: tangentlab kernel status {shlex.quote(str(out))}", output.quiet)
    about = {"job": job, "name": name, "shards": todo, "queued": sorted(queued), "logs": str(logs)}
    text = f"submitted job {job}, tasks {engines.array_of(todo)} of {shards}"
    say_result(about if output.as_json else text, output)


def _resources(
    model: Any, x: Any, out: options.StorePath, shards: int, cpus: int | None, chosen: dict[str, Any]
) -> tuple["Resources", int]:
    """Measure, and return what a task requests and its memory budget in bytes.

    A task may have to compute its whole part, so the tiles that exist already are not taken into account.
    """
    import torch

    from tangentlab import store

    before = torch.get_num_threads()
    threads = cpus or before
    try:
        torch.set_num_threads(threads)
        estimate = replace(store.probe(model, x, out, **chosen), missing=1.0).estimate(shards)
    finally:
        torch.set_num_threads(before)
    return estimate.resources(threads), estimate.budget


def _beside(out: options.StorePath) -> Path:
    """Return the folder of the logs: beside the store, or in this folder if the store is elsewhere."""
    return out.with_name(out.name + ".logs") if isinstance(out, Path) else Path(out.rpartition("/")[2] + ".logs")


def _task(out: options.StorePath, shards: int, budget: int, device: str | None, scratch: Path | None) -> str:
    """Return the command of a task; the shell fills in its number."""
    words = [sys.executable, "-m", "tangentlab.cli", "kernel", "resume", str(out), "--memory", str(budget), "--quiet"]
    words += ["--device", device] if device else []
    words += ["--scratch", str(scratch.absolute())] if scratch else []
    return f'{shlex.join(words)} --shard "$SLURM_ARRAY_TASK_ID/{shards}"'
