"""``tangentlab kernel status``, ``verify`` and ``info``."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from tangentlab._cli import _options as options
from tangentlab._cli._command import command
from tangentlab._cli._output import say, say_text
from tangentlab._cli.kernel._common import say_result

app = typer.Typer()
DAMAGED, INCOMPLETE = 1, 3
"""Exit codes of ``verify``; 2 is that of a wrong option."""


@command(app)
def status(path: options.StoreArgument, output: options.OutputOptions) -> None:
    """Print how far the computation of a store is: tiles, rate, time left, and which workers are running or dead.

    It reads no tile, so it can be called at any time while workers compute the kernel.

    Example: tangentlab kernel status lenet.zarr
    """
    from tangentlab import store

    found = store.status(path)
    say_result(found.to_json() if output.as_json else str(found), output)


@command(app, stopped="Rerun the command to check again; --repair computes what is damaged or missing.")
def verify(
    *,
    path: options.StoreArgument,
    repair: Annotated[
        bool, options.option("--repair", help="Compute damaged and missing tiles again, and no others.")
    ] = False,
    memory: options.Memory = None,
    output: options.OutputOptions,
) -> None:
    """Read every tile and compare it with its checksum.

    The exit code is 0 if all tiles are there and correct, 1 if a tile is damaged, and 3 if none is damaged but some are
    missing. After --repair it is 0.

    Example: tangentlab kernel verify lenet.zarr --repair
    """
    from tangentlab import store

    found = store.open(path).verify(progress=output.progress)
    repaired = bool(repair and (found.damaged or found.missing))
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
    say_result(content if output.as_json else f"{found}{chr(10) + 'repaired' if repaired else ''}", output)
    if not repaired and not (found.good and found.complete):
        raise typer.Exit(INCOMPLETE if found.good else DAMAGED)


@command(app)
def info(path: options.StoreArgument, output: options.OutputOptions) -> None:
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
        say_result(content, output)
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
    facts |= {name: listed(value) for name, value in manifest.provenance.items()}
    say_text(repr(kernel))
    say(facts, False)


def listed(value: Any) -> str:
    """Return a value of a record in words: the entries that were set, inner ones as name=value."""
    if not isinstance(value, Mapping):
        return _plain(value)
    return ", ".join(
        f"{str(name).replace('_', ' ')} {_plain(entry)}" for name, entry in value.items() if entry not in (None, {}, [])
    )


def _plain(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={_plain(entry)}" for name, entry in value.items())
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_plain, value)) + "]"
    return str(value)
