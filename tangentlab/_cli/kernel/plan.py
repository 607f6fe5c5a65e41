"""``tangentlab kernel plan``."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tangentlab._cli import _options as options
from tangentlab._cli._command import command
from tangentlab._cli.kernel import _methods
from tangentlab._cli.kernel._common import Tile, library_options, say_result
from tangentlab._errors import TangentError

if TYPE_CHECKING:
    from tangentlab._cli._recipe import Recipe
    from tangentlab.solvers import MethodCost
    from tangentlab.store import Estimate

app = typer.Typer()
_RANDOM_BYTES = 256 * 1024**2
_FEWEST, _MOST = 16, 512
"""Random inputs that are measured: as many as fit into these bytes, within these numbers."""


@command(app)
def plan(
    *,
    network: options.NetworkOptions,
    data: options.SplitOptions,
    shape: Annotated[
        str | None,
        options.option(value="C,H,W", help="Shape of one input, to plan with random inputs in place of --data."),
    ] = None,
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
    vocabulary: Annotated[
        int | None,
        options.option(value="V", min=2, help="With --shape: random whole numbers below V, such as tokens."),
    ] = None,
    regression: _methods.MethodOptions,
    output: options.OutputOptions,
) -> None:
    """Measure for a few seconds and estimate what kernels of other sizes, or on more machines, will take.

    The cost depends on the shape of the inputs: it is that of --data, or the one that --shape gives. The result states
    what was measured and what it assumes. With --methods, or a --price, it compares the methods of regression with that
    kernel, and says which to choose.

    Example: tangentlab kernel plan --model resnet18 --shape 3,224,224 -o outputs=1000 --samples 1280000 --workers 1,64
    """
    from tangentlab import store
    from tangentlab._cli._kernels import load_network

    counts = _numbers(workers, "--workers")
    recipe, x, inputs = _inputs(network, data, shape, vocabulary)
    if shape is not None and samples is None:
        raise TangentError("--samples is missing.", "--shape says nothing about their number.", "Pass --samples N.")
    sizes: list[int | None] = [*_numbers(samples, "--samples")] if samples else [None]
    model, found = load_network(recipe, x, output), []
    chosen = library_options(kernel, tile, recipe)
    machine = _methods.measured(regression, model, x, chosen) if regression.asked else None
    for size in sizes:
        measured = store.probe(model, x, Path.cwd(), samples=size, **chosen)
        for count in counts:
            costs = _methods.compared(regression, measured, machine, count) if machine else []
            found.append((measured.estimate(count), costs))
    about = _assumptions(recipe, model, kernel, inputs, measured)
    about += _methods.assumptions(regression, machine) if machine else []
    if output.as_json:
        say_result([_as_json(*pair, regression) | {"assumptions": about} for pair in found], output)
        return
    lines = []
    for estimate, costs in found:
        lines += [str(estimate), *([_methods.as_text(regression, estimate.samples, costs)] if costs else [])]
    say_result("\n".join([*lines, "assumed:", *(f"  {line}" for line in about)]), output)


def _as_json(estimate: "Estimate", costs: "list[MethodCost]", regression: _methods.MethodOptions) -> dict[str, Any]:
    if not costs:
        return estimate.to_json()
    choice = _methods.choice(regression, estimate.samples, costs)
    return estimate.to_json() | {"methods": [cost.to_json() for cost in costs], "choose": choice}


def _inputs(
    network: options.NetworkOptions, data: options.SplitOptions, shape: str | None, vocabulary: int | None
) -> tuple["Recipe", Any, str]:
    """Return the recipe, some inputs, and what they are, in words."""
    import torch

    from tangentlab._cli._recipe import make_recipe
    from tangentlab._cli._samples import count, index

    if shape is None:
        if vocabulary is not None:
            raise TangentError(
                "--vocabulary was given without --shape.", "The data have their own tokens.", "Leave it out."
            )
        recipe = make_recipe(network, data)
        x = recipe.load_samples()
        sizes = x.input_shape if hasattr(x, "input_shape") else _shape_of(index(x, slice(0, 1)))
        return recipe, x, f"{count(x):,} samples of {Path(recipe.data).name}, {_show(sizes)}"
    if data.data is not None:
        raise TangentError("Both --data and --shape were given.", "The data have their own shape.", "Pass one of them.")
    sizes = tuple(_numbers(shape, "--shape"))
    rows = max(_FEWEST, min(_MOST, _RANDOM_BYTES // (4 * math.prod(sizes))))
    generator = torch.Generator().manual_seed(0)
    if vocabulary is not None:
        tokens = torch.randint(vocabulary, (rows, *sizes), generator=generator)
        return make_recipe(network), tokens, f"{rows} inputs of random tokens below {vocabulary:,}, {_show(sizes)}"
    x = torch.randn(rows, *sizes, generator=generator)
    return make_recipe(network), x, f"{rows} random inputs, {_show(sizes)}"


def _shape_of(row: Any) -> Any:
    return {name: tuple(part.shape[1:]) for name, part in row.items()} if isinstance(row, dict) else row.shape[1:]


def _show(shape: Any) -> str:
    if isinstance(shape, dict):
        return "; ".join(f"{name} {_show(part)}" for name, part in shape.items())
    return "numbers" if len(shape) == 0 else "shape " + " x ".join(map(str, shape))


def _assumptions(recipe: "Recipe", model: Any, kernel: options.KernelOptions, inputs: str, measured: Any) -> list[str]:
    """Return what the estimates rest on, one sentence each."""
    import torch

    from tangentlab._memory import show_bytes

    parameters = sum(p.numel() for p in model.parameters())
    device = kernel.device or str(next((p.device for p in model.parameters()), "cpu"))
    threads = torch.get_num_threads()
    return [
        f"Measured on {inputs}. Inputs of another shape take another time; pass it as --shape.",
        f"{Path(recipe.model).name} with {parameters:,} parameters, readout {kernel.readout}, "
        f"{measured.itemsize * 8} bits per number.",
        f"A worker is a machine like this one: {device}, {threads} thread{'s' * (threads != 1)}, "
        f"{show_bytes(measured.disk.write)} per second to the disk of this folder.",
        "Workers share one file system that is as fast for all of them as this disk is for one.",
    ]


def _numbers(text: str, name: str) -> list[int]:
    try:
        numbers = [int(part.replace("_", "")) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise TangentError(f"{name} is {text!r}.", "", "Pass positive numbers with commas between them.")
    return numbers
