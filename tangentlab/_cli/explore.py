"""``tangentlab explore``: a page of linked views of a kernel."""

import time
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tangentlab._cli import _options as options
from tangentlab._cli._command import command
from tangentlab._cli._output import note, say
from tangentlab._errors import TangentError

if TYPE_CHECKING:
    from tangentlab._cli._recipe import Recipe

app = typer.Typer()


@command(app)
def explore(
    *,
    source: options.KernelSourceOptions,
    run: Annotated[
        Path | None,
        options.option(
            value="FOLDER",
            help="Folder of 'tangentlab train': its initial weights, those kept by --keep, and the trained ones.",
        ),
    ] = None,
    samples: options.SplitOptions = options.DIGITS_SPLIT,
    task: options.Task = "classes",
    texts: Annotated[
        Path | None, options.option(value="FILE", help="Texts to show in place of the inputs, one line per sample.")
    ] = None,
    names: Annotated[
        Path | None, options.option(value="FILE", help="Names of the samples, one line per sample.")
    ] = None,
    chosen: options.KernelOptions,
    k: Annotated[int, options.option("-k", value="K", min=2, help="Number of eigenfunctions to show.")] = 50,
    ridge: Annotated[
        str, options.option(value="X", help="Ridge of the leave-one-out regression: a number, or loo for the best.")
    ] = "loo",
    embedding: Annotated[
        str | None,
        options.option(value="NAME", help="Map of the samples: tsne, the default up to 2,000 samples, or pca."),
    ] = None,
    layers: Annotated[
        bool,
        options.option(
            "--layers/--no-layers", help="Whether to show every layer's part of the kernel; each is a kernel in memory."
        ),
    ] = True,
    title: Annotated[str, options.option(value="TITLE", help="Title of the page.")] = "",
    out: Annotated[Path, options.option(value="FILE", help="File to write the page to.")] = Path("explorer.html"),
    serve: Annotated[
        bool,
        options.option(
            "--serve", help="Serve the page on this machine instead, loading kernel and eigenfunctions as asked."
        ),
    ] = False,
    port: Annotated[int, options.option(value="N", min=0, max=65535, help="Port of --serve; 0 for a free one.")] = 0,
    show: Annotated[bool, options.option("--open", help="Open the page in a browser.")] = False,
    output: options.OutputOptions,
) -> None:
    """Make a page to look at a kernel: similar samples, eigenfunctions, predictions, layers, training.

    The page is one file that loads nothing. From a model and data; with --run, from a training run with its
    checkpoints; with --kernel, from a store that 'tangentlab kernel compute' made. --serve is for stores too large
    for a page: a server on loopback that only reads.

    Example: tangentlab explore --model lenet -o variant=ortiz2021 --data digits --run runs/lenet --out lenet.html
    """
    from tangentlab.explorer import explore as build
    from tangentlab.report.internal import bundle

    bundle()  # what the page is made with, if it is installed: before the computation
    begin = time.perf_counter()
    kernel_source, data, settings = _load(source, run, samples, task, chosen, output)
    found = build(
        kernel_source, data, show=_lines(texts), names=_lines(names), k=k, ridge=_ridge(ridge), embedding=embedding,
        layers=layers, title=title, progress=output.progress, **settings,
    )  # fmt: skip
    if serve:
        with found.serve(port) as server:
            facts = {"address": server.address, "samples": len(found), "seconds": time.perf_counter() - begin}
            say(facts, output.as_json)
            note("Press Ctrl-C to stop.", output.quiet)
            if show:
                webbrowser.open(server.address)
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                return
        return
    path = found.save(out)
    say(
        {
            "page": str(path),
            "megabytes": path.stat().st_size / 1e6,
            "samples": len(found),
            "checkpoints": len(found.states),
            "seconds": time.perf_counter() - begin,
        },
        output.as_json,
    )
    if show:
        webbrowser.open(path.absolute().as_uri())


def _load(
    source: options.KernelSourceOptions,
    run: Path | None,
    samples: options.SplitOptions,
    task: str,
    chosen: options.KernelOptions,
    output: options.OutputOptions,
) -> tuple[Any, Any, dict[str, Any]]:
    """Return what is explored, its samples, and further arguments."""
    from tangentlab import store
    from tangentlab._cli._kernels import load_network, parse_device, parse_dtype, remembered, stored_network
    from tangentlab._cli._readouts import load_readout
    from tangentlab._cli._recipe import make_recipe
    from tangentlab.store.internal import Request, recognize, unrounded

    if source.kernel is not None:
        if run is not None:
            raise TangentError("Both --kernel and --run were given.", "A store has one kernel.", "Pass one of them.")
        kernel = store.open(source.kernel)
        if not kernel.complete:
            raise TangentError(
                f"{source.kernel} is not complete.",
                f"{kernel.progress:.1%} is there.",
                f"Run tangentlab kernel resume {source.kernel}.",
            )
        recipe, kept = remembered(source.kernel)
        data, labels, classes = _samples(recipe, task)
        model = stored_network(source.kernel, recipe, data, output)
        # Refuses, with what differs, if model or data have changed since.
        request = Request.of(model, data, **load_readout(kept, recipe), dtype=parse_dtype(kept.dtype))
        recognize(request, unrounded(kernel.manifest), source.kernel)
        return kernel, data, {"labels": labels, "classes": classes, "model": model}
    recipe = make_recipe(source, samples)
    data, labels, classes = _samples(recipe, task)
    if not recipe.from_factory and (classes or labels is not None):
        outputs = 1 if task not in ("classes", "one-hot") else len(classes or ()) or 1
        recipe = replace(recipe, model_options={"outputs": outputs, **recipe.model_options})
    checkpoints: dict[str, Any] = {}
    now = "trained"
    if run is not None:
        if source.checkpoint is not None:
            raise TangentError("Both --run and --checkpoint were given.", "A run has its own weights.", "Pass one.")
        files = _of_run(run)
        now, last = files.popitem()
        checkpoints = {
            name: load_network(replace(recipe, checkpoint=str(path.absolute())), data, output)
            for name, path in files.items()
        }
        recipe = replace(recipe, checkpoint=str(last.absolute()))
    model = load_network(recipe, data, output)
    settings = {
        "labels": labels, "classes": classes, "checkpoints": checkpoints, "now": now, "memory_budget": chosen.memory,
        "dtype": parse_dtype(chosen.dtype), "device": parse_device(chosen.device), **load_readout(chosen, recipe),
    }  # fmt: skip
    return model, data, settings


def _samples(recipe: "Recipe", task: str) -> tuple[Any, Any, Any]:
    """Return samples, labels and names of classes; a task of one target has two classes, by its sign."""
    from tangentlab._cli._learning_task import apply_task

    data = recipe.load_samples()
    if recipe.from_file:
        return data, recipe.load_targets(), None
    made = apply_task(recipe.load_images(), task)
    split = made.both() if recipe.split == "all" else getattr(made, recipe.split)
    if split.targets.ndim == 2 and split.targets.shape[1] == 1:
        return data, (split.targets[:, 0] > 0).long(), ("negative", "positive")
    return data, split.labels, made.classes


def _of_run(folder: Path) -> dict[str, Path]:
    """Return the weights of a run by the names of checkpoints, the first ones first."""
    kept = sorted(folder.glob("epoch-*.pt"), key=lambda path: (len(path.stem), path.stem))
    files = {"start": folder / "start.pt", **{path.stem.replace("-", " "): path for path in kept}}
    files["trained"] = folder / "weights.pt"
    missing = [str(path) for path in files.values() if not path.is_file()]
    if missing:
        raise TangentError(
            f"There is no {missing[0]}.",
            "A run has its initial and its trained weights.",
            "Run 'tangentlab train ... --out FOLDER' to the end, and pass --run FOLDER.",
        )
    return files


def _lines(path: Path | None) -> list[str] | None:
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TangentError(
            f"{path} cannot be read: {error}.", "", "Pass a text file with one line per sample."
        ) from error


def _ridge(text: str) -> float | str:
    if text == "loo":
        return text
    try:
        return float(text)
    except ValueError:
        raise TangentError(f"--ridge is {text!r}.", "", "Write a positive number, or loo.") from None
