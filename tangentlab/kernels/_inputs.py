"""What a user passes as data, as one thing: a numbered set of samples that can be cut into batches."""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from functools import partial
from inspect import Parameter
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from tangentlab._errors import TangentError

_SHOWN = 4
"""Parts of a tuple that an error message describes."""
_KINDS = "a tensor, a tuple of tensors, a dict of tensors, a Dataset or a DataLoader"


class Samples:
    """N samples, batched on demand.

    A tensor ``x`` reaches the model as ``model(x)``, a tuple as ``model(*x)`` and a dict as ``model(**x)``; the
    first axis of every tensor counts the samples. Values that are not tensors are passed on unchanged. A ``Dataset``
    is read batch by batch, a ``DataLoader`` once, in its own order, and kept.

    An item of a ``Dataset`` (and a batch of a ``DataLoader``) with exactly two parts is an ``(input, target)`` pair,
    and the target is dropped; any other item is the input as a whole. ``input=`` says otherwise. Where the model takes
    a second input and the second part of a pair is not one number a sample, it could be either, and is refused.

    Args:
        data: One of the above.
        device: Where batches go.
        dtype: What floating-point inputs are cast to, or None for as they are.
        input: Turns an item of a Dataset, or a batch of a DataLoader, into the model's input.
        name: What errors call it.
        model: Whose second input a pair could be meant for.
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
    ) -> None:
        self.device, self.dtype, self.name = device, dtype, name
        axes = 1 if isinstance(data, DataLoader) else 0
        self._input = input or partial(_drop_target, number_of_axes=axes, refuse=_takes_two(model), name=name)
        if isinstance(data, IterableDataset):
            raise TangentError(
                f"{name} is an IterableDataset.",
                "samples are read by number.",
                "wrap it in a DataLoader, which is read once.",
            )
        if isinstance(data, DataLoader):
            data = _concatenate([self._input(batch) for batch in data], name)
        elif isinstance(data, list):
            data = tuple(_refuse_items(data, name))
        self._dataset: Dataset[Any] | None = None
        if isinstance(data, Dataset) or (not isinstance(data, (Tensor, Mapping, tuple)) and _is_dataset(data)):
            self._dataset, self._length = data, len(data)  # type: ignore[arg-type]
        else:
            self._data, self._length = data, _count(data, name)
        if self._length == 0:
            raise TangentError(
                f"{name} is empty.",
                "a kernel needs at least one sample.",
                "pass a batch with at least one row.",
            )

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

    def batch(self, indices: slice | Sequence[int]) -> Any:
        """The samples of those indices as one model input on the device, checked to be finite."""
        if self._dataset is None:
            chosen = _index(self._data, indices)
        else:
            if isinstance(indices, slice):
                indices = range(*indices.indices(self._length))
            items = getattr(self._dataset, "__getitems__", None)
            rows = items(list(indices)) if items else [self._dataset[i] for i in indices]
            try:
                chosen = default_collate([self._input(row) for row in rows])
            except (RuntimeError, TypeError) as error:
                raise TangentError(
                    f"the items of {self.name} do not make a batch: {str(error).splitlines()[0]}",
                    "they must be tensors of one shape, or tuples or dicts of such.",
                    "pad them to one length, or pass input= to pick what the model takes.",
                ) from error
            _count(chosen, self.name)
        return self._place(chosen)

    def _place(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            if value.device.type == "meta":
                raise TangentError(
                    f"{self.name} is on the meta device.",
                    "it has no values to compute a kernel from.",
                    "pass data on the CPU or the model's device.",
                )
            wanted = self.dtype if value.is_floating_point() else None
            value = value.detach().to(device=self.device, dtype=wanted)
            if value.is_floating_point() and not all_finite(value):
                raise TangentError(
                    f"{self.name} holds NaN or infinite values.",
                    "they would spread over the whole kernel.",
                    "clean the data, for instance with torch.nan_to_num.",
                )
            return value
        if isinstance(value, Mapping):
            return {key: self._place(part) for key, part in value.items()}
        if isinstance(value, (tuple, list)):
            return tuple(self._place(part) for part in value)
        return value


def all_finite(tensor: Tensor) -> bool:
    """Whether no entry is NaN or infinite: one pass over memory, since a finite sum has only finite terms."""
    return bool(torch.isfinite(tensor.sum())) or bool(torch.isfinite(tensor).all())


def call_model(model: torch.nn.Module, batch: Any) -> Any:
    """``model(x)``, ``model(*x)`` or ``model(**x)``, by the kind of input."""
    if isinstance(batch, Mapping):
        return model(**batch)
    if isinstance(batch, tuple):
        return model(*batch)
    return model(batch)


def describe(batch: Any) -> str:
    """Shapes and dtypes of a batch, for error messages."""
    if isinstance(batch, Tensor):
        return f"{str(batch.dtype).removeprefix('torch.')} {tuple(batch.shape)}"
    if isinstance(batch, Mapping):
        return "{" + ", ".join(f"{key}: {describe(part)}" for key, part in batch.items()) + "}"
    if isinstance(batch, tuple):
        more = f", ... {len(batch)} parts" if len(batch) > _SHOWN else ""
        return "(" + ", ".join(describe(part) for part in batch[:_SHOWN]) + more + ")"
    return repr(batch)


def tensors(batch: Any) -> list[Tensor]:
    """The tensors of a batch."""
    if isinstance(batch, Tensor):
        return [batch]
    parts: Iterable[Any] = batch.values() if isinstance(batch, Mapping) else batch
    return [t for part in parts if isinstance(part, (Tensor, Mapping, tuple)) for t in tensors(part)]


def _drop_target(item: Any, number_of_axes: int, refuse: bool, name: str) -> Any:
    if not (isinstance(item, (tuple, list)) and len(item) == 2):
        return item
    second = item[1]
    if refuse and isinstance(second, Tensor) and second.ndim > number_of_axes:
        raise TangentError(
            f"the items of {name} are pairs, and the model takes a second input.",
            "their second part could be that input, or a target that is to be dropped.",
            "pass input=tuple for two inputs, or input=lambda item: item[0] for an input and its target.",
        )
    return item[0]


def _takes_two(model: torch.nn.Module | None) -> bool:
    if model is None:
        return False
    try:
        kinds = [parameter.kind for parameter in inspect.signature(model.forward).parameters.values()]
    except (TypeError, ValueError):  # no signature, as of scripted modules
        return False
    return sum(kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds) > 1


def _is_dataset(data: Any) -> bool:
    return hasattr(data, "__getitem__") and isinstance(data, Sized) and not isinstance(data, (str, list))


def _refuse_items(data: list[Any], name: str) -> list[Any]:
    """A list is ``model(*x)``; one of dicts, as tokenizers and data sets give them, is meant as samples."""
    if data and all(isinstance(item, Mapping) for item in data):
        raise TangentError(
            f"{name} is a list of {len(data)} dicts.",
            "a list holds the arguments of the model, and samples are rows of tensors.",
            "make one dict of tensors with torch.utils.data.default_collate(x), or pass a Dataset.",
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
            f"{name} is of type {type(data).__name__}.", "samples cannot be counted in it.", f"pass {_KINDS}."
        )
    found = tensors(tuple(data) if isinstance(data, list) else data)
    if not found or any(t.ndim == 0 for t in found):
        raise TangentError(
            f"{name} has no tensor with a sample axis.",
            "the first axis counts the samples.",
            f"pass {_KINDS}.",
        )
    if any(t.layout != torch.strided for t in found):
        raise TangentError(f"{name} is sparse.", "", "pass dense tensors: x.to_dense().")
    lengths = {len(t) for t in found}
    if len(lengths) > 1:
        raise TangentError(
            f"the tensors of {name} have different numbers of samples: {sorted(lengths)}.",
            "the first axis of each counts the same samples.",
            "pass tensors with equal first dimensions.",
        )
    return lengths.pop()


def _concatenate(batches: list[Any], name: str) -> Any:
    if not batches:
        raise TangentError(f"{name} is empty.", "the DataLoader gave no batch.", "pass a loader with data.")
    first = batches[0]
    if isinstance(first, Tensor):
        return torch.cat(batches)
    if isinstance(first, Mapping):
        return {key: _concatenate([b[key] for b in batches], name) for key in first}
    if isinstance(first, (tuple, list)):
        return tuple(_concatenate([b[i] for b in batches], name) for i in range(len(first)))
    return first
