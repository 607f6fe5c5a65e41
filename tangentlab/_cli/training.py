"""``tangentlab train``, ``compare`` and ``linearize``."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tangentlab._cli import _options as options
from tangentlab._cli._command import command
from tangentlab._cli._output import Folder, say, say_table
from tangentlab._errors import TangentError

if TYPE_CHECKING:
    from tangentlab._cli._learning_task import LearningTask
    from tangentlab.training import Callback, TrainingSpec

app = typer.Typer()
_START = "start.pt"
"""The initial weights, next to the trained ones."""
_KEPT = "weights"
"""The callback that keeps weights."""


@command(app, stopped="Rerun the command to resume from the last checkpoint.")
def train(
    *,
    out: Annotated[
        Path, options.option(value="FOLDER", help="Folder to write checkpoints, weights and the history to.")
    ],
    network: options.TrainedNetworkOptions,
    samples: options.DataOptions = options.DIGITS,
    task: options.Task = "classes",
    linearized: Annotated[
        bool, options.option("--linearized", help="Train the linearization of the network instead.")
    ] = False,
    run: options.TrainingOptions,
    keep: Annotated[
        str | None,
        options.option(
            value="LIST",
            help="Epochs whose weights are kept as epoch-N.pt, for instance 1,2,5; 'tangentlab explore' shows them.",
        ),
    ] = None,
    device: options.Device = None,
    output: options.OutputOptions,
) -> None:
    """Train a network, or its linearization, on a task. Rerun the command to resume after an interruption.

    Writes history.csv, history.png, weights.pt (a state dict), start.pt (the initial weights), epoch-N.pt with --keep,
    and record.json.

    Example: tangentlab train --model lenet -o variant=ortiz2021 --data digits --task cifar2 --epochs 5 --out runs/lenet
    """
    from tangentlab import training
    from tangentlab._cli._learning_task import load_task
    from tangentlab._cli._recipe import make_recipe
    from tangentlab.linearized import linearize as linearization

    learning = load_task(make_recipe(network, samples), task, device, output)
    spec = _spec(learning, run)
    folder = Folder(out)
    start = {name: value.clone() for name, value in learning.model.state_dict().items()}
    trained = linearization(learning.callable) if linearized else learning.callable
    result = training.train(
        trained, learning.splits, spec, folder=out / "checkpoints", callbacks=_keeping(keep, spec.epochs),
        progress=output.progress,
    )  # fmt: skip
    folder.table("history.csv", result.history)
    for epoch, weights in result.values.get(_KEPT, {}).items():
        folder.tensors(f"epoch-{epoch}.pt", weights)
    folder.figure("history.png", lambda plot: plot.history(result))
    folder.tensors(_START, start)
    folder.tensors("weights.pt", (trained if linearized else learning.model).state_dict())
    facts = {
        "model": network.model,
        "linearized": linearized,
        "task": task,
        "weights": str(out / "weights.pt"),
        **result.final,
    }
    folder.record({**facts, **spec.describe()})
    say(facts, output.as_json)


@command(app, stopped="Rerun the command with the same --out to resume; without --out it starts over.")
def compare(
    *,
    network: options.TrainedNetworkOptions,
    samples: options.DataOptions = options.DIGITS,
    task: options.Task = "classes",
    at: Annotated[
        str,
        options.option(value="PLACE", help="Where to linearize: start, end, or epochs, separated by commas."),
    ] = "start",
    run: options.TrainingOptions,
    device: options.Device = None,
    output: options.FolderOptions,
) -> None:
    """Train a network and its linearizations from the same start on the same minibatches, and compare them.

    Example: tangentlab compare --model mlp --data digits --task cifar2 --at start,end --epochs 5
    """
    from tangentlab import training
    from tangentlab._cli._learning_task import load_task
    from tangentlab._cli._recipe import make_recipe

    learning = load_task(make_recipe(network, samples), task, device, output)
    spec = _spec(learning, run)
    places: list[Any] = [int(part) if part.isdecimal() else part for part in at.split(",")]
    folder = Folder(output.out)
    found = training.compare(
        learning.callable,
        learning.splits,
        spec,
        at=places,
        folder=None if output.out is None else output.out / "checkpoints",
        progress=output.progress,
    )
    folder.table("comparison.csv", found.table, index=True)
    folder.record({"model": network.model, "task": task, "at": at, **spec.describe()})
    if output.as_json:
        say({name: dict(row) for name, row in found.table.iterrows()}, True)
    else:
        say_table(found.shown().reset_index(), digits=4)


@command(app)
def linearize(
    *,
    network: options.NetworkOptions,
    base: Annotated[
        str | None,
        options.option(
            value="FILE|start",
            help="Weights to linearize at: a file, or start for the initial weights that --seed draws; by default "
            "start.pt next to the checkpoint.",
        ),
    ] = None,
    samples: options.DataOptions = options.DIGITS,
    task: options.Task = "classes",
    points: Annotated[
        int, options.option(value="N", min=1, help="Number of points on the way from the base to the trained weights.")
    ] = 5,
    device: options.Device = None,
    output: options.FolderOptions,
) -> None:
    """Measure how far a trained network is from its linearization, on the straight line to its weights.

    Accuracies are of the network and of the linear model with the same displacement, on the test samples. The trained
    weights are those of --checkpoint. The result names the weights that it linearizes at; 'tangentlab train' writes
    them as start.pt next to the trained ones.

    Example: tangentlab linearize --model lenet -o variant=ortiz2021 --checkpoint runs/lenet/weights.pt --task cifar2
    """
    from tangentlab import analysis
    from tangentlab._cli._learning_task import inputs_of, load_task
    from tangentlab._cli._recipe import make_recipe
    from tangentlab.linearized import linearize as linearization

    if network.checkpoint is None:
        raise TangentError("--checkpoint is missing.", "It holds the trained weights.", "Train with tangentlab train.")
    recipe = make_recipe(replace(network, checkpoint=_base(base, network.checkpoint)), samples)
    start = load_task(recipe, task, device, output)
    trained = load_task(make_recipe(network, samples), task, device, output)
    test = start.data.test
    if not start.has_test:
        raise TangentError(
            f"{start.data.name} has no test samples.",
            "The linearization is measured on them.",
            "Pass --test-data and --test-labels, or an --n-train below the number of samples.",
        )
    inputs = inputs_of(test) if recipe.from_file else test.inputs()
    fractions = [i / points for i in range(1, points + 1)]
    path = analysis.straight_path(start.callable, trained.callable, fractions)
    table = analysis.linearization_along(start.callable, path, start.placed(inputs))
    table.insert(0, "fraction", fractions)
    linear = linearization(start.callable)
    linear.load_state_dict(trained.callable.state_dict(), strict=False)
    facts = {
        "base": recipe.start,
        "network_accuracy": trained.accuracy(trained.outputs(test), test),
        "linear_accuracy": trained.accuracy(start.outputs(test, model=linear), test),
        "relative_error": float(table["error"].iloc[-1]),
        "distance": float(table["distance"].iloc[-1]),
    }
    folder = Folder(output.out)
    folder.table("linearization.csv", table)
    folder.record(facts)
    if not output.as_json:
        say_table(table, digits=4)
    say({**facts, "path": table.to_dict("records")} if output.as_json else facts, output.as_json)


def _keeping(epochs: str | None, last: int) -> "list[Callback]":
    """Return the callback that keeps the weights after some epochs, if any.

    Raises:
        TangentError: They are not epochs of the run.
    """
    from tangentlab import training

    if epochs is None:
        return []
    parts = [part.strip() for part in epochs.split(",")]
    if not all(part.isdecimal() and 0 < int(part) <= last for part in parts):
        raise TangentError(f"--keep is {epochs!r}.", f"Epochs are numbered 1 to {last}.", "Write 1,2,5, for example.")

    def weights(model: Any, epoch: int) -> dict[str, Any]:
        return {name: value.detach().clone() for name, value in model.state_dict().items()}

    return [training.Callback(_KEPT, weights, [int(part) for part in parts])]


def _base(base: str | None, checkpoint: Path) -> Path | None:
    """Return the file of the weights to linearize at; None for the initial weights.

    Raises:
        TangentError: They are not known.
    """
    if base is not None:
        return None if base == "start" else Path(base)
    beside = checkpoint.parent / _START
    if not beside.is_file():
        raise TangentError(
            "--base is missing.",
            f"There is no {beside}, and what {checkpoint} was trained from is not known.",
            "Pass --base FILE with the weights before training, or --base start for the initial weights that "
            "--seed draws.",
        )
    return beside


def _spec(learning: "LearningTask", run: options.TrainingOptions) -> "TrainingSpec":
    from tangentlab import training
    from tangentlab._cli._learning_task import choose, make_loss

    schedules: dict[str, Any] = {
        "constant": training.Constant,
        "linear": training.LinearDecay,
        "steps": training.Steps,
        "one-cycle": training.OneCycle,
    }
    optimizers: dict[str, Any] = {
        "sgd": lambda: training.SGD(run.lr, momentum=run.momentum, weight_decay=run.weight_decay),
        "adam": lambda: training.Adam(run.lr, weight_decay=run.weight_decay),
    }
    loss = make_loss(run.loss, learning)
    learning.refuse_loss(loss)
    return training.TrainingSpec(
        epochs=run.epochs,
        batch_size=run.batch_size,
        loss=loss,
        optimizer=choose(optimizers, run.optimizer, "optimizer")(),
        schedule=choose(schedules, run.schedule, "schedule")(),
        seed=run.batch_seed,
    )
