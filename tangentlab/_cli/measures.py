"""``tangentlab spectrum``, ``regress``, ``align`` and ``nads``: what a kernel says."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tangentlab._cli import _options as options
from tangentlab._cli._output import Folder, say
from tangentlab._errors import TangentError

if TYPE_CHECKING:
    from tangentlab._cli._problem import Problem
    from tangentlab.linalg import Regression, RidgePath

Kernel = Annotated[Path | None, typer.Option("--kernel", help="A store instead of a model and data.")]
Leading = Annotated[int | None, typer.Option("-k", min=1, help="Leading eigenpairs; by default all.")]


def spectrum(
    kernel: Kernel = None,
    model: options.Model = None,
    model_option: options.ModelOption = None,
    checkpoint: options.Checkpoint = None,
    data: options.Data = "digits",
    data_dir: options.DataDir = None,
    split: options.Split = "train",
    n_train: options.NTrain = None,
    n_test: options.NTest = None,
    data_seed: options.DataSeed = 0,
    readout: options.Readout = "pntk",
    k: Leading = None,
    dtype: options.Dtype = None,
    device: options.Device = None,
    memory: options.Memory = None,
    out: options.Out = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Eigenvalues of a kernel, its effective rank and its condition number.

    With --out: spectrum.csv, eigenvectors.npz and spectrum.png.

    Example: tangentlab spectrum --model mlp --data digits --n-train 500 -k 100 --out runs/spectrum
    """
    from tangentlab import linalg, plot

    source = _kernel(
        kernel, model, model_option, checkpoint, data, data_dir, split, n_train, n_test, data_seed, readout, dtype,
        device, memory, quiet,
    )  # fmt: skip
    found = linalg.eigh(source, k, progress=False if quiet else None)
    facts: dict[str, Any] = {
        "size": found.n,
        "eigenpairs": len(found.values),
        "largest": float(found.values[0]),
        "smallest": float(found.values[-1]),
        "largest_residual": float(found.residuals.max()),
        "trace": float(linalg.trace(source)),
        "method": found.method,
    }
    if not facts["largest"] > 0 or not facts["trace"] > 0:
        raise TangentError("the kernel is zero.", "it has no spectrum to describe.", "look at the model and its data.")
    facts["share_of_trace"] = float(found.values.sum()) / facts["trace"]
    if found.complete:
        facts["effective_rank_of_J"] = float(linalg.effective_rank(linalg.singular_values(found)))
        facts["condition_number"] = float(linalg.condition_number(source))
    folder = Folder(out)
    folder.table("spectrum.csv", found.to_pandas(), index=True)
    folder.arrays("eigenvectors.npz", values=found.values.cpu().numpy(), vectors=found.vectors.cpu().numpy())
    if out is not None:
        folder.figure("spectrum.png", plot.spectrum(found, normalise=False))
    folder.record(facts)
    say(facts, as_json)


def regress(
    kernel: Kernel = None,
    labels: Annotated[Path | None, typer.Option(help="With --kernel: targets of its samples (.npy, .pt).")] = None,
    model: options.Model = None,
    model_option: options.ModelOption = None,
    checkpoint: options.Checkpoint = None,
    data: options.Data = "digits",
    data_dir: options.DataDir = None,
    n_train: options.NTrain = None,
    n_test: options.NTest = None,
    data_seed: options.DataSeed = 0,
    task: options.Task = "classes",
    readout: Annotated[str, typer.Option(help="pntk, or full for the exact kernel of all outputs.")] = "pntk",
    ridge: Annotated[str, typer.Option(help="A number, or loo or gcv for the best by cross-validation.")] = "0",
    prior: Annotated[bool, typer.Option(help="Start from the network's outputs f0.")] = True,
    dtype: options.Dtype = None,
    device: options.Device = None,
    memory: options.Memory = None,
    out: options.Out = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Kernel regression with a network's kernel: what its linearization learns, trained to the end.

    With --out: predictions.npz, and path.csv where the ridge was chosen. With --kernel: from a store that
    'tangentlab kernel compute' made; it knows model and data. Its first samples, the training split or --n-train of
    them, are for training, the others for testing.

    Example: tangentlab regress --model mlp --data digits --n-train 500 --task cifar2 --ridge loo
    """
    import torch

    from tangentlab import ntk

    if kernel is not None:
        if model is not None:
            raise TangentError("both --kernel and --model were given.", "", "pass one of them.")
        _regress_stored(kernel, labels, task, n_train, ridge, prior, out, as_json, quiet)
        return
    if labels is not None:
        raise TangentError("--labels was given without --kernel.", "", "compute the kernel of the samples first.")
    problem = _problem(model, model_option, checkpoint, data, data_dir, n_train, n_test, data_seed, task, device)
    train, test = problem.images.train, problem.images.test
    if readout not in ("pntk", "full"):
        raise TangentError(f"there is no regression with readout {readout!r}.", "", "choose pntk or full.")
    begin = time.perf_counter()
    settings: dict[str, Any] = {
        "readout": readout, "dtype": _dtype(dtype), "memory_budget": memory, "progress": False if quiet else None,
    }  # fmt: skip
    gram, cross = ntk(problem.model, train, **settings), ntk(problem.model, test, train, **settings)
    y = problem.targets(train).to(problem.device)
    start, start_test = (
        problem.outputs(part).double() if prior else torch.zeros(len(part), y.shape[1]) for part in (train, test)
    )
    folder = Folder(out)
    fit, path = _fit(gram, y, start, ridge, quiet)
    fitted, predicted = fit.predict(gram, f0=start), fit.predict(cross, f0=start_test)
    facts = {
        "train_accuracy": problem.accuracy(fitted, train),
        "test_accuracy": problem.accuracy(predicted, test),
        "network_test_accuracy": problem.accuracy(problem.outputs(test), test),
        "test_squared_error": float((predicted - problem.targets(test).to(predicted)).square().mean()),
        **_about(fit, begin),
    }
    folder.arrays("predictions.npz", train=fitted.cpu().numpy(), test=predicted.cpu().numpy())
    if path is not None:
        folder.table("path.csv", path.table)
    folder.record(facts)
    say(facts, as_json)


def align(
    model: options.Model = None,
    model_option: options.ModelOption = None,
    checkpoint: options.Checkpoint = None,
    data: options.Data = "digits",
    data_dir: options.DataDir = None,
    n_train: options.NTrain = None,
    n_test: options.NTest = None,
    data_seed: options.DataSeed = 0,
    task: options.Task = "cifar2",
    k: Annotated[int, typer.Option("-k", min=1, help="Eigenvectors for the energy concentration.")] = 50,
    device: options.Device = None,
    memory: options.Memory = None,
    out: options.Out = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Alignment of a task with a network's kernel, and its energy on the first eigenvectors (ortiz2021).

    Columns of several targets (one-hot, say) are measured each. The kernel is that of the sum of logits / sqrt(O).

    Example: tangentlab align --model lenet -o variant=ortiz2021 --data digits --n-train 500 --task cifar2
    """
    import pandas as pd

    from tangentlab import analysis, linalg, ntk

    problem = _problem(model, model_option, checkpoint, data, data_dir, n_train, n_test, data_seed, task, device)
    train = problem.images.train
    targets = problem.targets(train).to(problem.device)
    gram = ntk(problem.model, train, readout="pntk", memory_budget=memory, progress=False if quiet else None)
    leading = linalg.eigh(gram, min(k, len(train)), progress=False if quiet else None)
    if not float(leading.values[0]) > 0:
        raise TangentError("the kernel is zero.", "nothing is aligned with it.", "look at the model and its data.")
    alignments = analysis.alignment(gram, targets)
    table = pd.DataFrame(
        {
            "target": range(targets.shape[1]),
            "alignment": alignments.tolist(),
            "share_of_largest": (alignments * len(train) / leading.values[0] / targets.square().mean(0)).tolist(),
            "energy_concentration": analysis.energy_concentration(leading, targets, len(leading.values)).tolist(),
            "norm_at_least": analysis.lemma1_bound(gram, targets).tolist(),
        }
    )
    folder = Folder(out)
    folder.table("alignment.csv", table)
    folder.record({"task": task, "samples": len(train), "k": len(leading.values)})
    if as_json:
        say({"samples": len(train), "k": len(leading.values), "targets": table.to_dict("records")}, True)
    else:
        print(table.to_string(index=False, float_format=lambda value: f"{value:.6g}"))


def nads(
    model: options.Model = None,
    model_option: options.ModelOption = None,
    checkpoint: options.Checkpoint = None,
    k: Annotated[int, typer.Option("-k", min=1, help="How many directions.")] = 10,
    shape: Annotated[str, typer.Option(help="Of an input, with commas.")] = "1,32,32",
    readout: options.Readout = "pntk",
    memory: options.Memory = None,
    out: options.Out = None,
    as_json: options.Json = False,
) -> None:
    """Neural anisotropy directions of a network: the linear functions its kernel learns first (ortiz2021).

    With --out: nads.npz and nads.png (each direction and its Fourier magnitude).

    Example: tangentlab nads --model lenet -o variant=ortiz2021 -o activation=gelu -o outputs=1 -k 10 --out runs/nads
    """
    import torch

    from tangentlab import analysis, plot
    from tangentlab._cli._recipe import make_recipe

    sizes = [part.strip() for part in shape.split(",")]
    if not all(part.isdecimal() and int(part) for part in sizes):
        raise TangentError(f"--shape is {shape!r}.", "", "write 1,32,32, say.")
    size = tuple(int(part) for part in sizes)
    recipe = make_recipe(model, model_option, checkpoint, "digits", None, "train", None, None, 0)
    network = recipe.load_model(torch.zeros(1, *size))
    found = analysis.anisotropy_directions(
        network, input_shape=size, k=k, memory_budget=memory, readout=int(readout) if readout.isdecimal() else readout
    )
    folder = Folder(out)
    names = ("directions", "singular_values", "alignments")
    folder.arrays("nads.npz", **{name: getattr(found, name).cpu().numpy() for name in names})
    if out is not None:
        folder.figure("nads.png", plot.directions(found)[0, 0])
    facts: dict[str, Any] = {
        "directions": len(found),
        "method": found.method,
        "alignments": found.alignments.tolist(),
    }
    folder.record(facts)
    say(facts if as_json else {**facts, "alignments": " ".join(f"{a:.4g}" for a in facts["alignments"])}, as_json)


def _regress_stored(
    kernel: Path,
    labels: Path | None,
    task: str,
    n_train: int | None,
    ridge: str,
    prior: bool,
    out: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    from tangentlab._cli._stored import load_stored

    begin = time.perf_counter()
    problem = load_stored(kernel, task, labels, n_train, prior)
    n, folder = problem.n_train, Folder(out)
    train, test = slice(0, n), slice(n, len(problem.targets))
    fit, path = _fit(problem.train, problem.targets[train], problem.f0[train], ridge, quiet)
    predicted = problem.predict(fit)
    facts: dict[str, Any] = {
        "samples": f"{n:,} for training, {len(problem.targets) - n:,} for testing",
        "train_accuracy": problem.accuracy(predicted, train),
    }
    if test.start < test.stop:
        facts["test_accuracy"] = problem.accuracy(predicted, test)
        if problem.network is not None:
            facts["network_test_accuracy"] = problem.accuracy(problem.network, test)
        facts["test_squared_error"] = float((predicted[test] - problem.targets[test]).square().mean())
    facts |= _about(fit, begin)
    folder.arrays("predictions.npz", train=predicted[train].numpy(), test=predicted[test].numpy())
    if path is not None:
        folder.table("path.csv", path.table)
    folder.record(facts)
    say(facts, as_json)


def _fit(gram: Any, y: Any, f0: Any, ridge: str, quiet: bool) -> tuple["Regression", "RidgePath | None"]:
    """The regression, and the path of ridges where one was chosen from it."""
    from tangentlab import linalg

    if ridge in ("loo", "gcv"):
        path = linalg.ridge_path(gram, y, f0=f0)
        return path.regression(path.best if ridge == "loo" else path.best_by_gcv), path
    return linalg.regress(gram, y, f0=f0, ridge=_number(ridge), progress=False if quiet else None), None


def _about(fit: "Regression", begin: float) -> dict[str, Any]:
    return {
        "ridge": fit.ridge,
        "rank": fit.rank,
        "method": fit.method,
        "residual": fit.residual,
        "distance": float(fit.norm.square().sum().sqrt()),
        "seconds": time.perf_counter() - begin,
    }


def _problem(model: str | None, *given: Any) -> "Problem":
    from tangentlab._cli.training import _problem as problem

    return problem(model, *given)


def _kernel(path: Path | None, model: str | None, *given: Any) -> Any:
    """The kernel in a store, or of a model and data."""
    from tangentlab import ntk, store
    from tangentlab._cli._recipe import make_recipe

    *recipe, readout, dtype, device, memory, quiet = given
    if path is not None:
        if model is not None:
            raise TangentError("both --kernel and --model were given.", "", "pass one of them.")
        return store.open(path)
    network, x = make_recipe(model, *recipe).load()
    chosen = int(readout) if readout.isdecimal() else readout
    progress = False if quiet else None
    return ntk(network, x, readout=chosen, dtype=_dtype(dtype), device=device, memory_budget=memory, progress=progress)


def _dtype(name: str | None) -> Any:
    import torch

    if name not in (None, "float16", "float32", "float64"):
        raise TangentError(f"there is no dtype {name!r}.", "", "choose float32 or float64.")
    return None if name is None else getattr(torch, name)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise TangentError(f"--ridge is {text!r}.", "", "write a number from 0 on, loo or gcv.") from None
