"""Some of the samples, in the forms in which users have them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Subset

from tangentlab._errors import TangentError


def number_of(x: Any) -> int:
    """Count samples.

    Raises:
        TangentError: They cannot be read in parts.
    """
    if isinstance(x, DataLoader) or (not isinstance(x, Mapping | tuple | list) and not hasattr(x, "__len__")):
        raise TangentError(
            f"The samples are of type {type(x).__name__}.",
            "They are read part by part, by their numbers.",
            "Pass a tensor, a tuple or dict of tensors, or a Dataset with a length.",
        )
    if isinstance(x, Mapping):
        return len(next(iter(x.values())))
    return len(x[0]) if isinstance(x, tuple | list) else len(x)


def rows_of(x: Any, rows: range) -> Any:
    """Return some consecutive samples."""
    if isinstance(x, Tensor | np.ndarray):
        return x[rows.start : rows.stop]
    if isinstance(x, Mapping):
        return {name: rows_of(part, rows) for name, part in x.items()}
    if isinstance(x, tuple | list):
        return tuple(rows_of(part, rows) for part in x)
    if hasattr(x, "select"):
        return x.select(torch.arange(rows.start, rows.stop))
    return Subset(x, rows)
