"""``tangentlab spectrum``, ``align`` and ``nads``: measures of a kernel."""

from typing import Annotated, Any

import typer

from tangentlab._cli import _options as options
from tangentlab._cli._command import command
from tangentlab._cli._output import Folder, say, say_table
from tangentlab._errors import TangentError

app = typer.Typer()


@command(app)
def spectrum(
    *,
    source: options.KernelSourceOptions,
    samples: options.SplitOptions = options.DIGITS_SPLIT,
    chosen: options.KernelOptions,
    k: Annotated[
        int | None, options.option("-k", value="K", min=1, help="Number of leading eigenpairs; by default all.")
    ] = None,
    output: options.FolderOptions,
) -> None:
    """Compute the eigenvalues of a kernel, its effective rank and its condition number.

    With --out: spectrum.csv, eigenvectors.npz and spectrum.png.

    Example: tangentlab spectrum --model mlp --data digits --n-train 500 -k 100 --out runs/spectrum
    """
    from tangentlab import linalg, store
    from tangentlab._cli._kernels import compute, load_network
    from tangentlab._cli._readouts import load_readout
    from tangentlab._cli._recipe import make_recipe

    gram: Any
    if source.kernel is not None:
        gram = store.open(source.kernel)
    else:
        recipe = make_recipe(source, samples)
        x = recipe.load_samples()
        model = load_network(recipe, x, output)
        gram = compute(model, x, kernel=chosen, output=output, readout=load_readout(chosen, recipe))
    found = linalg.eigh(gram, k, progress=output.progress)
    facts: dict[str, Any] = {
        "size": found.n,
        "eigenpairs": len(found.values),
        "largest": float(found.values[0]),
        "smallest": float(found.values[-1]),
        "largest_residual": float(found.residuals.max()),
        "trace": float(linalg.trace(gram)),
        "method": found.method,
    }
    if not facts["largest"] > 0 or not facts["trace"] > 0:
        raise TangentError("The kernel is zero.", "It has no spectrum to describe.", "Look at the model and its data.")
    facts["share_of_trace"] = float(found.values.sum()) / facts["trace"]
    if found.complete:
        facts["effective_rank_of_J"] = float(linalg.effective_rank(linalg.singular_values(found)))
        facts["condition_number"] = float(linalg.condition_number(gram))
    folder = Folder(output.out)
    folder.table("spectrum.csv", found.to_pandas(), index=True)
    folder.arrays("eigenvectors.npz", values=found.values.cpu().numpy(), vectors=found.vectors.cpu().numpy())
    if output.out is not None:
        folder.figure("spectrum.png", lambda plot: plot.spectrum(found, normalize=False))
    folder.record(facts)
    say(facts, output.as_json)


@command(app)
def align(
    *,
    source: options.KernelSourceOptions,
    samples: options.DataOptions = options.DIGITS,
    task: Annotated[
        str | None,
        options.option(
            value="TASK",
            help="Targets to align with: classes, cifar2, one-hot, random, or one-vs-rest:CLASS; by default cifar2 for "
            "named data, and the labels of files.",
        ),
    ] = None,
    k: Annotated[
        int, options.option("-k", value="K", min=1, help="Number of eigenvectors for the energy concentration.")
    ] = 50,
    chosen: options.KernelOptions,
    output: options.FolderOptions,
) -> None:
    """Compute the alignment of targets with a network's kernel, and their energy on its first eigenvectors (ortiz2021).

    Each column of several targets (one-hot, for example) is measured separately, on the training samples. With
    --kernel: on the training samples of a store that 'tangentlab kernel compute' made, the first --n-train of them.

    Example: tangentlab align --model lenet -o variant=ortiz2021 --data digits --n-train 500 --task cifar2
    """
    import pandas as pd

    from tangentlab import analysis, linalg

    gram, targets = _aligned(source, samples, task, chosen, output)
    count = len(targets)
    leading = linalg.eigh(gram, min(k, count), progress=output.progress)
    if not float(leading.values[0]) > 0:
        raise TangentError("The kernel is zero.", "Nothing is aligned with it.", "Look at the model and its data.")
    alignments = analysis.alignment(gram, targets)
    table = pd.DataFrame(
        {
            "target": range(targets.shape[1]),
            "alignment": alignments.tolist(),
            "share_of_largest": (alignments * count / leading.values[0] / targets.square().mean(0)).tolist(),
            "energy_concentration": analysis.energy_concentration(leading, targets, len(leading.values)).tolist(),
            "norm_at_least": analysis.lemma1_bound(gram, targets).tolist(),
        }
    )
    folder = Folder(output.out)
    folder.table("alignment.csv", table)
    folder.record({"task": task, "samples": count, "k": len(leading.values)})
    if output.as_json:
        say({"samples": count, "k": len(leading.values), "targets": table.to_dict("records")}, True)
    else:
        say_table(table)


def _aligned(
    source: options.KernelSourceOptions,
    samples: options.DataOptions,
    task: str | None,
    chosen: options.KernelOptions,
    output: options.OutputOptions,
) -> tuple[Any, Any]:
    """Return the (N, N) kernel of the training samples, and their (N, L) targets."""
    from tangentlab._cli._kernels import compute
    from tangentlab._cli._learning_task import inputs_of, load_task
    from tangentlab._cli._readouts import load_readout
    from tangentlab._cli._recipe import make_recipe
    from tangentlab._cli._stored import load_stored

    if source.kernel is not None:
        stored = load_stored(source.kernel, task, samples.labels, samples.n_train, output)
        if stored.rows > 1:
            raise _full(f"{source.kernel} holds a kernel with readout full.")
        return stored.train, stored.targets[: stored.n_train]
    if chosen.readout == "full":
        raise _full("--readout is full.")
    recipe = make_recipe(source, samples)
    named = None if recipe.from_file else "cifar2"
    learning = load_task(recipe, task or named, chosen.device, output)
    train = learning.data.train
    readout = load_readout(chosen, labels=train.targets)
    gram = compute(learning.model, inputs_of(train), kernel=chosen, output=output, readout=readout)
    return gram, learning.targets(train).to(gram.device)


def _full(what: str) -> TangentError:
    return TangentError(
        what, "Each target is aligned with one (N, N) kernel.", "Choose the readout pntk, trace, or one output."
    )


@command(app)
def nads(
    *,
    network: options.NetworkOptions,
    k: Annotated[int, options.option("-k", value="K", min=1, help="Number of directions to compute.")] = 10,
    shape: options.Shape = "1,32,32",
    chosen: options.KernelOptions,
    output: options.FolderOptions,
) -> None:
    """Compute the neural anisotropy directions of a network: the linear functions its kernel learns first (ortiz2021).

    With --out: nads.npz and nads.png (each direction and its Fourier magnitude).

    Example: tangentlab nads --model lenet -o variant=ortiz2021 -o activation=gelu -o outputs=1 -k 10 --out runs/nads
    """
    import torch

    from tangentlab import analysis
    from tangentlab._cli._kernels import load_network, parse_device, parse_dtype, try_model
    from tangentlab._cli._readouts import load_readout
    from tangentlab._cli._recipe import make_recipe

    size = parse_shape(shape)
    model = load_network(make_recipe(network), torch.zeros(1, *size), output)
    model = model.to(device=parse_device(chosen.device), dtype=parse_dtype(chosen.dtype))
    first = next(model.parameters(), torch.zeros(0))
    try_model(model, torch.zeros(2, *size).to(first), f"shape {size}")
    found = analysis.anisotropy_directions(
        model, input_shape=size, k=k, memory_budget=chosen.memory, **load_readout(chosen)
    )
    folder = Folder(output.out)
    names = ("directions", "singular_values", "alignments")
    folder.arrays("nads.npz", **{name: getattr(found, name).cpu().numpy() for name in names})
    if output.out is not None:
        folder.figure("nads.png", lambda plot: plot.directions(found)[0, 0])
    facts: dict[str, Any] = {
        "directions": len(found),
        "method": found.method,
        "alignments": found.alignments.tolist(),
    }
    folder.record(facts)
    shown = {**facts, "alignments": " ".join(f"{a:.4g}" for a in facts["alignments"])}
    say(facts if output.as_json else shown, output.as_json)


def parse_shape(text: str) -> tuple[int, ...]:
    """Parse the shape of an input from numbers separated by commas.

    Raises:
        TangentError: It is not a shape.
    """
    sizes = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) for part in sizes):
        raise TangentError(f"--shape is {text!r}.", "", "Write 1,32,32, for example.")
    return tuple(int(part) for part in sizes)
