"""Hashes of weights and of inputs, which identify a kernel."""

import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from tangentlab._layouts import parts_of
from tangentlab.kernels.internal import Samples
from tangentlab.store._digest import Digest

_CHUNK = 1024
"""Samples hashed at a time. It is part of the format."""
_THREADS = min(4, os.cpu_count() or 1)


def weights_hash(model: nn.Module) -> str:
    """Compute SHA-256 over names, types, shapes and bytes of all parameters and buffers."""
    state = hashlib.sha256()
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    for name, tensor in sorted(named, key=lambda pair: pair[0]):
        state.update(name.encode())
        _update(state, tensor)
    return state.hexdigest()


def tensor_hash(tensor: Tensor) -> str:
    """Compute SHA-256 over type, shape and bytes."""
    state = hashlib.sha256()
    _update(state, tensor)
    return state.hexdigest()


def sample_hashes(samples: Samples, rows: range) -> tuple[str, str]:
    """Compute SHA-256 of samples as the model receives them, and of their targets ("" without), on a few threads.

    Each is a hash over the hashes of batches.
    """

    def batch_hash(start: int) -> tuple[bytes, bytes]:
        batch, states = (
            samples.batch(slice(start, min(start + _CHUNK, rows.stop))),
            (hashlib.sha256(), hashlib.sha256()),
        )
        _update(states[0], batch.inputs)
        if batch.targets is not None:
            _update(states[1], pytree.tree_map(_wide, batch.targets))
        return states[0].digest(), states[1].digest() if batch.targets is not None else b""

    starts = range(rows.start, rows.stop, _CHUNK)
    if samples.in_memory:
        with ThreadPoolExecutor(_THREADS) as pool:
            digests = list(pool.map(batch_hash, starts))
    else:  # a user's Dataset may not support threads
        digests = [batch_hash(start) for start in starts]
    inputs, targets = (b"".join(part) for part in zip(*digests, strict=True))
    return hashlib.sha256(inputs).hexdigest(), hashlib.sha256(targets).hexdigest() if targets else ""


def _wide(target: Any) -> Any:
    """Return a target in the widest type of its kind: class 3 is the same class as int32 and as int64."""
    if not isinstance(target, Tensor) or target.is_complex():
        return target
    return target.double() if target.is_floating_point() else target.long()


def _update(state: Any, value: Any) -> None:
    if isinstance(value, Tensor):
        if value.layout is not torch.strided or value.is_nested:
            state.update(f"{value.layout} {None if value.is_nested else tuple(value.shape)} ".encode())
            _update(state, parts_of(value))
            return
        values = value.detach().cpu().contiguous()
        # The first axis is left out: it depends on the batching, not on the samples.
        state.update(f"{tuple(values.shape[1:])} {values.dtype}".encode())
        state.update(values.reshape(-1).view(torch.uint8).numpy().data)
    elif isinstance(value, Mapping):
        state.update(f"{len(value)} named ".encode())
        for key, part in value.items():
            state.update(f"{len(str(key))} {key} ".encode())
            _update(state, part)
    elif isinstance(value, (tuple, list)):  # (a, (b, c)) is not (a, b, c)
        state.update(f"{len(value)} parts ".encode())
        for part in value:
            _update(state, part)
    else:
        state.update(Digest()(value).encode())
