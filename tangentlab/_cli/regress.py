"""``tangentlab regress``: kernel regression."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tangentlab._cli import _options as options
from tangentlab._cli._command import command
from tangentlab._cli._output import Folder, say
from tangentlab._errors import TangentError

if TYPE_CHECKING:
    from tangentlab.linalg import Regression, RidgePath

app = typer.Typer()
Ridge = Annotated[
    str, options.option(value="X", help="Ridge: a number, or loo or gcv to choose it by cross-validation.")
]


@command(app)
def regress(
    *,
    source: options.KernelSourceOptions,
    samples: options.DataOptions = options.DIGITS,
    task: options.Task = "classes",
    ridge: Ridge = "0",
    prior: Annotated[
        bool, options.option("--prior/--no-prior", help="Start from the network's outputs, not from zero.")
    ] = True,
    chosen: options.KernelOptions,
    output: options.FolderOptions,
) -> None:
    """Run kernel regression with a network's kernel: what its linearization learns when it is trained to convergence.

    The readouts pntk and full have a regression. With --out: predictions.npz, and path.csv where the ridge was chosen.
    With --kernel: from a store that 'tangentlab kernel compute' made, which knows model and data. Its first samples,
    the training split or --n-train of them, are for training, the others for testing.

    Example: tangentlab regress --model mlp --data digits --n-train 500 --task cifar2 --ridge loo
    """
    if source.kernel is not None:
        _regress_stored(source.kernel, samples, task, ridge, prior, output)
        return
    from tangentlab._cli._kernels import compute
    from tangentlab._cli._learning_task import inputs_of, load_task
    from tangentlab._cli._recipe import make_recipe

    if chosen.readout not in ("pntk", "full"):
        raise TangentError(f"There is no regression with readout {chosen.readout!r}.", "", "Choose pntk or full.")
    learning = load_task(make_recipe(source, samples), task, chosen.device, output)
    train, test = learning.data.train, learning.data.test
    begin = time.perf_counter()
    gram = compute(learning.model, inputs_of(train), kernel=chosen, output=output)
    y = learning.targets(train).to(learning.device)
    start = learning.outputs(train).double() if prior else y.new_zeros(y.shape)
    folder = Folder(output.out)
    fit, path = _fit(gram, y, start, ridge, output)
    fitted = fit.predict(gram, f0=start)
    facts, predictions = {"train_accuracy": learning.accuracy(fitted, train)}, {"train": fitted.cpu().numpy()}
    if learning.has_test:
        cross = compute(learning.model, inputs_of(test), inputs_of(train), kernel=chosen, output=output)
        f0 = learning.outputs(test).double()
        predicted = fit.predict(cross, f0=f0 if prior else y.new_zeros(len(test), y.shape[1]))
        predictions["test"] = predicted.cpu().numpy()
        facts |= {
            "test_accuracy": learning.accuracy(predicted, test),
            "network_test_accuracy": learning.accuracy(f0, test),
            "test_squared_error": float((predicted - learning.targets(test).to(predicted)).square().mean()),
        }
    facts |= _about(fit, begin)
    _write(folder, facts, path, **predictions)
    say(facts, output.as_json)


def _regress_stored(
    kernel: options.StorePath,
    samples: options.DataOptions,
    task: str,
    ridge: str,
    prior: bool,
    output: options.FolderOptions,
) -> None:
    from tangentlab._cli._stored import load_stored

    begin = time.perf_counter()
    labeled = load_stored(kernel, task, samples.labels, samples.n_train, output, prior)
    n, folder = labeled.n_train, Folder(output.out)
    train, test = slice(0, n), slice(n, len(labeled.targets))
    fit, path = _fit(labeled.train, labeled.targets[train], labeled.f0[train], ridge, output)
    predicted = labeled.predict(fit)
    facts: dict[str, Any] = {
        "samples": f"{n:,} for training, {len(labeled.targets) - n:,} for testing",
        "train_accuracy": labeled.accuracy(predicted, train),
    }
    if test.start < test.stop:
        facts["test_accuracy"] = labeled.accuracy(predicted, test)
        if labeled.network is not None:
            facts["network_test_accuracy"] = labeled.accuracy(labeled.network, test)
        facts["test_squared_error"] = float((predicted[test] - labeled.targets[test]).square().mean())
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
    """Return the regression, and the path of ridges if one was chosen from it."""
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
        raise TangentError(f"--ridge is {text!r}.", "", "Write a nonnegative number, loo or gcv.") from None
