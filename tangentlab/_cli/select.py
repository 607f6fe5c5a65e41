"""``tangentlab select``: choose samples by their kernel."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tangentlab._cli import _options as options
from tangentlab._cli._command import command
from tangentlab._cli._output import Folder, note, say
from tangentlab._errors import TangentError
from tangentlab._suggestions import did_you_mean

if TYPE_CHECKING:
    from tangentlab.select import Selection

app = typer.Typer()
METHODS = ("largest-variance", "max-determinant", "lcmd", "kmeans-plus-plus", "bait")
_NOISY = ("largest-variance", "max-determinant", "bait")


@command(app)
def select(
    *,
    source: options.KernelSourceOptions,
    samples: options.SplitOptions = options.DIGITS_SPLIT,
    count: Annotated[int, options.option("--count", "-n", value="N", min=1, help="Number of samples to choose.")] = 20,
    method: Annotated[
        str, options.option(value="METHOD", help=f"How to choose: {', '.join(METHODS[:-1])}, or {METHODS[-1]}.")
    ] = "max-determinant",
    k: Annotated[
        int, options.option("-k", value="K", min=1, help="Features per sample that the kernel is sketched to.")
    ] = 512,
    ridge: Annotated[
        float | None,
        options.option(
            value="X",
            help="Variance of the labels' noise, for largest-variance, max-determinant and bait; by default a "
            "thousandth of the kernel's mean diagonal.",
        ),
    ] = None,
    labeled: Annotated[
        Path | None,
        options.option(
            value="FILE", help="File (.npy or .pt) with the row numbers of the samples that are already labeled."
        ),
    ] = None,
    per_class: Annotated[
        bool, options.option("--per-class", help="Choose equally many samples of each class that the network predicts.")
    ] = False,
    draws: Annotated[int, options.option("--draw-seed", value="N", min=0, help="Seed of kmeans-plus-plus.")] = 0,
    chosen: options.KernelOptions,
    output: options.FolderOptions,
) -> None:
    """Choose samples by a network's kernel: what to label next, or a representative subset.

    The kernel of --model is sketched to K features per sample, so that pools of many thousands are fast; --kernel takes
    a stored kernel as it is. With --out: selection.csv (row, score) and selection.png, the chosen images, or for other
    samples their places in the pool.

    Example: tangentlab select --model mlp --data digits --count 20 --method lcmd --out runs/chosen
    """
    import pandas as pd

    from tangentlab import select as methods

    if method not in METHODS:
        raise TangentError(
            f"There is no method {method!r}.", "", f"{did_you_mean(method, METHODS)}Choose one of {', '.join(METHODS)}."
        )
    if ridge is not None and method not in _NOISY:
        raise TangentError(f"{method} takes no --ridge.", "Its distances have no noise.", "Leave it out.")
    pool, classes, images, about = _pool(source, samples, k, per_class, chosen, output)
    arguments: dict[str, Any] = {"labeled": None if labeled is None else _rows(labeled), "classes": classes}
    if method in _NOISY:
        arguments["ridge"] = 1e-3 * float(pool.diagonal().mean()) if ridge is None else ridge
    if method != "largest-variance":
        arguments["progress"] = output.progress
    if method == "kmeans-plus-plus":
        arguments["seed"] = draws
    found = getattr(methods, method.replace("-", "_"))(pool, count, **arguments)
    table = pd.DataFrame({"row": found.indices.tolist(), "score": found.scores.tolist()})
    folder = Folder(output.out)
    folder.table("selection.csv", table)
    folder.figure("selection.png", lambda plot: _picture(plot, images, pool, found, about["samples"]))
    facts: dict[str, Any] = {"method": found.method, "rows": found.indices.tolist(), **about}
    folder.record(facts)
    shown = {**facts, "rows": " ".join(map(str, found))}
    say(facts if output.as_json else shown, output.as_json)


def _picture(plot: Any, images: Any, pool: Any, found: "Selection", samples: int) -> Any:
    """Draw the chosen images; for other samples their places in the pool, if it has a plane to show."""
    if plot.is_images(images):
        return plot.samples(images[found.indices][:100], titles=[f"{row}" for row in found][:100])[0, 0]
    return plot.chosen(pool, found.indices) if samples > 2 else None


def _pool(
    source: options.KernelSourceOptions,
    samples: options.SplitOptions,
    k: int,
    per_class: bool,
    chosen: options.KernelOptions,
    output: options.OutputOptions,
) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Return the kernel of the pool, predicted classes if they are wanted, samples to draw, and facts to report."""
    from tangentlab import store
    from tangentlab._cli._kernels import load_network, parse_device, parse_dtype
    from tangentlab._cli._readouts import load_readout
    from tangentlab._cli._recipe import make_recipe
    from tangentlab.kernels import sketch

    if source.kernel is not None:
        if per_class:
            raise TangentError("--per-class was given with --kernel.", "It needs the network.", "Pass --model.")
        stored = store.open(source.kernel)
        return stored, None, None, {"samples": stored.shape[0], "kernel": str(source.kernel)}
    recipe = make_recipe(source, samples)
    x = recipe.load_samples()
    network = load_network(recipe, x, output)
    images = getattr(x, "images", x)  # of a named data set, before normalization
    parameters = sum(p.numel() for p in network.parameters())
    if k > parameters:
        k = parameters
        note(f"The network has {parameters:,} parameters; the sketch has as many features.", output.quiet)
    pool = sketch(
        network,
        x,
        k,
        **load_readout(chosen, recipe),
        dtype=parse_dtype(chosen.dtype),
        device=parse_device(chosen.device),
        memory_budget=chosen.memory,
        progress=output.progress,
    )
    classes = _predicted(network, x) if per_class else None
    return pool, classes, images, {"samples": len(pool.features) // pool.readouts, "features": k}


def _predicted(network: Any, x: Any) -> Any:
    """Return the class of the largest output of each sample."""
    import torch

    from tangentlab._cli._kernels import try_model
    from tangentlab._cli._samples import count, index

    found = []
    for start in range(0, count(x), 256):
        rows = range(start, min(start + 256, count(x)))
        batch = x.batch(rows)[0] if hasattr(x, "batch") else index(x, list(rows))
        outputs = try_model(network, batch, "the pool")
        if not isinstance(outputs, torch.Tensor) or outputs.ndim != 2 or outputs.shape[1] < 2:
            raise TangentError("--per-class was given.", "The model has no outputs for classes.", "Leave it out.")
        found.append(outputs.argmax(1))
    return torch.cat(found)


def _rows(path: Path) -> Any:
    """Return row numbers from a file."""
    from tangentlab._cli._files import load_samples

    rows = load_samples(path)
    if isinstance(rows, dict):
        raise TangentError(f"{path} holds several arrays.", "", "Write the row numbers as one array (.npy, .pt).")
    return rows
