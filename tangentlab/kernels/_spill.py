"""Factors on disk: their numbers, and nothing else, one tensor after the other.

What the numbers mean is known from a template, the factors of any one sample by the same plan, so nothing that is
read back is ever unpickled.
"""

from collections.abc import Iterator
from typing import BinaryIO

import torch
from torch import Tensor

from tangentlab.kernels.factors import Factors, tidy


def in_own_memory(factors: Factors) -> Factors:
    """Return the same factors, every tensor contiguous and aligned as if it had been read back.

    Matrix products may round differently for other strides and alignments. After this, factors that were kept and
    factors that were spilled give the same kernel to the last bit.
    """
    return Factors({key: part.map(tidy) for key, part in factors.parts.items()})


def write_factors(factors: Factors, file: BinaryIO) -> None:
    """Append the numbers of all tensors to a file."""
    for tensor in _tensors(factors):
        file.write(_raw(tensor.contiguous().cpu()))


def read_factors(file: BinaryIO, template: Factors, count: int, device: torch.device) -> Factors:
    """Read the factors of ``count`` samples that :func:`write_factors` wrote.

    Args:
        file: Where they are.
        template: Factors of at least one sample by the same plan.
        count: n.
        device: Where they go.

    Raises:
        EOFError: The file is shorter than that.
    """
    factors = Factors({key: part.allocate(count) for key, part in template.parts.items()})
    for tensor in _tensors(factors):
        room = tensor if tensor.device.type == "cpu" else torch.empty_like(tensor, device="cpu")
        read_into(file, _raw(room))
        if room is not tensor:
            tensor.copy_(room)
    return factors


def read_into(file: BinaryIO, room: memoryview) -> None:
    """Fill memory from a file. The system reads at most 2 GiB at a time, so one call may not be enough.

    Raises:
        EOFError: The file is shorter than that.
    """
    while room:
        count = file.readinto(room)  # type: ignore[attr-defined]
        if not count:
            raise EOFError(f"{file.name} is {len(room)} bytes short")
        room = room[count:]


def size_in_bytes(factors: Factors) -> int:
    """Return the bytes of all tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in _tensors(factors))


def _tensors(factors: Factors) -> Iterator[Tensor]:
    for part in factors.parts.values():
        yield from part.tensors().values()


def _raw(tensor: Tensor) -> memoryview:
    return memoryview(tensor.detach().reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
