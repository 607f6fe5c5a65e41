"""A kernel on disk with the targets of its samples, training samples first."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tangentlab import linalg, store
from tangentlab._cli._kernels import parse_dtype, remembered, stored_network
from tangentlab._cli._learning_task import apply_task
from tangentlab._cli._options import OutputOptions, StorePath
from tangentlab._cli._readouts import load_readout
from tangentlab._cli._recipe import Recipe
from tangentlab._cli._samples import FileData, FileSamples, load_labels
from tangentlab._errors import TangentError
from tangentlab.kernels.internal import Network, Samples
from tangentlab.linalg.internal import spans
from tangentlab.store import StoredKernel
from tangentlab.store.internal import Request, recognize, unrounded

_ROWS = 1024
"""Samples that are predicted together: their kernel with all training samples is in memory."""


@dataclass(frozen=True)
class LabeledKernel:
    """A kernel on disk with the targets of its samples.

    Attributes:
        kernel: Kernel of all samples, training samples first.
        targets: (N, L), float64.
        f0: The network's outputs, (N, L), float64; zero without a prior.
        n_train: How many of the samples are for training.
        network: The network's outputs, or None where they were not asked for.
    """

    kernel: StoredKernel
    targets: Tensor
    f0: Tensor
    n_train: int
    network: Tensor | None

    @property
    def rows(self) -> int:
        """The number of rows of the kernel per sample: 1, or the number of outputs of a full kernel."""
        return self.kernel.shape[0] // len(self.targets)

    @property
    def train(self) -> linalg.Part:
        """The kernel of the training samples."""
        return linalg.Part(self.kernel, 0, self.n_train * self.rows)

    def predict(self, fit: linalg.Regression) -> Tensor:
        """Compute predictions for all samples, (N, L)."""
        columns, parts = slice(0, self.n_train * self.rows), []
        for part in spans(len(self.targets), _ROWS):
            cross = self.kernel.read(slice(part.start * self.rows, part.stop * self.rows), columns)
            parts.append(fit.predict(cross, f0=self.f0[part]))
        return torch.cat(parts)

    def accuracy(self, outputs: Tensor, part: slice) -> float:
        """Compute the fraction of samples whose sign (one target) or largest output is right."""
        found, wanted = outputs[part], self.targets[part]
        right = (found * wanted > 0)[:, 0] if wanted.shape[1] == 1 else found.argmax(1) == wanted.argmax(1)
        return float(right.double().mean())


def load_stored(
    path: StorePath,
    task: str | None,
    labels: Path | None,
    n_train: int | None,
    output: OutputOptions,
    prior: bool = False,
) -> LabeledKernel:
    """Load a kernel that the command line stored, with targets to fit or to align.

    Args:
        path: The store.
        task: The targets, made from labels of classes; None for cifar2 of named data, and the labels of files.
        labels: A file of targets: class numbers (N,), or numbers (N, L). Needed where the samples came from a file and
            the store does not remember their labels.
        n_train: Number of samples for training, the first ones; by default the training split.
        output: Whether to be quiet.
        prior: Whether to start from the network's outputs.

    Raises:
        TangentError: The store is not complete, does not match model and data any more, or does not fit the targets.
    """
    kernel = store.open(path)
    recipe, chosen = remembered(path)
    if not kernel.complete:
        raise TangentError(
            f"{path} is not complete.", f"{kernel.progress:.1%} is there.", f"Run tangentlab kernel resume {path}."
        )
    x = recipe.load_samples()
    model = stored_network(path, recipe, x, output)
    # Refuses, with what differs, if model or data have changed since.
    request = Request.of(model, x, **load_readout(chosen, recipe), dtype=parse_dtype(chosen.dtype))
    recognize(request, unrounded(kernel.manifest), path)
    if task is None:
        task = "cifar2" if labels is None and not recipe.from_file else "classes"
    if labels is None:
        y, first = _targets_of(recipe, task)
    else:
        y, first = _targets_in(labels, task), None
    samples = kernel.plan.samples
    first = n_train if n_train is not None else first or samples
    if len(y) != samples or not 0 < first <= samples:
        raise TangentError(
            f"{len(y):,} targets, {first:,} of them for training, do not fit the kernel of {samples:,} samples.",
            "",
            "Give one target per sample, and --n-train up to their number.",
        )
    outputs = None
    if prior:
        network = Network(model, "full")
        outputs = network.values_on(Samples(x, device=network.device, model=model), _ROWS).double().cpu()
        if outputs.shape != y.shape:
            raise TangentError(
                f"The network has {outputs.shape[1]} outputs and the task {y.shape[1]}.",
                "Its outputs are the prior mean of the regression.",
                "Choose another --task (cifar2 has one target), or --no-prior to start from zero.",
            )
    return LabeledKernel(kernel, y, torch.zeros_like(y) if outputs is None else outputs, first, outputs)


def _targets_of(recipe: Recipe, task: str) -> tuple[Tensor, int | None]:
    """Return the targets of all samples of a recipe, and how many are for training."""
    if recipe.from_file and recipe.labels is None:
        raise TangentError(
            f"The samples of the store came from {recipe.data}.", "It has no labels.", "Pass --labels FILE."
        )
    if recipe.from_file and recipe.test_data is not None and recipe.test_labels is None:
        raise TangentError(
            f"The test samples of the store came from {recipe.test_data}.",
            "The store does not record their labels.",
            "Pass --labels FILE with the labels of all samples.",
        )
    data = apply_task(recipe.load_labeled(), task)
    parts = {"train": [data.train], "test": [data.test], "all": [data.train, data.test]}[recipe.split]
    return torch.cat([_numbers(part, len(data.classes)) for part in parts]), len(parts[0])


def _numbers(examples: Any, classes: int) -> Tensor:
    y = examples.targets
    return y.double() if y.ndim == 2 else torch.nn.functional.one_hot(y, classes).double()


def _targets_in(path: Path, task: str = "classes") -> Tensor:
    """Load a file of labels as the targets of a task."""
    y = load_labels(path)
    if y.is_floating_point():
        labels, targets, count = torch.zeros(len(y), dtype=torch.int64), y, 0
    else:
        labels, targets, count = y, None, int(y.max()) + 1
    split = FileSamples(None, labels, targets)
    data = FileData(path.name, split, split, tuple(str(number) for number in range(count)))
    made = apply_task(data, task)
    return _numbers(made.train, len(made.classes))
