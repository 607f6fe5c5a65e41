"""What a user passes as data, as one thing: a numbered set of samples that can be cut into batches."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from functools import cached_property
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    default_collate,
)

from tangentlab._errors import TangentError
from tangentlab.kernels._padding import join_batches, shortest
from tangentlab.kernels._target_values import take, targets_of
from tangentlab.kernels._targets import Splitter, join_items

_SHOWN = 4
"""Parts of a tuple that an error message describes."""
_KINDS = "a tensor, a tuple of tensors, a dict of tensors, a Dataset or a DataLoader"


class Batch(NamedTuple):
    """Some samples.

    Attributes:
        inputs: The model's input: a tensor, a tuple or a dict.
        targets: Their targets, if the readout takes any: a tensor, a dict of tensors, or a list of one per sample.
    """

    inputs: Any
    targets: Any = None

    def single(self, index: int) -> "Batch":
        """Return the batch of one of the samples."""
        return Batch(_index(self.inputs, [index]), take(self.targets, [index]))


class Samples:
    """N samples, batched on demand.

    A tensor ``x`` reaches the model as ``model(x)``, a tuple as ``model(*x)`` and a dict as ``model(**x)``; the
    first axis of every tensor counts the samples. Values that are not tensors are passed on unchanged, and arrays in
    tuples and dicts become tensors. A ``Dataset`` is read batch by batch, a ``DataLoader`` once, in its own order, and
    kept. Batches of a loader that are padded to their own longest text are padded to the longest of all, if an
    attention mask says which positions count.

    An item of a ``Dataset`` (and a batch of a ``DataLoader``) with exactly two parts is an ``(input, target)`` pair,
    and ``labels``, ``label`` or ``label_ids`` in a dict are its target, unless the model needs them; targets do not
    reach the model. Any other item is the input as a whole. ``input=`` says otherwise. Where the model takes a second
    input and the second part of a pair is not one number per sample, or where the model may take the label or not, it
    could be either, and is refused.

    Args:
        data: One of the above.
        device: Where batches go.
        dtype: What floating-point inputs are cast to, or None for as they are.
        input: Turns an item of a Dataset, or a batch of a DataLoader, into the model's input. With it, nothing is a
            target.
        name: What errors call it.
        model: Whose arguments say what is an input, and whose configuration how texts are padded.
        targets: One target per sample, in place of those that come with the data.
        labeled: Whether batches have targets.
    """

    def __init__(
        self,
        data: Any,
        *,
        device: torch.device,
        dtype: torch.dtype | None = None,
        input: Callable[[Any], Any] | None = None,
        name: str = "x1",
        model: torch.nn.Module | None = None,
        targets: Any = None,
        labeled: bool = False,
    ) -> None:
        self.device, self.dtype, self.name = device, dtype, name
        self._labeled = labeled
        self._input, self._splitter = input, Splitter(model, name)
        self._dataset: Dataset[Any] | None = None
        self._shuffled = False
        self._shortest: tuple[int, Any] | None = None
        given, targets = targets, None
        if isinstance(data, IterableDataset):
            raise TangentError(
                f"{name} is an IterableDataset.",
                "Samples are read by number.",
                "Wrap it in a DataLoader, which is read once.",
            )
        if isinstance(data, DataLoader):
            self._shuffled = _shuffles(data)
            self._refuse_other_order(given)
            pairs = [self._split(batch, axes=1) for batch in data]
            inputs, labels = ([as_tensors(pair[i]) for pair in pairs] for i in (0, 1))
            data, targets = join_batches(inputs, labels, name, model, data.collate_fn)
            self._shortest = shortest(inputs)
        elif isinstance(data, list):
            data = tuple(_refuse_items(data, name))
        elif isinstance(data, Mapping) and input is None and model is not None:
            data, targets = self._splitter.arguments(data)
        if isinstance(data, Dataset) or (not isinstance(data, (Tensor, Mapping, tuple)) and _is_dataset(data)):
            self._dataset, self._length = data, len(data)  # type: ignore[arg-type]
        else:
            self._data = _with_arrays(data)
            self._length = _count(self._data, name)
        if self._length == 0:
            raise TangentError(
                f"{name} is empty.",
                "A kernel needs at least one sample.",
                "Pass a batch with at least one row.",
            )
        if given is not None or (labeled and targets is not None):
            targets = targets_of(targets if given is None else given, self._length, name)
        self._targets = targets

    def __len__(self) -> int:
        return self._length

    @property
    def source(self) -> Any:
        """The data as it was given; of a DataLoader, which is read once, what it gave."""
        return self._data if self._dataset is None else self._dataset

    @property
    def in_memory(self) -> bool:
        """Whether the samples are tensors, not a Dataset that is read item by item."""
        return self._dataset is None

    def targets_or(self, given: Any) -> Any:
        """Return the targets that are given on their own, or those that came with the samples; None if there are none.

        Raises:
            TangentError: Targets are given, and the samples are those of a ``DataLoader`` that shuffles.
        """
        self._refuse_other_order(given)
        return self.targets if given is None else given

    def _refuse_other_order(self, given: Any) -> None:
        if self._shuffled and given is not None:
            raise TangentError(
                f"{self.name} is a DataLoader that shuffles, and the targets are in another order.",
                "Each sample would get the target of another one.",
                "Pass the Dataset, a DataLoader with shuffle=False, or batches of samples and targets.",
            )

    @property
    def known_targets(self) -> Any:
        """The targets that were passed or are in memory; None where there are none, or a Dataset holds them."""
        return self._targets

    @cached_property
    def targets(self) -> Any:
        """The targets of the samples: tensors, or a list where they do not make any; None without any.

        Those of a Dataset are read at the first call, item by item.
        """
        if self._targets is not None or self._dataset is None:
            return self._targets
        return join_items([self._split(self._dataset[i], axes=0)[1] for i in range(self._length)])

    def _split(self, item: Any, axes: int) -> tuple[Any, Any]:
        """Return the model's input and the target of an item or a batch."""
        if self._input is not None:
            return self._input(item), None
        return self._splitter(item, axes)

    def as_given(self) -> tuple[int, Batch] | None:
        """Return a sample of the loader's shortest batch as it was there, with its number; None if all are alike."""
        if self._shortest is None:
            return None
        number, inputs = self._shortest
        return number, Batch(self._place(inputs))

    def batch(self, indices: slice | Sequence[int]) -> Batch:
        """Return the samples of those indices as one model input on the device, checked to be finite."""
        targets = take(self._targets, indices) if self._labeled else None
        if self._dataset is None:
            chosen = _index(self._data, indices)
        else:
            if isinstance(indices, slice):
                indices = range(*indices.indices(self._length))
            items = getattr(self._dataset, "__getitems__", None)
            rows = items(list(indices)) if items else [self._dataset[i] for i in indices]
            pairs = [self._split(row, axes=0) for row in rows]
            if self._labeled and targets is None:
                targets = join_items([target for _, target in pairs])
            try:
                chosen = default_collate([as_tensors(item, numbers=True) for item, _ in pairs])
            except (RuntimeError, TypeError) as error:
                raise TangentError(
                    f"The items of {self.name} do not make a batch: {str(error).splitlines()[0]}",
                    "They must be tensors of one shape, or tuples or dicts of such.",
                    "Pad them to one length, pass a DataLoader whose collate_fn does, or input= to pick what the "
                    "model takes.",
                ) from error
            _count(chosen, self.name)
        return Batch(self._place(chosen), targets)

    def _place(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            if value.device.type == "meta":
                raise TangentError(
                    f"{self.name} is on the meta device.",
                    "It has no values to compute a kernel from.",
                    "Pass data on the CPU or the model's device.",
                )
            wanted = self.dtype if value.is_floating_point() else None
            value = value.detach().to(device=self.device, dtype=wanted)
            if value.is_floating_point() and not all_finite(value):
                raise TangentError(
                    f"{self.name} holds NaN or infinite values.",
                    "They would spread over the whole kernel.",
                    "Clean the data, for instance with torch.nan_to_num.",
                )
            return value
        if isinstance(value, Mapping):
            return {key: self._place(part) for key, part in value.items()}
        if isinstance(value, (tuple, list)):
            return tuple(self._place(part) for part in value)
        return value


def all_finite(tensor: Tensor) -> bool:
    """Return whether no entry is NaN or infinite: one pass over memory, since a finite sum has finite terms."""
    return bool(torch.isfinite(tensor.sum())) or bool(torch.isfinite(tensor).all())


def call_model(model: torch.nn.Module, batch: Any) -> Any:
    """Return ``model(x)``, ``model(*x)`` or ``model(**x)``, by the kind of input."""
    if isinstance(batch, Mapping):
        return model(**batch)
    if isinstance(batch, tuple):
        return model(*batch)
    return model(batch)


def describe(batch: Any) -> str:
    """Return shapes and dtypes of a batch, for error messages."""
    if isinstance(batch, Tensor):
        return f"{str(batch.dtype).removeprefix('torch.')} {tuple(batch.shape)}"
    if isinstance(batch, Mapping):
        return "{" + ", ".join(f"{key}: {describe(part)}" for key, part in batch.items()) + "}"
    if isinstance(batch, tuple):
        more = f", ... {len(batch)} parts" if len(batch) > _SHOWN else ""
        return "(" + ", ".join(describe(part) for part in batch[:_SHOWN]) + more + ")"
    return repr(batch)


def tensors(batch: Any) -> list[Tensor]:
    """Return the tensors of a batch."""
    if isinstance(batch, Tensor):
        return [batch]
    parts: Iterable[Any] = batch.values() if isinstance(batch, Mapping) else batch
    return [t for part in parts if isinstance(part, (Tensor, Mapping, tuple)) for t in tensors(part)]


def as_tensors(value: Any, numbers: bool = False) -> Any:
    """Return the same with tensors for arrays in dicts and tuples; with ``numbers``, also for lists of numbers."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return torch.from_numpy(value if value.flags.writeable else value.copy())
    if isinstance(value, Mapping):
        return {
            key: torch.tensor(part) if numbers and _is_numbers(part) else as_tensors(part, numbers)
            for key, part in value.items()
        }
    if type(value) in (tuple, list):
        return type(value)(as_tensors(part, numbers) for part in value)
    return value


def refuse_shuffled(data: Any, name: str, why: str) -> None:
    """Refuse a ``DataLoader`` that draws its order at random, where samples are told apart by their places."""
    if isinstance(data, DataLoader) and _shuffles(data):
        raise TangentError(
            f"{name} is a DataLoader that shuffles.", why, "Pass the Dataset, or a DataLoader with shuffle=False."
        )


def _shuffles(loader: DataLoader[Any]) -> bool:
    """Return whether a loader draws its order at random, by one of PyTorch's samplers."""
    samplers = (loader.sampler, getattr(loader.batch_sampler, "sampler", None))
    drawn = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
    return any(isinstance(s, drawn) or getattr(s, "shuffle", False) is True for s in samplers)


def _with_arrays(data: Any) -> Any:
    """Return the samples with tensors for arrays, except for an array of another length beside tensors: a constant."""
    lengths = {len(t) for t in tensors(data) if t.ndim} if isinstance(data, (Mapping, tuple)) else set()
    if not lengths or not isinstance(data, Mapping):
        return as_tensors(data)
    return {
        key: part if isinstance(part, np.ndarray) and (not part.ndim or len(part) not in lengths) else as_tensors(part)
        for key, part in data.items()
    }


def _is_numbers(value: Any) -> bool:
    """Return whether a value is a list of numbers, or of such lists."""
    return isinstance(value, list) and bool(value) and all(isinstance(v, Number) or _is_numbers(v) for v in value)


def _is_dataset(data: Any) -> bool:
    return hasattr(data, "__getitem__") and isinstance(data, Sized) and not isinstance(data, (str, list))


def _refuse_items(data: list[Any], name: str) -> list[Any]:
    """Refuse a list of dicts, as tokenizers and data sets give them: a list is ``model(*x)``."""
    if data and all(isinstance(item, Mapping) for item in data):
        raise TangentError(
            f"{name} is a list of {len(data)} dicts.",
            "A list holds the arguments of the model, and samples are rows of tensors.",
            "Make one dict of tensors with torch.utils.data.default_collate(x), or pass a Dataset; for texts of "
            "different lengths, a DataLoader whose collate_fn pads them.",
        )
    return data


def _index(value: Any, indices: slice | Sequence[int]) -> Any:
    if isinstance(value, Tensor):
        return value[indices if isinstance(indices, slice) else list(indices)]
    if isinstance(value, Mapping):
        return {key: _index(part, indices) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_index(part, indices) for part in value)
    return value


def _count(data: Any, name: str) -> int:
    if not isinstance(data, (Tensor, Mapping, tuple, list)):
        raise TangentError(
            f"{name} is of type {type(data).__name__}.", "Samples cannot be counted in it.", f"Pass {_KINDS}."
        )
    found = tensors(tuple(data) if isinstance(data, list) else data)
    if not found or any(t.ndim == 0 for t in found):
        raise TangentError(
            f"{name} has no tensor with a sample axis.",
            "The first axis counts the samples.",
            f"Pass {_KINDS}. A tokenizer gives tensors with padding=True, return_tensors='pt'.",
        )
    if any(t.layout != torch.strided for t in found):
        raise TangentError(f"{name} is sparse.", "", "Pass dense tensors: x.to_dense().")
    lengths = {len(t) for t in found}
    if len(lengths) > 1:
        raise TangentError(
            f"The tensors of {name} have different numbers of samples: {sorted(lengths)}.",
            "The first axis of each counts the same samples.",
            "Pass tensors with equal first dimensions.",
        )
    return lengths.pop()
