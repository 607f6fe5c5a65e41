"""``tangentlab compare-checkpoints``: two checkpoints of one network, compared by their kernels."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tangentlab._cli import _options as options
from tangentlab._cli._command import command
from tangentlab._cli._output import Folder, say, say_table
from tangentlab._errors import TangentError

app = typer.Typer()


@command(app)
def compare_checkpoints(
    *,
    first: Annotated[Path, typer.Argument(metavar="FIRST", help="File with the weights of the first checkpoint.")],
    second: Annotated[Path, typer.Argument(metavar="SECOND", help="File with the weights of the second checkpoint.")],
    network: options.NetworkOptions,
    samples: options.DataOptions = options.DIGITS,
    task: Annotated[
        str | None,
        options.option(
            value="TASK", help="Targets to align with: classes, cifar2, one-hot, random, or one-vs-rest:CLASS."
        ),
    ] = None,
    k: Annotated[
        int, options.option("-k", value="K", min=1, help="Eigenvectors for rotation and energy concentration.")
    ] = 10,
    chosen: options.KernelOptions,
    output: options.FolderOptions,
) -> None:
    """Compare the kernels of a network at two checkpoints.

    Prints distance, rotation, alignments, effective ranks and the linearization error between them. Checkpoints are
    state dicts (.pt), .safetensors, or checkpoints of 'tangentlab train'. With --out: checkpoints.csv and spectra.png.

    Example: tangentlab compare-checkpoints start.pt trained.pt --model mlp --data digits --n-train 200
    """
    from tangentlab import analysis
    from tangentlab._cli._kernels import parse_device, parse_dtype
    from tangentlab._cli._learning_task import load_task
    from tangentlab._cli._readouts import load_readout
    from tangentlab._cli._recipe import make_recipe

    readout = load_readout(chosen)
    if chosen.readout in ("full", "per_class") or "targets" in readout:
        raise TangentError(
            f"--readout is {chosen.readout}.",
            "Each checkpoint has one (N, N) kernel, whatever the targets are.",
            "Choose the readout pntk, trace, or one output.",
        )
    recipe = make_recipe(network, samples)
    learning = load_task(recipe, task, chosen.device, output)
    train = learning.data.train
    found = analysis.compare_checkpoints(
        learning.model,
        first,
        second,
        learning.placed(train.batch(range(len(train)))[0]),
        targets=learning.targets(train),
        k=k,
        dtype=parse_dtype(chosen.dtype),
        device=parse_device(chosen.device),
        memory_budget=chosen.memory,
        **readout,
    )
    table = found.to_pandas()
    table["checkpoint"] = [first.name, second.name]
    facts: dict[str, Any] = {
        "kernel_distance": found.distance,
        "overlap_of_eigenspaces": found.rotation.overlap,
        "linearization_error": found.linearization_error,
        "weight_distance": found.weight_distance,
    }
    folder = Folder(output.out)
    folder.table("checkpoints.csv", table)
    if output.out is not None:
        pairs = zip((first.name, second.name), found.spectra.values(), strict=True)
        named = {f"{n + 1}: {name}": s for n, (name, s) in enumerate(pairs)}
        folder.figure("spectra.png", lambda plot: plot.spectrum(named))
    folder.record(facts)
    if output.as_json:
        say({**facts, "checkpoints": table.to_dict("records")}, True)
    else:
        say(facts, False)
        say_table(table)
