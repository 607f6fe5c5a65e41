"""Loading tensors and arrays, never code: ``torch.save``, ``.npy``, ``.npz`` and ``.safetensors``."""

import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from tangentlab._extras import require
from tangentlab._reading import Unreadable, check_zip, first_line, regular_size

_ZIP = b"PK\x03\x04"
_KINDS = "?bBhHiIlLqQefd"  # NumPy's codes of Booleans, integers and floating-point numbers


def load_torch(path: Path) -> Any:
    """Load what ``torch.save`` wrote, on the CPU.

    Only tensors and plain containers are loaded (``weights_only=True``), after sizes and checksums of the archive have
    been verified.

    Raises:
        Unreadable: It is damaged, unpacks to too much, or holds other objects.
    """
    regular_size(path)
    try:
        with path.open("rb") as file:
            packed = file.read(4) == _ZIP
        if packed:
            check_zip(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except Unreadable:
        raise
    except Exception as error:  # torch.load raises anything from OSError to UnpicklingError
        if "Weights only load failed" in str(error) and packed:
            raise Unreadable("cannot be read: it holds Python objects beside tensors") from error
        raise Unreadable(f"cannot be read: {_plain(error)}") from error


def load_numpy(path: Path) -> Tensor | dict[str, Tensor]:
    """Load the array of a ``.npy`` file, or the arrays of a ``.npz`` archive by their names.

    Raises:
        Unreadable: It is damaged, unpacks to too much, or holds anything but numbers.
    """
    size = regular_size(path)
    try:
        with path.open("rb") as file:
            if path.suffix != ".npz":
                return _array(file, size)
        members = check_zip(path)
        with zipfile.ZipFile(path) as archive:
            arrays = {}
            for member in members:
                name = member.filename.removesuffix(".npy")
                if name in arrays:
                    raise Unreadable(f"cannot be read: the array {name!r} occurs twice")
                with archive.open(member) as stream:
                    arrays[name] = _array(stream, member.file_size)
            return arrays
    except Unreadable:
        raise
    except Exception as error:  # a damaged header can fail in nearly any way
        raise Unreadable(f"cannot be read: {_plain(error)}") from error


def load_safetensors(path: Path) -> dict[str, Tensor]:
    """Load the tensors of a ``.safetensors`` file by their names.

    Raises:
        TangentError: The package is not installed.
        Unreadable: The file is damaged.
    """
    regular_size(path)
    library = _safetensors()
    try:
        tensors: dict[str, Tensor] = library.load_file(path)
    except Exception as error:  # a damaged file can fail in nearly any way
        raise Unreadable(f"cannot be read: {_plain(error)}") from error
    return tensors


def load_weights(path: Path) -> Any:
    """Load a state dict from a ``.safetensors`` file, or from one of ``torch.save``.

    Of a checkpoint of :func:`tangentlab.training.train`, this is the part ``model``.

    Raises:
        TangentError: The package safetensors is needed and not installed.
        Unreadable: The file is damaged.
    """
    state = load_safetensors(path) if path.suffix == ".safetensors" else load_torch(path)
    return state["model"] if isinstance(state, Mapping) and isinstance(state.get("model"), Mapping) else state


def safetensors_bytes(tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> bytes:
    """Return the content of a ``.safetensors`` file.

    Raises:
        TangentError: The package is not installed.
    """
    content: bytes = _safetensors().save({n: t.detach().cpu().contiguous() for n, t in tensors.items()}, metadata)
    return content


def _safetensors() -> Any:
    return require(
        "safetensors.torch", "The package safetensors", "huggingface", "It reads and writes such files.",
        " or pip install safetensors",
    )  # fmt: skip


def _array(file: IO[bytes], size: int) -> Tensor:
    """Read one array in NumPy's format. The header must announce exactly the bytes that follow, before any is read."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, fortran, kind = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, fortran, kind = np.lib.format.read_array_header_2_0(file)
    else:
        raise Unreadable(f"cannot be read: it has the format {version}")
    if kind.char not in _KINDS or kind.hasobject or not kind.isnative:
        raise Unreadable(f"cannot be read: it holds {kind!s}, and numbers in this machine's byte order are expected")
    count = 1
    for length in shape:
        if not 0 <= length < 2**62:
            raise Unreadable(f"cannot be read: its header says {shape}")
        count *= length
    there = size - file.tell()
    if count * kind.itemsize != there:
        raise Unreadable(f"cannot be read: its header {shape} declares {count * kind.itemsize:,} bytes, not {there:,}")
    content = bytearray(there)
    view, filled = memoryview(content), 0
    while filled < there:
        got = file.readinto(view[filled:])  # type: ignore[attr-defined]
        if not got:
            raise Unreadable("cannot be read: it is cut short")
        filled += got
    array = np.frombuffer(content, kind, count).reshape(shape, order="F" if fortran else "C")
    return torch.from_numpy(array)


def _plain(error: Exception) -> str:
    """Return the first line of an error, without the codes that color it on a terminal."""
    return first_line(Exception(re.sub(r"\x1b\[[0-9;]*m", "", str(error)) or type(error).__name__))
