"""Samples that are not rows of numbers: tokens with masks, several inputs, images as tensors, data sets."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from scipy.sparse import issparse
from sklearn.utils.validation import check_array
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, default_collate

from tangentlab._copying import copy_model
from tangentlab._errors import TangentError
from tangentlab.kernels.internal import Samples, as_tensors


def is_structured(X: Any) -> bool:
    """Return whether samples are meant as the network takes them, not as an array of features.

    Dicts, data sets (of PyTorch, or read by ``__getitems__`` as its loaders do), loaders, tuples with tensors or with
    arrays of several axes, lists of samples (dicts, tuples, tensors), and tensors other than a matrix of
    floating-point numbers.
    """
    if issparse(X):  # one kind of sparse matrix is a dict
        return False
    if isinstance(X, Tensor):
        return X.ndim != 2 or not X.is_floating_point()
    if isinstance(X, tuple):
        return any(
            isinstance(part, Tensor) or np.ndim(part) > 1 for part in X if isinstance(part, (Tensor, np.ndarray))
        )
    if isinstance(X, list):
        return bool(X) and isinstance(X[0], (Mapping, tuple, Tensor)) and not _is_row(X[0])
    return isinstance(X, (Samples, Mapping, Dataset, DataLoader)) or hasattr(X, "__getitems__")


def as_tokens(X: Any, model: Any) -> Any:
    """Return an array of integers as a tensor if the network takes integers, as one with an embedding may.

    scikit-learn makes floating-point numbers of all features, which an embedding refuses.
    """
    if not (isinstance(X, np.ndarray) and X.dtype.kind in "iu" and X.size and isinstance(model, nn.Module)):
        return X
    if not any(isinstance(module, (nn.Embedding, nn.EmbeddingBag)) for module in model.modules()):
        return X
    tokens = torch.from_numpy(X.astype(np.int64))
    try:
        with torch.no_grad():
            copy_model(model).eval()(tokens[:1])
    except (RuntimeError, TypeError, ValueError):  # its embedding is for something else
        return X
    return tokens


def read(X: Any, input: Callable[[Any], Any] | None, model: nn.Module | None) -> Samples:
    """Return such samples; a loader is read here, and a list is what a data set of its items would give."""
    if isinstance(X, Samples):
        return X
    if isinstance(X, list):
        X = DataLoader(X, batch_size=1, collate_fn=_single)  # type: ignore[arg-type]
    elif isinstance(X, Mapping):
        X = as_tensors(X, numbers=True)
    return Samples(X, device=torch.device("cpu"), input=input, model=model, name="X")


def targets_of(samples: Samples, y: Any) -> np.ndarray:
    """Return the targets that are given, or those that came with the samples, checked.

    Raises:
        TangentError: There are none, or not as many as samples.
    """
    y = samples.targets_or(y)
    if y is None:
        raise TangentError(
            "There are no targets.",
            "There is no y, and the samples came without labels.",
            "Pass y, a Dataset of (input, target) pairs, or labels in the dicts.",
        )
    found = check_array(y.cpu() if isinstance(y, Tensor) else y, ensure_2d=False, dtype=None, input_name="y")
    if len(found) != len(samples):
        raise TangentError(
            f"X has {len(samples)} samples and y {len(found)}.",
            "Each sample has one target.",
            "Pass as many targets as samples.",
        )
    return np.asarray(found)


def kept(source: Any) -> Any:
    """Return samples that do not change when the user's tensors do; a data set is kept as it is."""
    if isinstance(source, Tensor):
        return source.detach().clone()
    if isinstance(source, Mapping):
        return {key: kept(part) for key, part in source.items()}
    return tuple(kept(part) for part in source) if isinstance(source, tuple) else source


def _single(items: list[Any]) -> Any:
    return default_collate([as_tensors(item, numbers=True) for item in items])


def _is_row(item: Any) -> bool:
    """Return whether an item of a list is a row of numbers, as scikit-learn takes it."""
    if isinstance(item, Tensor):
        return item.ndim == 1 and item.is_floating_point()
    return isinstance(item, tuple) and all(isinstance(part, (int, float, np.number)) for part in item)
