"""``tangentlab kernel``: kernels on disk."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tangentlab._cli import _options as options
from tangentlab._cli._command import CommandGroup, command
from tangentlab._cli._output import note, say, say_text
from tangentlab._errors import TangentError

if TYPE_CHECKING:
    from tangentlab._cli._recipe import Recipe
    from tangentlab.store import StoredKernel

app = typer.Typer(
    help="Compute, resume, verify and share kernels on disk.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    cls=CommandGroup,
)
_RESUME = "Finished tiles are kept. Resume with: tangentlab kernel resume "
Tile = Annotated[
    int | None,
    options.option(value="N", min=1, help="Number of samples along the side of a tile; by default as memory allows."),
]


@command(app, stopped=_RESUME + "{out}")
def compute(
    *,
    out: Annotated[Path, options.option(value="STORE", help="Folder of the store, by convention named *.zarr.")],
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
    path: options.StorePath,
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


@command(app, stopped="Rerun the command to check again; --repair computes what is damaged or missing.")
def verify(
    *,
    path: options.StorePath,
    repair: Annotated[
        bool, options.option("--repair", help="Compute damaged and missing tiles again, and no others.")
    ] = False,
    memory: options.Memory = None,
    output: options.OutputOptions,
) -> None:
    """Read every tile and compare it with its checksum. The exit code is 1 if a tile is damaged.

    Example: tangentlab kernel verify lenet.zarr --repair
    """
    from tangentlab import store

    found = store.open(path).verify(progress=output.progress)
    repaired = bool(repair and found.damaged)
    if repaired:
        from tangentlab._cli._kernels import parse_dtype, remembered, stored_network
        from tangentlab._cli._readouts import load_readout

        recipe, kernel = remembered(path)
        x = recipe.load_samples()
        store.repair(
            stored_network(path, recipe, x, output),
            x,
            path,
            **load_readout(kernel, recipe),
            dtype=parse_dtype(kernel.dtype),
            memory_budget=memory,
            progress=output.progress,
        )
    content = {
        "checked": found.checked,
        "damaged": [list(tile) for tile in found.damaged],
        "missing": len(found.missing),
        "repaired": repaired,
    }
    _say(content if output.as_json else f"{found}{chr(10) + 'repaired' if repaired else ''}", output)
    if found.damaged and not repaired:
        raise typer.Exit(1)


@command(app)
def info(path: options.StorePath, output: options.OutputOptions) -> None:
    """Print what a store holds and how it was made.

    Example: tangentlab kernel info lenet.zarr
    """
    from tangentlab import store
    from tangentlab._memory import show_bytes

    kernel = store.open(path)
    content = {
        "path": str(path),
        "shape": list(kernel.shape),
        "progress": kernel.progress,
        "complete": kernel.complete,
        "bytes": kernel.nbytes_stored,
        "manifest": kernel.manifest.to_json(),
    }
    if output.as_json:
        _say(content, output)
        return
    manifest = kernel.manifest
    targets = [s.targets[:16] for s in manifest.samples if s.targets]
    facts = {
        "model": f"{manifest.model}, weights {manifest.weights[:16]}",
        "samples": f"{kernel.plan.samples}: " + ", ".join(s.sha256[:16] for s in manifest.samples),
        "readout": manifest.readout
        + (f", targets {', '.join(targets)}" if targets else "")
        + f", parameters {manifest.parameters}",
        "tiles": f"{kernel.plan.count} of {manifest.tile} samples, {len(kernel.missing)} missing, "
        f"{show_bytes(kernel.nbytes_stored)}",
        "made by": ", ".join(f"{name} {version}" for name, version in manifest.versions.items()),
    }
    facts |= {name: _listed(value) for name, value in manifest.provenance.items()}
    say_text(repr(kernel))
    say(facts, False)


@command(app)
def export(
    *,
    path: options.StorePath,
    out: Annotated[
        Path,
        options.option(
            value="FILE", help="File to write: *.npy for the whole matrix, *.zip for a packed store; else a folder."
        ),
    ],
    dtype: Annotated[
        str | None, options.option(value="DTYPE", help="Precision to round a packed store to: float32 or float16.")
    ] = None,
    output: options.OutputOptions,
) -> None:
    """Write a kernel as a NumPy file or as one compact file to share, or unpack such a file into a store.

    Example: tangentlab kernel export lenet.zarr --out lenet.zarr.zip
    """
    from tangentlab import store

    if out.suffix == ".zip":
        store.pack(path, out, dtype=dtype, progress=output.progress)
    elif dtype is not None:
        raise TangentError("--dtype rounds a packed store.", f"{out} is none.", "Write to a name that ends in .zip.")
    elif out.suffix == ".npy":
        store.export_npy(path, out, progress=output.progress)
    elif path.is_file():
        store.unpack(path, out, progress=output.progress)
    else:
        raise TangentError(f"It is not clear what {out} should be.", "", "Write to a name in .npy or .zip.")
    _say({"wrote": str(out)} if output.as_json else f"wrote {out}", output)


@command(app)
def plan(
    *,
    network: options.NetworkOptions,
    data: options.SplitOptions,
    kernel: options.KernelOptions,
    tile: Tile = None,
    samples: Annotated[
        str | None,
        options.option(value="N,N", help="Numbers of samples to plan for, separated by commas: 60000,1280000."),
    ] = None,
    workers: Annotated[
        str,
        options.option(value="N,N", help="Numbers of workers like this machine, separated by commas: 1,8,64."),
    ] = "1",
    output: options.OutputOptions,
) -> None:
    """Measure for a few seconds and estimate what kernels of other sizes, or on more machines, will take.

    Example: tangentlab kernel plan --model resnet18 --data cifar10 --samples 60000,1280000 --workers 1,64
    """
    from tangentlab import store
    from tangentlab._cli._kernels import load_network
    from tangentlab._cli._recipe import make_recipe

    recipe = make_recipe(network, data)
    counts = _numbers(workers, "--workers")
    sizes: list[int | None] = [*_numbers(samples, "--samples")] if samples else [None]
    x = recipe.load_samples()
    model, found = load_network(recipe, x, output), []
    for size in sizes:
        measured = store.probe(model, x, Path.cwd(), samples=size, **_estimate_options(kernel, tile, recipe))
        found += [measured.estimate(count) for count in counts]
    _say([estimate.to_json() for estimate in found] if output.as_json else "\n".join(map(str, found)), output)


def _estimate_options(kernel: options.KernelOptions, tile: int | None, recipe: "Recipe") -> dict[str, Any]:
    from tangentlab._cli._kernels import parse_device, parse_dtype
    from tangentlab._cli._readouts import load_readout

    return {
        **load_readout(kernel, recipe),
        "dtype": parse_dtype(kernel.dtype),
        "device": parse_device(kernel.device),
        "tile": tile,
        "memory_budget": kernel.memory,
    }


def _run(
    path: Path,
    recipe: "Recipe",
    kernel: options.KernelOptions,
    work: options.WorkOptions,
    output: options.OutputOptions,
    tile: int | None = None,
    dry_run: bool = False,
) -> None:
    from tangentlab import store
    from tangentlab._cli._kernels import engine, stored_network
    from tangentlab._cli._readouts import with_absolute_paths
    from tangentlab.engines import Shard
    from tangentlab.store.internal import exists

    kernel = with_absolute_paths(kernel)
    x = recipe.load_samples()
    model = stored_network(path, recipe, x, output)
    chosen = _estimate_options(kernel, tile, recipe)
    if dry_run or (not output.quiet and not exists(path)):
        # Only workers with a machine of their own make it faster.
        workers = Shard.parse(work.shard).workers if work.shard else 1
        estimate = store.estimate(model, x, path, workers=workers, **chosen)
        if dry_run:
            _say(estimate.to_json() if output.as_json else str(estimate), output)
            return
        note(str(estimate), output.quiet)
    with engine(work, kernel.memory) as (places, memory):
        found = store.compute(
            model,
            x,
            path,
            **chosen | {"memory_budget": memory},
            engine=places,
            scratch=work.scratch,
            provenance={
                "recipe": recipe.to_json(),
                "options": {
                    "readout": kernel.readout,
                    "dtype": kernel.dtype,
                    **({} if kernel.targets is None else {"targets": str(kernel.targets)}),
                },
            },
            keep_weights=recipe.checkpoint is None,
            progress=output.progress,
        )
    _say(_state(found) if output.as_json else repr(found), output)


def _state(kernel: "StoredKernel") -> dict[str, Any]:
    return {
        "path": str(kernel.path),
        "shape": list(kernel.shape),
        "complete": kernel.complete,
        "progress": kernel.progress,
    }


def _listed(value: Any) -> str:
    """Return the entries of a record that were set."""
    if not isinstance(value, dict):
        return str(value)
    return ", ".join(f"{name} {entry}" for name, entry in value.items() if entry not in (None, {}))


def _numbers(text: str, name: str) -> list[int]:
    try:
        numbers = [int(part.replace("_", "")) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise TangentError(f"{name} is {text!r}.", "", "Pass positive numbers with commas between them.")
    return numbers


def _say(content: Any, output: options.OutputOptions) -> None:
    if output.as_json:
        print(json.dumps(content, indent=1, default=os.fspath))
    else:
        say_text(content)
