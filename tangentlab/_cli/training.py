"""``tangentlab train``, ``compare`` and ``linearize``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tangentlab._cli import _options as options
from tangentlab._cli._output import Folder, interruptible, say
from tangentlab._errors import TangentError

if TYPE_CHECKING:
    from tangentlab._cli._problem import Problem
    from tangentlab.training import TrainingSpec


def train(
    out: Annotated[Path, typer.Option(help="Folder for checkpoints, weights and the history.")],
    model: options.Model = None,
    model_option: options.ModelOption = None,
    checkpoint: options.Checkpoint = None,
    data: options.Data = "digits",
    data_dir: options.DataDir = None,
    n_train: options.NTrain = None,
    n_test: options.NTest = None,
    data_seed: options.DataSeed = 0,
    task: options.Task = "classes",
    linearized: Annotated[bool, typer.Option("--linearized", help="Train the linearization instead.")] = False,
    epochs: options.Epochs = 10,
    batch_size: options.BatchSize = 128,
    lr: options.Rate = 0.05,
    momentum: options.Momentum = 0.9,
    weight_decay: options.WeightDecay = 0.0,
    optimizer: options.OptimizerName = "sgd",
    schedule: options.ScheduleName = "linear",
    loss: options.LossName = None,
    seed: options.Seed = 0,
    device: options.Device = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train a network, or its linearization, on a task. The same command again goes on where it stopped.

    Writes history.csv, history.png, weights.pt (a state dict) and record.json.

    Example: tangentlab train --model lenet -o variant=ortiz2021 --data digits --task cifar2 --epochs 5 --out runs/lenet
    """
    import torch

    from tangentlab import linearize as linearization
    from tangentlab import plot, training

    problem = _problem(model, model_option, checkpoint, data, data_dir, n_train, n_test, data_seed, task, device)
    spec = _spec(problem, epochs, batch_size, lr, momentum, weight_decay, optimizer, schedule, loss, seed)
    folder = Folder(out)
    trained = linearization(problem.model) if linearized else problem.model
    with interruptible("The same command goes on from the last checkpoint."):
        result = training.train(
            trained, problem.images, spec, folder=out / "checkpoints", progress=False if quiet else None
        )
    folder.table("history.csv", result.history)
    folder.figure("history.png", plot.history(result))
    torch.save(trained.state_dict(), out / "weights.pt")
    facts = {"model": model, "linearized": linearized, "task": task, "weights": str(out / "weights.pt"), **result.final}
    folder.record({**facts, **spec.describe()})
    say(facts, as_json)


def compare(
    model: options.Model = None,
    model_option: options.ModelOption = None,
    checkpoint: options.Checkpoint = None,
    data: options.Data = "digits",
    data_dir: options.DataDir = None,
    n_train: options.NTrain = None,
    n_test: options.NTest = None,
    data_seed: options.DataSeed = 0,
    task: options.Task = "classes",
    at: Annotated[str, typer.Option(help="Where to linearize: start, end, or epochs, with commas.")] = "start",
    epochs: options.Epochs = 10,
    batch_size: options.BatchSize = 128,
    lr: options.Rate = 0.05,
    momentum: options.Momentum = 0.9,
    weight_decay: options.WeightDecay = 0.0,
    optimizer: options.OptimizerName = "sgd",
    schedule: options.ScheduleName = "linear",
    loss: options.LossName = None,
    seed: options.Seed = 0,
    device: options.Device = None,
    out: options.Out = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train a network and its linearizations from the same start on the same minibatches, and compare them.

    Example: tangentlab compare --model mlp --data digits --task cifar2 --at start,end --epochs 5
    """
    from tangentlab import training

    problem = _problem(model, model_option, checkpoint, data, data_dir, n_train, n_test, data_seed, task, device)
    spec = _spec(problem, epochs, batch_size, lr, momentum, weight_decay, optimizer, schedule, loss, seed)
    places: list[Any] = [int(part) if part.isdecimal() else part for part in at.split(",")]
    folder = Folder(out)
    hint = "The same command goes on." if out else "With --out it can be continued."
    with interruptible(hint):
        found = training.compare(
            problem.model,
            problem.images,
            spec,
            at=places,
            folder=None if out is None else out / "checkpoints",
            progress=False if quiet else None,
        )
    folder.table("comparison.csv", found.table, index=True)
    folder.record({"model": model, "task": task, "at": at, **spec.describe()})
    if as_json:
        say({name: dict(row) for name, row in found.table.iterrows()}, True)
    else:
        print(found)


def linearize(
    model: options.Model = None,
    model_option: options.ModelOption = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Trained weights (.pt or .safetensors).")] = None,
    base: Annotated[Path | None, typer.Option(help="Weights to linearize at; by default the model's start.")] = None,
    data: options.Data = "digits",
    data_dir: options.DataDir = None,
    n_train: options.NTrain = None,
    n_test: options.NTest = None,
    data_seed: options.DataSeed = 0,
    task: options.Task = "classes",
    points: Annotated[int, typer.Option(min=1, help="Points on the way from the base to the trained weights.")] = 5,
    device: options.Device = None,
    out: options.Out = None,
    as_json: options.Json = False,
) -> None:
    """How far a trained network is from its linearization: the error on the straight way to its weights.

    Accuracies are of the network and of the linear model with the same displacement, on the test samples.

    Example: tangentlab linearize --model lenet -o variant=ortiz2021 --checkpoint runs/lenet/weights.pt --task cifar2
    """
    from tangentlab import analysis
    from tangentlab import linearize as linearization
    from tangentlab._cli._files import load_weights

    if checkpoint is None:
        raise TangentError("--checkpoint is missing.", "it holds the trained weights.", "train with tangentlab train.")
    given = (data, data_dir, n_train, n_test, data_seed, task, device)
    start = _problem(model, model_option, base, *given)
    trained = _problem(model, model_option, checkpoint, *given)
    test = start.images.test
    inputs = test.inputs().to(start.device)
    path = analysis.straight_path(start.model, trained.model, [i / points for i in range(1, points + 1)])
    table = analysis.linearization_along(start.model, path, inputs)
    table.insert(0, "fraction", [i / points for i in range(1, points + 1)])
    linear = linearization(start.model)
    load_weights(linear, checkpoint)
    linear_problem = type(start)(linear, start.images, start.device)
    facts = {
        "network_accuracy": trained.accuracy(trained.outputs(test), test),
        "linear_accuracy": trained.accuracy(linear_problem.outputs(test), test),
        "relative_error": float(table["error"].iloc[-1]),
        "distance": float(table["distance"].iloc[-1]),
    }
    folder = Folder(out)
    folder.table("linearization.csv", table)
    folder.record(facts)
    if not as_json:
        print(table.to_string(index=False, float_format=lambda value: f"{value:.4g}"))
    say({**facts, "path": table.to_dict("records")} if as_json else facts, as_json)


def _problem(
    model: str | None,
    model_option: list[str] | None,
    checkpoint: Path | None,
    data: str | None,
    data_dir: Path | None,
    n_train: int | None,
    n_test: int | None,
    data_seed: int,
    task: str,
    device: str | None,
) -> "Problem":
    from tangentlab._cli._problem import load_problem
    from tangentlab._cli._recipe import make_recipe

    recipe = make_recipe(model, model_option, checkpoint, data, data_dir, "train", n_train, n_test, data_seed)
    return load_problem(recipe, task, device)


def _spec(
    problem: "Problem",
    epochs: int,
    batch_size: int,
    lr: float,
    momentum: float,
    weight_decay: float,
    optimizer: str,
    schedule: str,
    loss: str | None,
    seed: int,
) -> "TrainingSpec":
    from tangentlab import training
    from tangentlab._cli._problem import choose, make_loss

    schedules: dict[str, Any] = {
        "constant": training.Constant,
        "linear": training.LinearDecay,
        "steps": training.Steps,
        "one-cycle": training.OneCycle,
    }
    optimizers: dict[str, Any] = {
        "sgd": lambda: training.SGD(lr, momentum=momentum, weight_decay=weight_decay),
        "adam": lambda: training.Adam(lr, weight_decay=weight_decay),
    }
    return training.TrainingSpec(
        epochs=epochs,
        batch_size=batch_size,
        loss=make_loss(loss, problem),
        optimizer=choose(optimizers, optimizer, "optimizer")(),
        schedule=choose(schedules, schedule, "schedule")(),
        seed=seed,
    )
