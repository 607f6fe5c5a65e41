"""The targets of samples: one per sample, of whatever kind a readout takes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tangentlab._errors import TangentError

_KINDS = "a tensor or array (N, ...), a list of N targets, or a dict of tensors (N, ...)"


def targets_of(values: Any, count: int, name: str) -> Any:
    """Return targets that a user passes as tensors (N, ...), by name in a dict, or as a list of N.

    Args:
        values: A tensor, an array, anything that makes one (a list of numbers, a column of a table), a dict of such, or
            a list of anything else.
        count: N.
        name: What errors call the samples.

    Raises:
        TangentError: They cannot be counted, or are not as many as samples.
    """
    if isinstance(values, Mapping):
        return {key: targets_of(part, count, name) for key, part in values.items()}
    found = _read(values)
    if isinstance(found, Tensor) and (found.ndim == 0 or found.layout != torch.strided):
        found = None
    if found is None:
        raise TangentError(
            f"The targets of {name} are {described(values)}.", "Each sample has one target.", f"Pass {_KINDS}."
        )
    if len(found) != count:
        raise TangentError(
            f"{name} has {count} samples, and there are {len(found)} targets.",
            "Each sample has one target, in the same order.",
            "Pass as many targets as samples.",
        )
    return found.detach() if isinstance(found, Tensor) else found


def _read(values: Any) -> Tensor | list[Any] | None:
    """Return a tensor where the values make one, or a list; None where they are neither."""
    if isinstance(values, Tensor):
        return values
    if isinstance(values, (str, bytes, tuple, set)) or not hasattr(values, "__len__"):
        return None
    if not isinstance(values, (Sequence, np.ndarray)) and not hasattr(values, "__array__"):
        return None
    if isinstance(values, list) and values and all(isinstance(one, Tensor) for one in values):
        return torch.stack(values) if len({(one.shape, one.dtype) for one in values}) == 1 else values
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        return list(values)
    if array.dtype.kind not in "biuf":
        return list(values)
    plain = np.int64 if array.dtype.kind in "iu" else np.dtype(f"{array.dtype.kind}{min(8, array.dtype.itemsize)}")
    return torch.from_numpy(array.astype(plain))  # of the machine's byte order, and of a type that PyTorch has


def described(values: Any) -> str:
    """Return what kind of targets these are, for error messages."""
    if isinstance(values, tuple):
        return "a tuple, which is for the targets of two sets of samples"
    if isinstance(values, Tensor):
        kind = f"{str(values.dtype).removeprefix('torch.')} {tuple(values.shape)}"
        return kind if values.layout == torch.strided else f"sparse {kind}"
    return f"of type {type(values).__name__}"


def described_one(values: Any) -> str:
    """Return what kind of target one sample has, for error messages."""
    if isinstance(values, list):
        kinds = " or ".join(sorted({type(value).__name__ for value in values})[:3])
        return f"in a list that makes no tensor, of type {kinds}"
    return described(values[0]) if isinstance(values, Tensor) else described(values)


def take(values: Any, indices: slice | Sequence[int]) -> Any:
    """Return the targets of some samples."""
    if isinstance(values, Tensor):
        return values[indices if isinstance(indices, slice) else list(indices)]
    if isinstance(values, Mapping):
        return {key: take(part, indices) for key, part in values.items()}
    if values is None:
        return None
    return values[indices] if isinstance(indices, slice) else [values[i] for i in indices]


def single(values: Any, index: int) -> Any:
    """Return the target of one sample, without the axis of samples."""
    return {key: single(part, index) for key, part in values.items()} if isinstance(values, Mapping) else values[index]


def like(outputs: Tensor, values: Any) -> Any:
    """Return a copy of targets on the device of the outputs: real ones in their precision, integers as int64.

    Raises:
        TangentError: One is not finite.
    """
    if isinstance(values, Mapping):
        return {key: like(outputs, part) for key, part in values.items()}
    if isinstance(values, (list, tuple)):
        return type(values)(like(outputs, one) for one in values)
    if not isinstance(values, Tensor):
        return values
    if values.is_floating_point() and not bool(torch.isfinite(values).all()):
        raise TangentError(
            "The targets hold NaN or infinite values.",
            "The kernel would hold them, too.",
            "Leave out the samples without a target.",
        )
    kept = values.dtype == torch.bool or values.is_complex()
    wanted = outputs.dtype if values.is_floating_point() else None if kept else torch.int64
    return values.detach().to(device=outputs.device, dtype=wanted, copy=True)  # a function may write to it
