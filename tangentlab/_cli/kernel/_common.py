"""What the commands for kernels on disk share: arguments of the library from options, and printing."""

import json
import os
from typing import TYPE_CHECKING, Annotated, Any

from tangentlab._cli import _options as options
from tangentlab._cli._output import say_text

if TYPE_CHECKING:
    from tangentlab._cli._recipe import Recipe

Tile = Annotated[
    int | None,
    options.option(value="N", min=1, help="Number of samples along the side of a tile; by default as memory allows."),
]


def library_options(kernel: options.KernelOptions, tile: int | None, recipe: "Recipe") -> dict[str, Any]:
    """Return the arguments of :func:`tangentlab.store.compute` that choose the kernel."""
    from tangentlab._cli._kernels import parse_device, parse_dtype
    from tangentlab._cli._readouts import load_readout

    return {
        **load_readout(kernel, recipe),
        "dtype": parse_dtype(kernel.dtype),
        "device": parse_device(kernel.device),
        "tile": tile,
        "memory_budget": kernel.memory,
    }


def store_options(recipe: "Recipe", kernel: options.KernelOptions) -> dict[str, Any]:
    """Return the arguments of :func:`tangentlab.store.compute` that let a store resume without any options."""
    chosen = {"readout": kernel.readout, "dtype": kernel.dtype}
    if kernel.targets is not None:
        chosen["targets"] = str(kernel.targets)
    return {
        "provenance": {"recipe": recipe.to_json(), "options": chosen},
        "keep_weights": recipe.checkpoint is None,
    }


def say_result(content: Any, output: options.OutputOptions) -> None:
    """Print a result: JSON, or text."""
    if output.as_json:
        print(json.dumps(content, indent=1, default=os.fspath))
    else:
        say_text(content)
