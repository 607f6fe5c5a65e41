"""``tangentlab regress``: kernel regression."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tangentlab._cli import _options as options
from tangentlab._cli._command import command
from tangentlab._cli._output import Folder, say
from tangentlab._cli.measures import refuse_both
from tangentlab._errors import TangentError

if TYPE_CHECKING:
    from tangentlab.linalg import Regression, RidgePath

app = typer.Typer()


@command(app)
def regress(
    *,
    network: options.NetworkOptions,
    kernel: options.StoredKernelPath = None,
    samples: options.DataOptions = options.DIGITS,
    task: options.Task = "classes",
    ridge: Annotated[
        str,
        options.option(value="X", help="Ridge: a number, or loo or gcv to choose it by cross-validation."),
    ] = "0",
    prior: Annotated[
        bool, options.option("--prior/--no-prior", help="Start from the network's outputs, not from zero.")
    ] = True,
    chosen: options.KernelOptions,
    output: options.FolderOptions,
) -> None:
    """Run kernel regression with a network's kernel: what its linearization learns, trained to the end.

    The readouts pntk and full have a regression. With --out: predictions.npz, and path.csv where the ridge was chosen.
    With --kernel: from a store that 'tangentlab kernel compute' made, which knows model and data. Its first samples,
    the training split or --n-train of them, are for training, the others for testing.

    Example: tangentlab regress --model mlp --data digits --n-train 500 --task cifar2 --ridge loo
    """
    if kernel is not None:
        refuse_both(network)
        _regress_stored(kernel, samples, task, ridge, prior, output)
        return
    from tangentlab._cli._kernels import compute
    from tangentlab._cli._problem import inputs_of, load_problem
    from tangentlab._cli._recipe import make_recipe

    if chosen.readout not in ("pntk", "full"):
        raise TangentError(f"there is no regression with readout {chosen.readout!r}.", "", "choose pntk or full.")
    problem = load_problem(make_recipe(network, samples), task, chosen.device, output)
    train, test = problem.data.train, problem.data.test
    begin = time.perf_counter()
    gram = compute(problem.model, inputs_of(train), kernel=chosen, output=output)
    y = problem.targets(train).to(problem.device)
    start = problem.outputs(train).double() if prior else y.new_zeros(y.shape)
    folder = Folder(output.out)
    fit, path = _fit(gram, y, start, ridge, output)
    fitted = fit.predict(gram, f0=start)
    facts, predictions = {"train_accuracy": problem.accuracy(fitted, train)}, {"train": fitted.cpu().numpy()}
    if problem.has_test:
        cross = compute(problem.model, inputs_of(test), inputs_of(train), kernel=chosen, output=output)
        f0 = problem.outputs(test).double()
        predicted = fit.predict(cross, f0=f0 if prior else y.new_zeros(len(test), y.shape[1]))
        predictions["test"] = predicted.cpu().numpy()
        facts |= {
            "test_accuracy": problem.accuracy(predicted, test),
            "network_test_accuracy": problem.accuracy(f0, test),
            "test_squared_error": float((predicted - problem.targets(test).to(predicted)).square().mean()),
        }
    facts |= _about(fit, begin)
    _write(folder, facts, path, **predictions)
    say(facts, output.as_json)


def _regress_stored(
    kernel: Path, samples: options.DataOptions, task: str, ridge: str, prior: bool, output: options.FolderOptions
) -> None:
    from tangentlab._cli._stored import load_stored

    begin = time.perf_counter()
    problem = load_stored(kernel, task, samples.labels, samples.n_train, output, prior)
    n, folder = problem.n_train, Folder(output.out)
    train, test = slice(0, n), slice(n, len(problem.targets))
    fit, path = _fit(problem.train, problem.targets[train], problem.f0[train], ridge, output)
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
    _write(folder, facts, path, train=predicted[train].numpy(), test=predicted[test].numpy())
    say(facts, output.as_json)


def _write(folder: Folder, facts: dict[str, Any], path: "RidgePath | None", **predictions: Any) -> None:
    folder.arrays("predictions.npz", **predictions)
    if path is not None:
        folder.table("path.csv", path.table)
    folder.record(facts)


def _fit(
    gram: Any, y: Any, f0: Any, ridge: str, output: options.OutputOptions
) -> tuple["Regression", "RidgePath | None"]:
    """The regression, and the path of ridges where one was chosen from it."""
    from tangentlab import linalg

    if ridge in ("loo", "gcv"):
        path = linalg.ridge_path(gram, y, f0=f0)
        return path.regression(path.best if ridge == "loo" else path.best_by_gcv), path
    return linalg.regress(gram, y, f0=f0, ridge=_number(ridge), progress=output.progress), None


def _about(fit: "Regression", begin: float) -> dict[str, Any]:
    return {
        "ridge": fit.ridge,
        "rank": fit.rank,
        "method": fit.method,
        "residual": fit.residual,
        "distance": float(fit.norm.square().sum().sqrt()),
        "seconds": time.perf_counter() - begin,
    }


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise TangentError(f"--ridge is {text!r}.", "", "write a number from 0 on, loo or gcv.") from None
