"""Samples by index, and the order of minibatches."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset, default_collate

from tangentlab._errors import TangentError


class IndexedSamples:
    """Inputs and targets by index, from any of the accepted forms.

    Args:
        data: A pair of tensors (inputs, targets); an object with ``batch(indices)``, such as
            :class:`tangentlab.data.Examples`; or a map-style torch ``Dataset`` of (input, target) pairs, read
            through ``__getitems__`` if it has that. If it has ``at_epoch(epoch)``, an epoch reads the result of that.
    """

    def __init__(self, data: Any) -> None:
        if isinstance(data, IndexedSamples):
            data = data.source
        if isinstance(data, TensorDataset):
            data = data.tensors
        self.source: Any = data
        if isinstance(data, DataLoader):
            raise TangentError(
                "Training takes data, not a DataLoader.",
                why="The order of minibatches is the run's own, so that it can be repeated and resumed.",
                remedy="Pass loader.dataset.",
            )
        self._pair = isinstance(data, tuple | list)
        if self._pair:
            if len(data) != 2 or not all(isinstance(part, Tensor) for part in data) or len(data[0]) != len(data[1]):
                raise TangentError(
                    "The data are not a pair of tensors of equal length.", remedy="Pass (inputs, targets)."
                )
        elif not hasattr(data, "__len__") or not (hasattr(data, "batch") or hasattr(data, "__getitem__")):
            raise TangentError(
                f"{type(data).__name__} is not a data set.",
                remedy="Pass (inputs, targets), or a map-style torch Dataset.",
            )
        if len(self) == 0:
            raise TangentError("There are no samples.", remedy="Pass at least one.")

    @property
    def in_batches(self) -> bool:
        """Whether many samples are read at once, instead of one by one."""
        return self._pair or hasattr(self.source, "batch")

    def __len__(self) -> int:
        return len(self.source[0]) if self._pair else len(self.source)

    def batch(self, indices: Tensor) -> tuple[Any, Tensor]:
        """Return inputs and targets of the given samples."""
        if self._pair:
            inputs, targets = self.source
            return inputs[indices.to(inputs.device)], targets[indices.to(targets.device)]
        if hasattr(self.source, "batch"):
            inputs, targets = self.source.batch(indices)
            return inputs, targets
        numbers = indices.tolist()
        if hasattr(self.source, "__getitems__"):
            samples = self.source.__getitems__(numbers)
        else:
            samples = [self.source[number] for number in numbers]
        inputs, targets = default_collate(samples)
        return inputs, targets

    def at_epoch(self, epoch: int) -> "IndexedSamples":
        """Return the samples as they are in that epoch."""
        return IndexedSamples(self.source.at_epoch(epoch)) if hasattr(self.source, "at_epoch") else self

    def batches(self, size: int, count: int | None = None) -> Iterator[tuple[Any, Tensor]]:
        """Yield the first ``count`` samples in order, ``size`` at a time."""
        for indices in torch.arange(len(self) if count is None else min(count, len(self))).split(size):
            yield self.batch(indices)


def splits(data: Any, test: Any) -> tuple[Any, Any]:
    """Return training and test samples, from an object with both or from two; an explicit ``test`` takes precedence."""
    if hasattr(data, "train") and hasattr(data, "test"):
        return data.train, data.test if test is None else test
    return data, test


def order(samples: int, batch_size: int | None, drop_last: bool, seed: int, epoch: int) -> Sequence[Tensor]:
    """Return the minibatches of an epoch as indices: a permutation drawn from (seed, epoch) alone, cut into pieces."""
    mixed = int(np.random.SeedSequence((seed, epoch)).generate_state(1, np.uint64)[0] >> np.uint64(1))
    permutation = torch.randperm(samples, generator=torch.Generator().manual_seed(mixed))
    size = samples if batch_size is None else batch_size
    return [piece for piece in permutation.split(size) if len(piece) == size or not drop_last]


def steps_per_epoch(samples: int, batch_size: int | None, drop_last: bool) -> int:
    """Return the number of minibatches per epoch.

    Raises:
        TangentError: If there are none.
    """
    size = samples if batch_size is None else batch_size
    count = samples // size if drop_last else -(-samples // size)
    if count == 0:
        raise TangentError(
            f"{samples} samples make no complete minibatch of {size}.",
            remedy="Choose a smaller batch_size, or drop_last=False.",
        )
    return count
