"""Parts of a data set in any of the forms that training takes."""

from typing import Any

from torch import Tensor
from torch.utils.data import Subset, TensorDataset


def select(data: Any, indices: Tensor) -> Any:
    """Return the given samples: of a pair of tensors, of an object with ``select``, or of a map-style ``Dataset``."""
    if isinstance(data, TensorDataset):
        data = data.tensors
    if isinstance(data, tuple | list):
        return tuple(part[indices.to(part.device)] for part in data)
    if hasattr(data, "select"):
        return data.select(indices)
    return Subset(data, indices.tolist())
