"""Fingerprints of runs: a checkpoint is resumed only by the run that wrote it."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from tangentlab._errors import TangentError
from tangentlab.linearized import Linearized
from tangentlab.training._samples import IndexedSamples
from tangentlab.training._spec import TrainingSpec

# Of a data set that is read sample by sample, this many are read for its hash; of others all, so many at a time.
_SAMPLED = 64
_CHUNK = 4096


def fingerprint(
    model: nn.Module, train: IndexedSamples, test: IndexedSamples | None, spec: TrainingSpec, watch: Tensor | None
) -> dict[str, Any]:
    """Return plain values by name: the spec's fields, and hashes of the data and of the initial model."""
    result = spec.describe()
    result["training data"] = _data(train)
    result["test data"] = None if test is None else _data(test)
    result["watched samples"] = None if watch is None else digest([watch])
    result["model"] = f"{type(model).__name__} {_shapes(model)}"
    result["weights at the start"] = digest([*model.parameters(), *model.buffers()])
    if isinstance(model, Linearized):
        result["base point"] = digest(model.base_state_dict().values())
        result["displacement at the start"] = digest(model.displacement().values())
        result["linearization"] = f"bias={model.biased}, batch_norm={model.batch_norm_policy}"
    return result


def check(stored: Mapping[str, Any], present: Mapping[str, Any], where: str) -> None:
    """Refuse a checkpoint of another run, and name the differences.

    Raises:
        TangentError: Naming every difference.
    """
    differences = [
        f"{name}: {stored.get(name)!r} there, {present.get(name)!r} here"
        for name in sorted({*stored, *present})
        if stored.get(name) != present.get(name)
    ]
    if differences:
        raise TangentError(
            f"The checkpoint in {where} is of another run. {'; '.join(differences)}.",
            why="Resuming it would give neither run's result.",
            remedy="Use another folder, or resume=False to start over in this one. The model must be passed with the "
            "weights it had at the start of the run, not with trained ones.",
        )


def digest(tensors: Iterable[Tensor]) -> str:
    """Return a hash of shapes, types and values."""
    state = hashlib.blake2b(digest_size=16)
    for tensor in tensors:
        values = tensor.detach().cpu().contiguous()
        state.update(f"{tuple(values.shape)} {values.dtype}".encode())
        state.update(values.reshape(-1).view(torch.uint8).numpy().data)
    return state.hexdigest()


def _shapes(model: nn.Module) -> str:
    text = "; ".join(f"{name} {tuple(p.shape)} {p.dtype} {p.requires_grad}" for name, p in model.named_parameters())
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _data(samples: IndexedSamples) -> str:
    if samples.in_batches:
        read: Iterable[tuple[Any, Tensor]] = samples.batches(_CHUNK)
    else:
        chosen = torch.linspace(0, len(samples) - 1, min(len(samples), _SAMPLED)).round().long()
        read = [samples.batch(chosen)]
    parts = (part for pair in read for part in pytree.tree_leaves(pair) if isinstance(part, Tensor))
    return f"{len(samples)} samples {digest(parts)}"
