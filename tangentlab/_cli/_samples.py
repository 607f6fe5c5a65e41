"""A user's own samples with labels and splits, in the form that tasks and training take."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tangentlab._cli._files import load_samples
from tangentlab._errors import TangentError

MOST_CLASSES = 100_000
"""Each is a column of the targets."""


@dataclass(frozen=True, eq=False)
class FileSamples:
    """One split, the counterpart of :class:`tangentlab.data.Examples` for inputs of any kind.

    Attributes:
        x: The inputs of N samples: a tensor, or tensors by the names of the model's arguments.
        labels: (N,) int64 class indices; zeros where the targets are real.
        task_targets: (N, L) floating point, or None where the labels are the targets.
    """

    x: Any
    labels: Tensor
    task_targets: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def targets(self) -> Tensor:
        """The targets to learn."""
        return self.labels if self.task_targets is None else self.task_targets

    def with_targets(self, targets: Tensor) -> "FileSamples":
        """Return the same inputs with other targets."""
        return replace(self, task_targets=targets)

    def inputs(self) -> Any:
        """Return all inputs."""
        return self.x

    def batch(self, indices: Any) -> tuple[Any, Tensor]:
        """Return inputs and targets of some samples; real targets in the default precision."""
        rows = torch.as_tensor(indices)
        targets = self.targets[rows]
        return index(self.x, rows), targets.float() if targets.is_floating_point() else targets


@dataclass(frozen=True, eq=False)
class FileData:
    """Two splits, the counterpart of :class:`tangentlab.data.ImageData`; the test split may be empty.

    Attributes:
        name: Name of the file.
        train: The training samples.
        test: The test samples.
        classes: Names of the classes, none for real targets.
    """

    name: str
    train: FileSamples
    test: FileSamples
    classes: tuple[str, ...]


def load_splits(
    data: str,
    labels: str | None,
    test_data: str | None,
    test_labels: str | None,
    n_train: int | None,
    n_test: int | None,
) -> FileData:
    """Load training and test samples with their targets.

    With ``test_data`` the splits are two files, of which the first ``n_train`` and ``n_test`` samples count. Without,
    the first ``n_train`` samples of the one file are for training and the ``n_test`` after them, by default all others,
    for testing.

    Raises:
        TangentError: Labels are missing, or inputs and labels do not fit each other.
    """
    if labels is None:
        raise TangentError(f"{data} has no labels.", "This command needs labeled samples.", "Pass --labels FILE.")
    if (test_data is None) != (test_labels is None):
        given, other = ("--test-data", "--test-labels") if test_labels is None else ("--test-labels", "--test-data")
        raise TangentError(f"{given} was given without {other}.", "Test samples need both.", f"Pass {other} FILE.")
    train = _labeled(data, labels)
    total = len(train[1])
    if test_data is None or test_labels is None:
        first = chosen("--n-train", n_train, total, data)
        last = first + chosen("--n-test", n_test, total - first, f"{data} after the training samples", total)
        test = _rows(train, slice(first, last))
        train = _rows(train, slice(0, first))
    else:
        test = _labeled(test_data, test_labels)
        refuse_other_kind(data, train[0], test_data, test[0])
        train = _rows(train, slice(0, chosen("--n-train", n_train, total, data)))
        test = _rows(test, slice(0, chosen("--n-test", n_test, len(test[1]), test_data)))
    kinds = {(part[1].ndim, part[1].shape[1:], part[1].is_floating_point()) for part in (train, test)}
    if len(kinds) > 1:
        raise TangentError(
            f"{labels} and {test_labels} hold targets of different kinds.",
            "Both must be class indices, or real targets with equally many columns.",
            "Write both files in the same way.",
        )
    if train[1].is_floating_point():
        one, two = (FileSamples(x, torch.zeros(len(y), dtype=torch.int64), y) for x, y in (train, test))
        return FileData(Path(data).name, one, two, ())
    classes = int(torch.cat([train[1], test[1]]).max()) + 1
    return FileData(
        Path(data).name, FileSamples(*train), FileSamples(*test), tuple(str(number) for number in range(classes))
    )


def load_labels(path: Path) -> Tensor:
    """Load (N,) int64 class indices, or (N, L) float64 real targets.

    Raises:
        TangentError: The file contains neither.
    """
    y: Any = load_samples(path)
    if not isinstance(y, Tensor) or y.ndim not in (1, 2):
        raise TangentError(
            f"{path} holds no targets.", "", "Pass class numbers (N,), or numbers (N, L), as .npy or .pt."
        )
    if len(y) == 0:
        raise TangentError(f"{path} holds no targets.", "It is empty.", "Pass one target per sample.")
    if y.ndim == 2 or y.is_floating_point():
        return y.reshape(len(y), -1).double()
    y = y.long()
    if int(y.min()) < 0:
        raise TangentError(f"{path} holds negative class numbers.", "", "Number the classes from 0 on.")
    if int(y.max()) >= MOST_CLASSES:
        raise TangentError(
            f"{path} holds the class number {int(y.max())}.",
            f"Every class is a column of the targets, and there are at most {MOST_CLASSES:,}.",
            "Number the classes from 0 on without gaps; pass numbers to be learned as floating point.",
        )
    return y


def index(x: Any, rows: Any) -> Any:
    """Return some samples of the inputs."""
    return {name: part[rows] for name, part in x.items()} if isinstance(x, Mapping) else x[rows]


def count(x: Any) -> int:
    """Return the number of samples."""
    return len(next(iter(x.values()))) if isinstance(x, Mapping) else len(x)


def join(one: Any, two: Any) -> Any:
    """Concatenate the samples of two files that :func:`refuse_other_kind` accepts."""
    if isinstance(one, Mapping):
        return {name: torch.cat([part, two[name]]) for name, part in one.items()}
    return torch.cat([one, two])


def refuse_other_kind(name: str, x: Any, other_name: str, other: Any) -> None:
    """Refuse test inputs that are not like the training inputs.

    Raises:
        TangentError: Names, shapes or types differ.
    """
    if _kind(x) != _kind(other):
        raise TangentError(
            f"{name} holds {_kind(x)} for a sample and {other_name} {_kind(other)}.",
            "One network takes both.",
            "Write both files in the same way.",
        )


def _kind(x: Any) -> str:
    if isinstance(x, Mapping):
        return ", ".join(f"{name} {_kind(part)}" for name, part in sorted(x.items()))
    return f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape[1:])}"


def load_inputs(data: str, labels: str | None = None) -> Any:
    """Load the inputs of a file, for which there may be a file of labels.

    Raises:
        TangentError: There is not one label per sample.
    """
    return load_samples(Path(data)) if labels is None else _labeled(data, labels)[0]


def _labeled(data: str, labels: str) -> tuple[Any, Tensor]:
    x, y = load_samples(Path(data)), load_labels(Path(labels))
    counts = {len(part) for part in x.values()} if isinstance(x, Mapping) else {len(x)}
    if counts != {len(y)}:
        found = " or ".join(f"{number:,}" for number in sorted(counts))
        raise TangentError(
            f"{data} holds {found} samples, and {labels} holds {len(y):,} labels.",
            "Every sample needs one label.",
            "Write one label per sample, in the same order.",
        )
    return x, y


def chosen(option: str, wanted: int | None, there: int, where: str, total: int | None = None) -> int:
    """Return how many samples to take, all by default.

    Raises:
        TangentError: There are fewer.
    """
    if wanted is None:
        return there
    if not 0 < wanted <= there:
        whole = "" if total is None else f", which has {total:,} samples in all"
        raise TangentError(
            f"{option} is {wanted}, and there are {there:,} samples in {where}{whole}.",
            "",
            f"Pass a number from 1 to {there:,}." if there else f"Leave {option} out, or pass a smaller --n-train.",
        )
    return wanted


def _rows(part: tuple[Any, Tensor], rows: slice) -> tuple[Any, Tensor]:
    return index(part[0], rows), part[1][rows]
