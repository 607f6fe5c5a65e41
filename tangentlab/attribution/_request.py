"""What is attributed to what: training and test samples with their targets, and the options of kernels."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab.attribution._values import sample_values
from tangentlab.kernels.internal import Samples, all_finite, refuse_shuffled, takes_targets
from tangentlab.store.internal import Digest, sample_hashes


class Side:
    """The training or the test samples.

    A ``DataLoader`` is read once, so that all checkpoints see the samples in one order. Everything else is read when it
    is needed.

    Args:
        name: What errors call them, "train" or "test".
        data: As for :func:`tangentlab.ntk`.
        targets: In place of those that come with the data.
        input: Takes the model's input from an item of a Dataset.
        model: Whose inputs they are.
    """

    def __init__(self, name: str, data: Any, targets: Any, input: Any, model: nn.Module) -> None:
        refuse_shuffled(data, name, "The result tells samples apart by their places in the data.")
        self.samples = Samples(
            data, device=torch.device("cpu"), input=input, name=name, model=model, targets=targets, labeled=True
        )
        self.name, self._given = name, targets
        self._input = None if self.samples.in_memory else input

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def data(self) -> Any:
        """The samples as a kernel takes them."""
        return self.samples.source

    @property
    def input(self) -> Any:
        """The argument ``input`` for these samples: None where it has been applied already."""
        return self._input

    @property
    def targets(self) -> Any:
        """The targets as a kernel takes them: None where the items of a Dataset have them."""
        return self._given if self._given is not None or not self.samples.in_memory else self.samples.targets

    @cached_property
    def columns(self) -> Tensor:
        """The targets of all samples: classes (N,) int64, or numbers (N, R) float64.

        Raises:
            TangentError: There are none, or they are neither.
        """
        found = self.samples.targets
        if found is None:
            raise TangentError(
                f"The {self.name} samples have no targets.",
                "Attribution explains what a network gives for the target of a sample.",
                f"Pass {'targets=' if self.name == 'train' else 'test_targets='}, or a Dataset of (input, target) "
                "pairs. To explain predictions, pass the predicted classes, model(x).argmax(1).",
            )
        if not isinstance(found, Tensor) or found.ndim not in (1, 2) or found.is_complex():
            shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise TangentError(
                f"The targets of the {self.name} samples are {shape}.",
                "Kernel regression learns classes (N,) or numbers (N, R).",
                "Pass such targets, or use method='trak' or 'gradient' with a readout of your own.",
            )
        if found.is_floating_point():
            numbers = found.double().reshape(len(found), -1)
            if not all_finite(numbers):
                raise TangentError(f"Targets of the {self.name} samples are NaN or infinite.", remedy="Leave them out.")
            return numbers
        return found.long().reshape(-1) if found.ndim == 1 or found.shape[1] == 1 else found.double()

    @cached_property
    def digest(self) -> str:
        """A digest of all samples with their targets, read once: a changed label is another data set."""
        return Digest()(sample_hashes(self.samples, range(len(self))))

    def known_targets(self) -> Tensor | None:
        """Return the targets that are at hand as a tensor, for tables and pictures; None without any."""
        if not self.samples.in_memory and self._given is None:
            plain = getattr(self.samples.source, "targets", None)
            return plain if isinstance(plain, Tensor) and len(plain) == len(self) else None
        found = self.samples.targets
        return found if isinstance(found, Tensor) and found.ndim == 1 else None


@dataclass(frozen=True)
class Request:
    """Training and test samples, and how kernels between them are computed.

    Attributes:
        train: N training samples.
        test: M test samples.
        options: ``parameters``, ``output``, ``dtype``, ``device``, ``batch_size``, ``memory_budget``, ``check`` and
            ``progress`` of :func:`tangentlab.ntk`.
    """

    train: Side
    test: Side
    options: dict[str, Any]

    def arguments(self, *sides: Side, readout: Any) -> dict[str, Any]:
        """Return the keyword arguments of a kernel between these sides; a linear readout takes no targets."""
        inputs = {side.input for side in sides}
        if len(inputs) > 1:
            raise TangentError(
                "input= applies to one of the two sets of samples.",
                "The other is in memory already, as the model takes it.",
                "Pass both as Datasets, or both as tensors.",
            )
        named = {"readout": readout, "input": inputs.pop(), **self.options}
        if takes_targets(readout):
            targets = tuple(side.targets for side in sides)
            missing = all(part is None for part in targets)
            named["targets"] = targets[0] if len(sides) == 1 else None if missing else targets
        return named

    def values(self, model: nn.Module, side: Side, readout: Any) -> Tensor:
        """Compute the readout of each sample, (N,) float64."""
        named = self.arguments(side, readout=readout)
        return sample_values(model, side.data, **{k: v for k, v in named.items() if k not in ("check", "progress")})

    def with_options(self, **options: Any) -> "Request":
        """Return the same with other options."""
        return replace(self, options=self.options | options)
