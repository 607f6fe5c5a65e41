"""``tangentlab kernel export``."""

from pathlib import Path
from typing import Annotated

import typer

from tangentlab._cli import _options as options
from tangentlab._cli._command import command
from tangentlab._cli.kernel._common import say_result
from tangentlab._errors import TangentError

app = typer.Typer()


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
    say_result({"wrote": str(out)} if output.as_json else f"wrote {out}", output)
