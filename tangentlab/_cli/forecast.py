"""``tangentlab forecast``: training, predicted before it happens."""

import time
from typing import Annotated, Any

import typer

from tangentlab._cli import _options as options
from tangentlab._cli._command import command
from tangentlab._cli._output import Folder, note, say
from tangentlab._errors import TangentError

app = typer.Typer()


@command(app)
def forecast(
    *,
    network: options.NetworkOptions,
    samples: options.DataOptions = options.DIGITS,
    task: options.Task = "classes",
    lr: Annotated[
        float | None,
        options.option("--lr", value="X", help="Learning rate; by default half of the largest stable one."),
    ] = None,
    momentum: Annotated[float, options.option(value="X", help="Momentum of SGD.")] = 0.0,
    steps: Annotated[int, options.option(value="N", min=1, help="Number of steps to predict.")] = 1000,
    loss: Annotated[
        float | None, options.option(value="X", help="Training loss to predict the number of steps to.")
    ] = None,
    measure: Annotated[
        bool, options.option("--measure", help="Train the network on full batches too, and draw both.")
    ] = False,
    chosen: options.KernelOptions = options.AUTO,
    output: options.FolderOptions,
) -> None:
    """Predict loss and accuracy over the steps of training on squared loss, from the kernel at the initial weights.

    The readouts full and pntk have a forecast; auto is full up to 3,000 rows of samples times outputs. With --out:
    forecast.csv, forecast.png, learning_curve.csv (pntk), and measured.csv with --measure.

    Example: tangentlab forecast --model mlp --data digits --n-train 200 --lr 0.05 --measure --out runs/forecast
    """
    from tangentlab._cli._kernels import parse_dtype
    from tangentlab._cli._learning_task import inputs_of, load_task
    from tangentlab._cli._recipe import make_recipe
    from tangentlab.forecast import predict_training

    if chosen.readout not in ("auto", "pntk", "full"):
        raise TangentError(f"There is no forecast with readout {chosen.readout!r}.", "", "Choose full, pntk or auto.")
    learning = load_task(make_recipe(network, samples), task, chosen.device, output)
    train, test = learning.data.train, learning.data.test
    begin = time.perf_counter()
    found = predict_training(
        learning.model, inputs_of(train), learning.targets(train), lr=lr, momentum=momentum,
        readout=None if chosen.readout == "auto" else chosen.readout,
        test=(inputs_of(test), learning.targets(test)) if learning.has_test else None, steps=steps,
        dtype=parse_dtype(chosen.dtype), memory_budget=chosen.memory, progress=output.progress,
    )  # fmt: skip
    last = found.table.iloc[-1]
    facts: dict[str, Any] = {
        "lr": found.lr,
        "largest_stable_lr": found.largest_stable_lr,
        **({"steps_to_loss": found.steps_to(loss)} if loss is not None else {}),
        **{name: float(last[name]) for name in found.table.columns},
        "seconds": time.perf_counter() - begin,
    }
    if found.note:
        note(found.note, output.quiet)
    folder = Folder(output.out)
    folder.table("forecast.csv", found.table)
    if found.readout == "pntk":
        folder.table("learning_curve.csv", found.learning_curve())
    measured = None
    if measure:
        measured = _measured(learning, found, steps)
        folder.table("measured.csv", measured)
        facts |= {f"measured_{name}": float(measured[name].iloc[-1]) for name in measured.columns if name != "step"}
    if folder.path is not None:
        folder.figure("forecast.png", lambda plot: plot.forecast(found.table, measured, title=learning.data.name))
    folder.record(facts)
    say(facts, output.as_json)


def _measured(learning: Any, found: Any, steps: int) -> Any:
    """Train the network on full batches and return its losses at the steps of the forecast."""
    from types import SimpleNamespace

    from tangentlab import training

    train = learning.data.train
    spec = training.TrainingSpec(
        epochs=steps, batch_size=len(train), loss=training.Squared(), schedule=training.Constant(),
        optimizer=training.SGD(found.lr, momentum=found.momentum),
    )  # fmt: skip
    pair = [(learning.placed(part.inputs()), learning.targets(part).to(learning.dtype)) for part in (train,)]
    other = learning.data.test
    test = (learning.placed(other.inputs()), learning.targets(other).to(learning.dtype)) if learning.has_test else None
    data = SimpleNamespace(train=pair[0], test=test)
    history = training.train(learning.callable, data, spec, progress=False).history
    names = ["step", "train_loss", "train_accuracy", *(["test_loss", "test_accuracy"] if test is not None else [])]
    return history[history["step"].isin(found.table["step"])][names]
