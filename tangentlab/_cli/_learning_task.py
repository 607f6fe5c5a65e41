"""A network, labeled samples and a task, from options of the command line."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab import tasks, training
from tangentlab._cli._files import ByName
from tangentlab._cli._kernels import load_network, parse_device, try_model
from tangentlab._cli._options import OutputOptions
from tangentlab._cli._recipe import Recipe
from tangentlab._cli._samples import FileSamples
from tangentlab._errors import TangentError
from tangentlab._suggestions import did_you_mean

TASKS: dict[str, Callable[[Any], Any]] = {
    "classes": lambda data: data,
    "cifar2": tasks.cifar2,
    "one-hot": tasks.one_hot,
    "random": lambda data: tasks.binary(tasks.random_labels(data, classes=2), [1]),
}
"""By name; besides, ``one-vs-rest:CLASS``."""

LOSSES: dict[str, Callable[[], training.Loss]] = {
    "sigmoid": training.SigmoidCrossEntropy,
    "softmax": training.SoftmaxCrossEntropy,
    "squared": training.Squared,
}
_CHECKED = 2
"""Samples that a network is tried on."""


@dataclass(frozen=True)
class LearningTask:
    """A network, labeled samples and the targets of a task.

    Attributes:
        model: With its weights, in evaluation mode.
        data: Two splits with the task's targets: :class:`tangentlab.data.ImageData`, or the same of a user's files.
        device: Device of the model.
    """

    model: nn.Module
    data: Any
    device: torch.device

    @property
    def binary(self) -> bool:
        """Whether the sign of a single output is the prediction."""
        return self.data.train.targets.ndim == 2 and self.data.train.targets.shape[1] == 1

    @property
    def has_test(self) -> bool:
        """Whether there are test samples."""
        return len(self.data.test) > 0

    @property
    def dtype(self) -> torch.dtype:
        """The model's precision."""
        return next(self.model.parameters()).dtype

    @property
    def callable(self) -> nn.Module:
        """The model as a module of one argument; it shares the weights."""
        return ByName(self.model) if isinstance(inputs_of(self.data.train), Mapping) else self.model

    @property
    def splits(self) -> Any:
        """The data in the form that training takes."""
        return self.data if self.has_test else SimpleNamespace(train=self.data.train, test=None)

    def targets(self, split: Any) -> Tensor:
        """Return (N, L) numbers to fit: the task's targets, or one-hot vectors of class indices."""
        targets = split.targets
        if targets.ndim == 2:
            return targets.double()
        return torch.nn.functional.one_hot(targets, len(self.data.classes)).double()

    def outputs(self, split: Any, batch_size: int = 512, model: nn.Module | None = None) -> Tensor:
        """Compute f(x) on a split, (N, L), of the network or of another model."""
        called = self.callable if model is None else model
        with torch.no_grad():
            parts = [
                called(self.placed(split.batch(range(i, min(i + batch_size, len(split))))[0]))
                for i in range(0, len(split), batch_size)
            ]
        return torch.cat(parts)

    def placed(self, x: Any) -> Any:
        """Return inputs on the model's device, floating-point ones in its precision."""
        if isinstance(x, Mapping):
            return x
        return x.to(self.device, self.dtype if x.is_floating_point() else None)

    def accuracy(self, predictions: Tensor, split: Any) -> float:
        """Compute the fraction of samples whose sign (binary tasks) or largest output is right."""
        targets = self.targets(split).to(predictions)
        right = (predictions * targets > 0)[:, 0] if self.binary else predictions.argmax(1) == targets.argmax(1)
        return float(right.double().mean())

    def refuse_misfit(self) -> None:
        """Refuse a network that does not fit the samples, after a call with a few of them.

        Raises:
            TangentError: It fails, or does not give one row per sample.
        """
        count = min(_CHECKED, len(self.data.train))
        x = self.placed(self.data.train.batch(range(count))[0])
        found = try_model(self.callable, x, self.data.name)
        if not isinstance(found, Tensor) or found.ndim != 2 or len(found) != count:
            what = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else f"type {type(found).__name__}"
            raise TangentError(
                f"{count} samples give outputs of {what}.",
                "This command needs one row of outputs per sample.",
                "Let the model return a tensor (samples, outputs).",
            )

    def refuse_loss(self, loss: training.Loss) -> None:
        """Refuse a loss that does not fit outputs and targets, before anything is written.

        Raises:
            TangentError: It does not fit the outputs and the targets.
        """
        x, targets = self.data.train.batch(range(min(_CHECKED, len(self.data.train))))
        with torch.no_grad():
            loss.check(self.callable(self.placed(x)), targets.to(self.device))


def inputs_of(split: Any) -> Any:
    """Return the samples of a split in the form that kernels take."""
    return split.inputs() if isinstance(split, FileSamples) else split


def load_task(recipe: Recipe, task: str | None, device: str | None, output: OutputOptions) -> LearningTask:
    """Load the network and the samples of a recipe, with a task's targets.

    A network of :mod:`tangentlab.models` gets as many outputs as the task has, unless its options say otherwise.

    Args:
        recipe: Network and samples.
        task: The targets; None for the labels.
        device: Device for the model.
        output: Whether to be quiet.

    Raises:
        TangentError: There is no such task, the samples have no labels, or the network does not take them.
    """
    data = apply_task(recipe.load_labeled(), task or "classes")
    options = dict(recipe.model_options)
    targets = data.train.targets
    if not recipe.from_factory:
        options.setdefault("outputs", targets.shape[1] if targets.ndim == 2 else len(data.classes))
    model = load_network(replace(recipe, model_options=options), inputs_of(data.train), output)
    first = next(model.parameters(), None)
    if first is None:
        raise TangentError("The model has no parameters.", "There is nothing to differentiate.", "Check the model.")
    chosen = parse_device(device) or first.device
    learning = LearningTask(model.to(chosen), data, chosen)
    learning.refuse_misfit()
    return learning


def make_loss(name: str | None, learning: LearningTask) -> training.Loss:
    """Make a loss by name; by default sigmoid cross-entropy for signs, squared for vectors, softmax for classes."""
    if name is None:
        targets = learning.data.train.targets
        signs = learning.binary and bool((targets.abs() == 1).all())
        name = "sigmoid" if signs else "squared" if targets.ndim == 2 else "softmax"
    return choose(LOSSES, name, "loss")()


def choose(table: Mapping[str, Any], name: str, what: str) -> Any:
    """Return an entry of a table, or refuse the name with a suggestion."""
    if name in table:
        return table[name]
    hint = f"{did_you_mean(name, table)}Choose one of {', '.join(table)}."
    raise TangentError(f"There is no {what} {name!r} for --{what}.", "", hint)


def apply_task(data: Any, name: str) -> Any:
    """Replace the targets of labeled samples by those of a task.

    Raises:
        TangentError: There is no such task, or it does not fit these labels.
    """
    chosen = task_by_name(name)
    if not data.classes and name != "classes":
        raise TangentError(
            f"The labels of {data.name} are real numbers.",
            f"--task {name} is made from class indices.",
            "Leave --task out, or write whole numbers from 0 into the file of labels.",
        )
    return chosen(data)


def task_by_name(name: str) -> Callable[[Any], Any]:
    """Return the function that applies a task to labeled samples, or refuse the name with a suggestion."""
    kind, colon, which = name.partition(":")
    if kind == "one-vs-rest":
        positive: int | str = int(which) if which.isdecimal() else which
        return lambda data: tasks.one_vs_rest(data, positive if colon else 0)
    found: Callable[[Any], Any] = choose({**TASKS, "one-vs-rest:0": None}, name, "task")
    return found
