"""``tangentlab kernel export``."""

from pathlib import PurePath
from typing import Annotated, Any

import typer

from tangentlab._cli import _options as options
from tangentlab._cli._command import command
from tangentlab._cli.kernel._common import say_result
from tangentlab._errors import TangentError

app = typer.Typer()


@command(app)
def export(
    *,
    path: options.StoreArgument,
    out: Annotated[
        Any,
        options.option(
            parser=options.store_path,
            value="FILE",
            help="Where to write: *.npy for the whole matrix, *.zip for a packed store; else a folder or an address.",
        ),
    ],
    symmetric: Annotated[
        bool, options.option("--symmetric", help="Write a plain Zarr array with both triangles, for other programs.")
    ] = False,
    dtype: Annotated[
        str | None, options.option(value="DTYPE", help="Precision to round a packed store to: float32 or float16.")
    ] = None,
    output: options.OutputOptions,
) -> None:
    """Write a kernel as a NumPy file, a plain Zarr array or one compact file to share, or copy it into another store.

    A copy is a store as before: a packed file is unpacked, and a store is copied between folders and object stores.

    Example: tangentlab kernel export lenet.zarr --out lenet.zarr.zip
    """
    from tangentlab import store

    suffix = PurePath(out).suffix
    if symmetric and (dtype is not None or suffix in (".zip", ".npy")):
        raise TangentError("--symmetric writes a folder.", "", "Leave --dtype out, and write to a name like all.zarr.")
    if symmetric:
        store.export_zarr(path, out, progress=output.progress)
    elif suffix == ".zip":
        store.pack(path, out, dtype=dtype, progress=output.progress)
    elif dtype is not None:
        raise TangentError("--dtype rounds a packed store.", f"{out} is none.", "Write to a name that ends in .zip.")
    elif suffix == ".npy":
        store.export_npy(path, out, progress=output.progress)
    elif suffix == ".zarr" or store.open(path).packed:
        store.copy(path, out, progress=output.progress)
    else:
        raise TangentError(f"It is not clear what {out} should be.", "", "Write to a name in .npy, .zip or .zarr.")
    say_result({"wrote": str(out)} if output.as_json else f"wrote {out}", output)
