"""Unpickling CIFAR-10's python batches without running what a pickle asks to run.

A pickle is a program: it may call any importable function. The batches need numpy arrays and nothing else, so
every other global is refused before it is looked up.
"""

import _codecs
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from tangentlab._errors import TangentError
from tangentlab.data._corrupt import corrupt

# The two functions that rebuild arrays, taken from numpy's own pickles: their module moved between numpy 1
# (numpy.core) and numpy 2 (numpy._core), and a batch may have been written by either.
_RECONSTRUCT = np.empty(0).__reduce__()[0]
_FROM_BUFFER = np.empty(0).__reduce_ex__(5)[0]
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy.core.numeric", "_frombuffer"): _FROM_BUFFER,
    ("numpy._core.numeric", "_frombuffer"): _FROM_BUFFER,
    # Python 3 writes bytes in protocol 2 as a call of this.
    ("_codecs", "encode"): _codecs.encode,
}


class _Refused(pickle.UnpicklingError):
    """A global outside the allow-list."""


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise _Refused(f"{module}.{name}") from None


def read_pickled_arrays(path: Path) -> dict[str, Any]:
    """The dictionary in a pickle of numpy arrays, lists, strings and numbers, with its keys as text.

    Raises:
        TangentError: If the pickle asks for anything else, is damaged, or holds no dictionary.
    """
    with path.open("rb") as file:
        try:
            # Python 2 wrote the originals; its strings come as bytes.
            content = _ArraysOnly(file, encoding="bytes").load()
        except _Refused as refusal:
            raise TangentError(
                f"{path} asks to import {refusal} and was not read further.",
                why="A pickle can run any program. This one wants more than the arrays of a CIFAR-10 batch.",
                remedy="Do not use it. Download the archive from its publisher, or take the binary version.",
            ) from None
        # A damaged pickle can fail in nearly any way, among them memory for an absurd size.
        except Exception as error:
            raise corrupt(path, f"cannot be unpickled: {type(error).__name__}: {error}") from error
    if not isinstance(content, dict):
        raise corrupt(path, f"holds a {type(content).__name__} where a dictionary is expected")
    return {key.decode() if isinstance(key, bytes) else str(key): value for key, value in content.items()}
