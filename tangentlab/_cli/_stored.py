"""Kernel regression from a kernel on disk that holds training and test samples."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tangentlab import data, linalg, store
from tangentlab._cli._files import load_samples
from tangentlab._cli._problem import task_by_name
from tangentlab._cli._recipe import Recipe
from tangentlab._cli.kernel import _kernel_options
from tangentlab._errors import TangentError
from tangentlab.kernels._inputs import Samples
from tangentlab.kernels._network import Network
from tangentlab.linalg._symmetry import spans
from tangentlab.store import StoredKernel
from tangentlab.store._manifest import unrounded
from tangentlab.store._setup import Request, recognize

_ROWS = 1024
"""Samples that are predicted together: their kernel with all training samples is in memory."""


@dataclass(frozen=True)
class StoredProblem:
    """A kernel on disk and what to fit with it.

    Attributes:
        kernel: Of all samples, training samples first.
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
        """Rows of the kernel for a sample: 1, or the number of outputs of a full kernel."""
        return self.kernel.shape[0] // len(self.targets)

    @property
    def train(self) -> linalg.Part:
        """The kernel of the training samples."""
        return linalg.Part(self.kernel, 0, self.n_train * self.rows)

    def predict(self, fit: linalg.Regression) -> Tensor:
        """Predictions for all samples, (N, L)."""
        columns, parts = slice(0, self.n_train * self.rows), []
        for part in spans(len(self.targets), _ROWS):
            cross = self.kernel.read(slice(part.start * self.rows, part.stop * self.rows), columns)
            parts.append(fit.predict(cross, f0=self.f0[part]))
        return torch.cat(parts)

    def accuracy(self, outputs: Tensor, part: slice) -> float:
        """Share of samples whose sign (one target) or largest output is right."""
        found, wanted = outputs[part], self.targets[part]
        right = (found * wanted > 0)[:, 0] if wanted.shape[1] == 1 else found.argmax(1) == wanted.argmax(1)
        return float(right.double().mean())


def load_stored(path: Path, task: str, labels: Path | None, n_train: int | None, prior: bool) -> StoredProblem:
    """What a store that the command line made can be regressed on.

    Args:
        path: The store.
        task: The targets of a named data set.
        labels: A file of targets: class numbers (N,), or numbers (N, L). Needed where the samples came from a file.
        n_train: The first so many samples are for training; by default the training split.
        prior: Whether to start from the network's outputs.

    Raises:
        TangentError: The store is not complete, not of this model and data any more, or does not fit the targets.
    """
    kernel = store.open(path)
    provenance = kernel.manifest.provenance
    recipe = Recipe.from_json(provenance.get("recipe"))
    if not kernel.complete:
        raise TangentError(
            f"{path} is not complete.", f"{kernel.progress:.1%} is there.", f"tangentlab kernel resume {path} goes on."
        )
    model, x = recipe.load()
    # Refuses, with what differs, if model or data have changed since.
    recognize(
        Request(model, x, **_kernel_options(dict(provenance.get("options", {})))), unrounded(kernel.manifest), path
    )
    if labels is None:
        y, first = _targets_of(recipe, task)
    else:
        y, first = _targets_in(labels), None
    samples = kernel.plan.samples
    first = n_train or first or samples
    if len(y) != samples or not 0 < first <= samples:
        raise TangentError(
            f"{len(y):,} targets, {first:,} of them for training, do not fit the kernel of {samples:,} samples.",
            "",
            "give one target a sample, and --n-train up to their number.",
        )
    outputs = None
    if prior:
        network = Network(model, "full")
        outputs = network.values_on(Samples(x, device=network.device, model=model), _ROWS).double().cpu()
        if outputs.shape != y.shape:
            raise TangentError(
                f"the network has {outputs.shape[1]} outputs and the task {y.shape[1]}.",
                "its outputs are the prior mean of the regression.",
                "choose another --task (cifar2 has one target), or --no-prior to start from zero.",
            )
    return StoredProblem(kernel, y, torch.zeros_like(y) if outputs is None else outputs, first, outputs)


def _targets_of(recipe: Recipe, task: str) -> tuple[Tensor, int | None]:
    if Path(recipe.data).suffix:
        raise TangentError(
            f"the samples of the store came from {recipe.data}.", "it has no labels.", "pass --labels FILE."
        )
    images = task_by_name(task)(recipe.load_images())
    parts = {"train": [images.train], "test": [images.test], "all": [images.train, images.test]}[recipe.split]
    return torch.cat([_numbers(part, len(images.classes)) for part in parts]), len(parts[0])


def _numbers(examples: data.Examples, classes: int) -> Tensor:
    y = examples.targets
    return y.double() if y.ndim == 2 else torch.nn.functional.one_hot(y, classes).double()


_MOST_CLASSES = 100_000
"""Each is a column of the targets."""


def _targets_in(path: Path) -> Tensor:
    y: Any = load_samples(path)
    if not isinstance(y, Tensor) or y.ndim not in (1, 2):
        raise TangentError(
            f"{path} holds no targets.", "", "pass class numbers (N,), or numbers (N, L), as .npy or .pt."
        )
    if y.ndim == 1 and not y.is_floating_point():
        if len(y) == 0:
            raise TangentError(f"{path} holds no targets.", "it is empty.", "pass one target a sample.")
        y = y.long()
        if int(y.min()) < 0:
            raise TangentError(f"{path} holds negative class numbers.", "", "number the classes from 0 on.")
        if int(y.max()) >= _MOST_CLASSES:
            raise TangentError(
                f"{path} holds the class number {int(y.max())}.",
                f"every class is a column of the targets, and there are at most {_MOST_CLASSES:,}.",
                "number the classes from 0 on without gaps; pass numbers to be learned as floating point.",
            )
        return torch.nn.functional.one_hot(y).double()
    return y.reshape(len(y), -1).double()
