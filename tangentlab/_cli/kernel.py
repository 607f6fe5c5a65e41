"""``tangentlab kernel``: kernels on disk."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from tangentlab._cli import _options as options
from tangentlab._errors import TangentError

if TYPE_CHECKING:
    from tangentlab._cli._recipe import Recipe
    from tangentlab.store import StoredKernel

app = typer.Typer(
    help="Kernels on disk: compute, resume, verify, share.", no_args_is_help=True, pretty_exceptions_enable=False
)
INTERRUPTED = 130
"""Exit code after Ctrl-C."""


@app.command()
def compute(
    out: Annotated[Path, typer.Option(help="The store, a folder; by custom *.zarr.")],
    model: options.Model = None,
    model_option: options.ModelOption = None,
    checkpoint: options.Checkpoint = None,
    data: options.Data = None,
    data_dir: options.DataDir = None,
    split: options.Split = "train",
    n_train: options.NTrain = None,
    n_test: options.NTest = None,
    data_seed: options.DataSeed = 0,
    readout: options.Readout = "pntk",
    dtype: options.Dtype = None,
    device: options.Device = None,
    tile: options.Tile = None,
    memory: options.Memory = None,
    scratch: options.Scratch = None,
    scheduler: options.Scheduler = None,
    workers: options.Workers = None,
    shard: options.ShardOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it will take.")] = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compute a kernel into a store. The same command again goes on where it stopped.

    Example: tangentlab kernel compute --model lenet -o variant=ortiz2021 -o outputs=1 -o seed=0 --data cifar10
    --split all --memory 8GiB --out lenet.zarr
    """
    recipe = _recipe(model, model_option, checkpoint, data, data_dir, split, n_train, n_test, data_seed)
    chosen = {"readout": readout, "dtype": dtype}
    local = {"device": device, "tile": tile, "memory": memory, "scratch": scratch, "quiet": quiet}
    where = {"scheduler": scheduler, "workers": workers, "shard": shard}
    _run(out, recipe, chosen, local, where, as_json, dry_run)


@app.command()
def resume(
    path: options.StorePath,
    device: options.Device = None,
    memory: options.Memory = None,
    scratch: options.Scratch = None,
    scheduler: options.Scheduler = None,
    workers: options.Workers = None,
    shard: options.ShardOption = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Go on with a store that 'tangentlab kernel compute' began: it remembers model, data and options.

    Example: tangentlab kernel resume lenet.zarr
    """
    recipe, chosen = _remembered(path)
    local = {"device": device, "tile": None, "memory": memory, "scratch": scratch, "quiet": quiet}
    _run(path, recipe, chosen, local, {"scheduler": scheduler, "workers": workers, "shard": shard}, as_json)


@app.command()
def verify(
    path: options.StorePath,
    repair: Annotated[bool, typer.Option("--repair", help="Compute the damaged tiles again, and only them.")] = False,
    memory: options.Memory = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Read every tile and compare it with its checksum; the exit code is 1 if one is damaged.

    Example: tangentlab kernel verify lenet.zarr --repair
    """
    from tangentlab import store

    found = store.open(path).verify(progress=False if quiet else None)
    repaired = bool(repair and found.damaged)
    if repaired:
        recipe, chosen = _remembered(path)
        with _interruptible(path):
            model, x = recipe.load()
            store.repair(
                model, x, path, memory_budget=memory, progress=False if quiet else None, **_kernel_options(chosen)
            )
    content = {
        "checked": found.checked,
        "damaged": [list(tile) for tile in found.damaged],
        "missing": len(found.missing),
        "repaired": repaired,
    }
    _say(content if as_json else f"{found}{chr(10) + 'repaired' if repaired else ''}", as_json)
    if found.damaged and not repaired:
        raise typer.Exit(1)


@app.command()
def info(path: options.StorePath, as_json: options.Json = False) -> None:
    """Say what a store holds.

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
    if as_json:
        _say(content, True)
        return
    manifest = kernel.manifest
    lines = [
        repr(kernel),
        f"  model    {manifest.model}, weights {manifest.weights[:16]}",
        f"  samples  {kernel.plan.samples}: " + ", ".join(s.sha256[:16] for s in manifest.samples),
        f"  readout  {manifest.readout}, parameters {manifest.parameters}",
        f"  tiles    {kernel.plan.count} of {manifest.tile} samples, {len(kernel.missing)} missing, "
        f"{show_bytes(kernel.nbytes_stored)}",
        "  made by  " + ", ".join(f"{name} {version}" for name, version in manifest.versions.items()),
    ]
    lines += [f"  {name}  {value}" for name, value in manifest.provenance.items()]
    _say("\n".join(lines), False)


@app.command()
def export(
    path: options.StorePath,
    out: Annotated[Path, typer.Option(help="*.npy for the whole matrix, *.zip for a packed store, else a folder.")],
    dtype: Annotated[str | None, typer.Option(help="Round a packed store to float32 or float16.")] = None,
    quiet: options.Quiet = False,
) -> None:
    """Write a kernel as a NumPy file, as one compact file to share, or (from such a file) as a store again.

    Example: tangentlab kernel export lenet.zarr --out lenet.zarr.zip
    """
    from tangentlab import store

    progress = False if quiet else None
    with _interruptible(path, again=False):
        if out.suffix == ".zip":
            store.pack(path, out, dtype=dtype, progress=progress)
        elif dtype is not None:
            raise TangentError(
                "--dtype rounds a packed store.", f"{out} is none.", "write to a name that ends in .zip."
            )
        elif out.suffix == ".npy":
            store.export_npy(path, out, progress=progress)
        elif path.is_file():
            store.unpack(path, out, progress=progress)
        else:
            raise TangentError(f"it is not clear what {out} should be.", "", "write to a name in .npy or .zip.")
    _say(f"wrote {out}", False)


@app.command()
def plan(
    model: options.Model = None,
    model_option: options.ModelOption = None,
    checkpoint: options.Checkpoint = None,
    data: options.Data = None,
    data_dir: options.DataDir = None,
    split: options.Split = "train",
    n_train: options.NTrain = None,
    n_test: options.NTest = None,
    data_seed: options.DataSeed = 0,
    readout: options.Readout = "pntk",
    dtype: options.Dtype = None,
    device: options.Device = None,
    tile: options.Tile = None,
    memory: options.Memory = None,
    samples: Annotated[str | None, typer.Option(help="Numbers of samples, for instance 60000,1280000.")] = None,
    workers: Annotated[str, typer.Option(help="Numbers of workers like this machine, for instance 1,8,64.")] = "1",
    as_json: options.Json = False,
) -> None:
    """Measure for a few seconds and say what kernels of other sizes, or on more machines, will take.

    Example: tangentlab kernel plan --model resnet18 --data cifar10 --samples 60000,1280000 --workers 1,64
    """
    from tangentlab import store

    recipe = _recipe(model, model_option, checkpoint, data, data_dir, split, n_train, n_test, data_seed)
    local, chosen = {"device": device, "tile": tile, "memory": memory}, {"readout": readout, "dtype": dtype}
    counts = _numbers(workers, "--workers")
    found = []
    network, x = recipe.load()
    for size in _numbers(samples, "--samples") if samples else [None]:
        measured = store.probe(network, x, Path.cwd(), samples=size, **_estimate_options(chosen, local))
        found += [measured.estimate(count) for count in counts]
    _say([estimate.to_json() for estimate in found] if as_json else "\n".join(map(str, found)), as_json)


def _recipe(
    model: str | None,
    model_option: list[str] | None,
    checkpoint: Path | None,
    data: str | None,
    data_dir: Path | None,
    split: str,
    n_train: int | None,
    n_test: int | None,
    data_seed: int,
) -> "Recipe":
    from tangentlab._cli._recipe import make_recipe

    return make_recipe(model, model_option, checkpoint, data, data_dir, split, n_train, n_test, data_seed)


def _remembered(path: Path) -> tuple["Recipe", dict[str, Any]]:
    """How a store was made."""
    from tangentlab import store
    from tangentlab._cli._recipe import Recipe

    provenance = store.open(path).manifest.provenance
    return Recipe.from_json(provenance.get("recipe")), dict(provenance.get("options", {}))


def _kernel_options(chosen: dict[str, Any]) -> dict[str, Any]:
    import torch

    from tangentlab.store._array import DTYPES

    readout, dtype = chosen.get("readout", "pntk"), chosen.get("dtype")
    number = str(readout).lstrip("-").isdecimal()
    if dtype is not None and dtype not in DTYPES:
        raise TangentError(f"there is no dtype {dtype!r}.", "", f"choose one of {', '.join(DTYPES)}.")
    kept: torch.dtype | None = None if dtype is None else DTYPES[dtype]
    return {"readout": int(readout) if number else readout, "dtype": kept}


def _estimate_options(chosen: dict[str, Any], local: dict[str, Any]) -> dict[str, Any]:
    shared = {"device": local["device"], "tile": local["tile"], "memory_budget": local["memory"]}
    return shared | _kernel_options(chosen)


def _run(
    path: Path,
    recipe: "Recipe",
    chosen: dict[str, Any],
    local: dict[str, Any],
    where: dict[str, Any],
    as_json: bool,
    dry_run: bool = False,
) -> None:
    from tangentlab import store
    from tangentlab.store._array import exists

    model, x = recipe.load()
    if dry_run or (not local["quiet"] and not exists(path)):
        estimate = store.estimate(model, x, path, workers=_count(where), **_estimate_options(chosen, local))
        if dry_run:
            _say(estimate, as_json)
            return
        Console(stderr=True, highlight=False).print(str(estimate), soft_wrap=True)
    with _interruptible(path), _engine(where, local["memory"]) as (engine, memory):
        kernel = store.compute(
            model,
            x,
            path,
            **_kernel_options(chosen),
            device=local["device"],
            tile=local["tile"],
            memory_budget=memory,
            engine=engine,
            scratch=local["scratch"],
            provenance={"recipe": recipe.to_json(), "options": chosen},
            progress=False if local["quiet"] else None,
        )
    _say(_state(kernel) if as_json else repr(kernel), as_json)


def _state(kernel: "StoredKernel") -> dict[str, Any]:
    return {
        "path": str(kernel.path),
        "shape": list(kernel.shape),
        "complete": kernel.complete,
        "progress": kernel.progress,
    }


def _count(where: dict[str, Any]) -> int:
    """Workers that an estimate is made for: only those with a machine of their own make it faster."""
    from tangentlab.engines import Shard

    return Shard.parse(where["shard"]).workers if where["shard"] else 1


@contextmanager
def _engine(where: dict[str, Any], memory: str | None) -> Iterator[tuple[Any, Any]]:
    """The engine that the options ask for, and the memory of each of its local processes."""
    from tangentlab import engines
    from tangentlab._memory import parse_bytes

    scheduler, workers, shard = where["scheduler"], where["workers"], where["shard"]
    if shard and (scheduler or workers):
        raise TangentError("--shard was given with --scheduler or --workers.", "a shard is one process.", "pass one.")
    if workers and scheduler not in (None, "local"):
        raise TangentError(
            "--workers was given with the address of a scheduler.", "its workers are its own.", "pass one."
        )
    share = parse_bytes(memory) // workers if memory and workers else memory
    if shard:
        yield engines.Shard.parse(shard), memory
    elif scheduler:
        with engines.Dask(workers if scheduler == "local" else scheduler) as cluster:
            yield cluster, share
    elif workers and workers > 1:
        with engines.process_pool(workers) as pool:
            yield engines.Executor(pool, workers), share
    else:
        yield None, memory


@contextmanager
def _interruptible(path: Path, again: bool = True) -> Iterator[None]:
    """Ctrl-C ends with a message and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        console = Console(stderr=True, highlight=False)
        hint = (
            f"Finished tiles are kept. Go on with: tangentlab kernel resume {path}"
            if again
            else "Nothing is left over."
        )
        console.print(f"Stopped. {hint}", soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None


def _numbers(text: str, name: str) -> list[int]:
    try:
        numbers = [int(part.replace("_", "")) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise TangentError(f"{name} is {text!r}.", "", "pass positive numbers with commas between them.")
    return numbers


def _say(content: Any, as_json: bool) -> None:
    if not as_json:
        print(content)
        return
    print(json.dumps(content.to_json() if hasattr(content, "to_json") else content, indent=1, default=os.fspath))
