"""A network, images and a task, by what a user writes on the command line."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab import data, tasks, training
from tangentlab._cli._recipe import Recipe
from tangentlab._errors import TangentError

TASKS: dict[str, Callable[[data.ImageData], data.ImageData]] = {
    "classes": lambda images: images,
    "cifar2": tasks.cifar2,
    "one-hot": tasks.one_hot,
    "random": lambda images: tasks.binary(tasks.random_labels(images, classes=2), [1]),
}
"""By name; besides, ``one-vs-rest:CLASS``."""

LOSSES: dict[str, Callable[[], training.Loss]] = {
    "sigmoid": training.SigmoidCrossEntropy,
    "softmax": training.SoftmaxCrossEntropy,
    "squared": training.Squared,
}


@dataclass(frozen=True)
class Problem:
    """What most commands work on.

    Attributes:
        model: With its weights, in evaluation mode.
        images: With the task's targets.
        device: Where the model is.
    """

    model: nn.Module
    images: data.ImageData
    device: torch.device

    @property
    def binary(self) -> bool:
        """Whether the sign of one output decides."""
        return self.images.train.targets.ndim == 2 and self.images.train.targets.shape[1] == 1

    def targets(self, split: data.Examples) -> Tensor:
        """(N, L) numbers to fit: the task's, or one-hot vectors of class numbers."""
        targets = split.targets
        if targets.ndim == 2:
            return targets.double()
        return torch.nn.functional.one_hot(targets, len(self.images.classes)).double()

    def outputs(self, split: data.Examples, batch_size: int = 512) -> Tensor:
        """f(x) on a split, (N, L)."""
        with torch.no_grad():
            parts = [
                self.model(split.batch(range(i, min(i + batch_size, len(split))))[0].to(self.device))
                for i in range(0, len(split), batch_size)
            ]
        return torch.cat(parts)

    def accuracy(self, predictions: Tensor, split: data.Examples) -> float:
        """Share of samples whose sign (binary tasks) or largest output is right."""
        targets = self.targets(split).to(predictions)
        right = (predictions * targets > 0)[:, 0] if self.binary else predictions.argmax(1) == targets.argmax(1)
        return float(right.double().mean())


def load_problem(recipe: Recipe, task: str, device: str | None = None) -> Problem:
    """The network and the images of a recipe, with a task's targets.

    A network of :mod:`tangentlab.models` gets as many outputs as the task has, unless its options say otherwise.

    Raises:
        TangentError: There is no such task, or the data are not labelled images.
    """
    if Path(recipe.data).suffix:
        raise TangentError(
            f"{recipe.data} is a file of inputs.",
            "this command needs labelled images.",
            f"pass --data with one of {', '.join(source.name for source in data.available())}; for samples and labels "
            "of your own, compute the kernel first, then tangentlab regress --kernel STORE --labels FILE.",
        )
    images = task_by_name(task)(recipe.load_images())
    options = dict(recipe.model_options)
    targets = images.train.targets
    if ":" not in recipe.model:
        options.setdefault("outputs", targets.shape[1] if targets.ndim == 2 else len(images.classes))
    model = replace(recipe, model_options=options).load_model(images.train)
    chosen = torch.device(device) if device else next(model.parameters()).device
    return Problem(model.to(chosen), images, chosen)


def make_loss(name: str | None, problem: Problem) -> training.Loss:
    """A loss by name; by default sigmoid cross-entropy for one logit, squared for vectors, softmax for classes."""
    if name is None:
        name = "sigmoid" if problem.binary else "squared" if problem.images.train.targets.ndim == 2 else "softmax"
    return choose(LOSSES, name, "loss")()


def choose(table: Mapping[str, Any], name: str, what: str) -> Any:
    """An entry, or a refusal with a suggestion."""
    if name in table:
        return table[name]
    close = get_close_matches(name, table, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(table)}."
    raise TangentError(f"there is no {what} {name!r}.", "", hint)


def task_by_name(name: str) -> Callable[[data.ImageData], data.ImageData]:
    """What turns labelled images into those of a task, or a refusal with a suggestion."""
    kind, colon, which = name.partition(":")
    if kind == "one-vs-rest":
        positive: int | str = int(which) if which.isdecimal() else which
        return lambda images: tasks.one_vs_rest(images, positive if colon else 0)
    return choose({**TASKS, "one-vs-rest:0": None}, name, "task")
