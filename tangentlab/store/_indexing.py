"""Indices of an axis: what a user may write, as positions or slices."""

import operator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tangentlab._errors import TangentError


def positions(index: Any, length: int) -> Tensor:
    """Convert an index of one axis to positions."""
    if isinstance(index, slice):
        return torch.arange(*index.indices(length)) if _runs(index, length) else torch.arange(0)
    if isinstance(index, int | np.integer) and not isinstance(index, bool):
        index = [operator.index(index)]
    try:
        chosen = torch.as_tensor(np.asarray(index))
        if chosen.dtype == torch.bool and chosen.shape == (length,):
            return torch.nonzero(chosen).flatten()
        if chosen.numel() == 0 and chosen.ndim == 1:
            return chosen.long()
        if chosen.dtype == torch.bool or chosen.is_floating_point() or chosen.is_complex() or chosen.ndim != 1:
            raise TypeError
    except (TypeError, ValueError, RuntimeError):
        raise TangentError(
            f"{index!r} is not an index of an axis of length {length}.", "", "Pass an int, a slice, a list or a mask."
        ) from None
    chosen = chosen.long()
    if bool(((chosen < -length) | (chosen >= length)).any()):
        raise IndexError(f"index out of range for an axis of length {length}")
    return torch.where(chosen < 0, chosen + length, chosen)


def _runs(index: slice, length: int) -> bool:
    return len(range(*index.indices(length))) > 0


def as_slice(chosen: Tensor) -> slice | Tensor:
    """Convert consecutive positions to a slice, which is much faster."""
    first, last = int(chosen[0]), int(chosen[-1])
    if last - first + 1 == len(chosen) and bool((chosen[1:] > chosen[:-1]).all()):
        return slice(first, last + 1)
    return chosen


def pick(values: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return the entries in the given rows and columns."""
    return values[as_slice(rows)][:, as_slice(columns)]
