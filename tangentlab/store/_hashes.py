"""Hashes of weights and of inputs, which identify a kernel."""

import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn

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


def inputs_hash(samples: Samples, rows: range) -> str:
    """Compute SHA-256 over the hashes of batches of samples as the model receives them, on a few threads."""

    def batch_hash(start: int) -> bytes:
        state = hashlib.sha256()
        _update(state, samples.batch(slice(start, min(start + _CHUNK, rows.stop))).inputs)
        return state.digest()

    starts = range(rows.start, rows.stop, _CHUNK)
    if samples.in_memory:
        with ThreadPoolExecutor(_THREADS) as pool:
            digests = list(pool.map(batch_hash, starts))
    else:  # a user's Dataset may not support threads
        digests = [batch_hash(start) for start in starts]
    return hashlib.sha256(b"".join(digests)).hexdigest()


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
