"""Unpickling CIFAR-10's python batches without running what a pickle asks to run.

A pickle is a program: it may call any importable function. The batches need numpy arrays and nothing else. So every
other global is refused before it is looked up, and NumPy's functions are replaced by the few lines below, which make
an array of bytes from exactly the bytes that its shape asks for.

The unpickler is Python's own, not the one in C, which allocates memory for any index that a pickle names.
"""

import io
import math
import pickle
import struct
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from tangentlab._errors import TangentError
from tangentlab._reading import Unreadable, first_line, read_bytes
from tangentlab.data._corrupt import corrupt

_MOST_BYTES = 2**26  # a batch has 31 million
_DTYPES = ("u1", "|u1", "b1", "i1", "i4", "i8", "f4", "f8")


class _Type:
    """A NumPy dtype of numbers, from its short name."""

    def __init__(self, name: Any, *flags: Any) -> None:
        text = name.decode("ascii") if isinstance(name, bytes) else name
        if text not in _DTYPES:
            raise pickle.UnpicklingError(f"an array of {text!r}")
        self.kind = np.dtype(text)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = state[1].decode("ascii") if isinstance(state[1], bytes) else state[1]
        if order not in ("|", "<", "="):
            raise pickle.UnpicklingError("another byte order")


class _Array:
    """An array that is filled when its state is read."""

    values: np.ndarray | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, fortran, content = state
        self.values = _filled(content, kind, shape, "F" if fortran else "C")


def _reconstruct(subtype: Any, shape: Any, kind: Any) -> _Array:
    """Make an empty array, as NumPy's first step of unpickling does."""
    if subtype is not _Array:
        raise pickle.UnpicklingError("an array of another class")
    return _Array()


def _from_buffer(content: Any, kind: Any, shape: Any, order: Any) -> _Array:
    """Make an array from a buffer, as NumPy's only step in protocol 5 does."""
    array = _Array()
    array.values = _filled(content, kind, shape, order)
    return array


def _filled(content: Any, kind: Any, shape: Any, order: Any) -> np.ndarray:
    if not isinstance(kind, _Type) or not isinstance(content, bytes | bytearray) or order not in ("C", "F"):
        raise pickle.UnpicklingError("an array without its bytes")
    lengths = tuple(shape)
    if len(lengths) > 8 or not all(type(length) is int and length >= 0 for length in lengths):
        raise pickle.UnpicklingError("an array of no shape")
    wanted = math.prod(lengths) * kind.kind.itemsize
    if wanted != len(content):
        raise pickle.UnpicklingError(f"an array {lengths} of {len(content):,} bytes")
    return np.frombuffer(bytes(content), kind.kind).reshape(lengths, order=order)


def _encode(text: Any, encoding: Any) -> bytes:
    """Encode text as bytes: Python 3 writes bytes in protocol 2 as a call of ``_codecs.encode(text, "latin1")``."""
    if encoding not in ("latin1", b"latin1") or not isinstance(text, str | bytes):
        raise pickle.UnpicklingError(f"text in {encoding!r}")
    return text if isinstance(text, bytes) else text.encode("latin1")


# Their module moved between numpy 1 (numpy.core) and numpy 2 (numpy._core), and a batch may be of either.
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Type,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
    ("_codecs", "encode"): _encode,
}


class _Refused(pickle.UnpicklingError):
    """A global outside the allow-list."""


_Unpickler: Any = pickle._Unpickler


class _ArraysOnly(_Unpickler):
    dispatch: ClassVar[dict[int, Any]] = dict(_Unpickler.dispatch)

    def load_bytearray8(self) -> None:
        """Read a bytearray. Python's own allocates as many bytes as the pickle announces, before it checks that they
        exist."""
        (size,) = struct.unpack("<Q", self.read(8))
        content = self.read(min(size, _MOST_BYTES))
        if len(content) != size:
            raise pickle.UnpicklingError(f"{size:,} bytes that are not there")
        self.append(bytearray(content))

    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise _Refused(f"{module}.{name}") from None


def read_pickled_arrays(path: Path) -> dict[str, Any]:
    """Read the dictionary in a pickle of NumPy arrays, lists, strings and numbers, with its keys as text.

    Raises:
        TangentError: If the pickle asks for anything else, is damaged, or holds no dictionary with keys of text.
    """
    try:
        raw = read_bytes(path, _MOST_BYTES)
        # Python 2 wrote the originals; its strings come as bytes.
        content = _ArraysOnly(io.BytesIO(raw), encoding="bytes").load()
    except Unreadable as error:
        raise corrupt(path, str(error)) from error
    except _Refused as refusal:
        raise TangentError(
            f"{path} asks to import {first_line(refusal)} and was not read further.",
            why="A pickle can run any program. This one wants more than the arrays of a CIFAR-10 batch.",
            remedy="Do not use it. Download the archive from its publisher, or take the binary version.",
        ) from None
    # A damaged pickle can fail in nearly any way.
    except Exception as error:
        raise corrupt(path, f"cannot be unpickled: {type(error).__name__}: {first_line(error)}") from error
    if not isinstance(content, dict):
        raise corrupt(path, f"holds a {type(content).__name__} where a dictionary is expected")
    named: dict[str, Any] = {}
    for key, value in content.items():
        name = _text(path, key)
        if name in named:
            raise corrupt(path, f"has the key {name!r} twice, as text and as bytes")
        named[name] = value.values if isinstance(value, _Array) else value
    return named


def _text(path: Path, key: Any) -> str:
    if not isinstance(key, str | bytes):
        raise corrupt(path, f"has a key that is a {type(key).__name__}, not text")
    try:
        return key.decode() if isinstance(key, bytes) else key
    except UnicodeDecodeError:
        raise corrupt(path, f"has a key that is not UTF-8, {key[:40]!r}") from None
