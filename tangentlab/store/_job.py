"""The file that passes model and data to other processes."""

import importlib
import io
import pickle
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._files import written_whole
from tangentlab.kernels.internal import read_into
from tangentlab.store._place import Folder, PathLike, as_place

_LARGE = 1024**2
"""The size in bytes from which a tensor is written without pickling."""


def write_job(path: Path, content: Any) -> None:
    """Write a value for :func:`read_job`, if possible with the functions and classes of a script or notebook.

    Arrays and large tensors go from memory to the file without a copy: their types and shapes are pickled first, then
    their numbers follow (out-of-band buffers of pickle's protocol 5, which tensors do not support by themselves).
    """
    buffers: list[pickle.PickleBuffer] = []
    body = io.BytesIO()
    try:
        _pickler(body, buffers).dump(content)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TangentError(
            f"The model or the data cannot be sent to other processes: {str(error).splitlines()[0]}",
            "They are pickled to send them.",
            "Define classes and functions at the top of a module, or compute in this process (engine=None) or in "
            "shards (engines.Shard).",
        ) from error
    views = [buffer.raw() for buffer in buffers]
    with written_whole(path, durable=False) as file:
        pickle.dump((body.getvalue(), [view.nbytes for view in views]), file)
        for view in views:
            file.write(view)


def read_job(path: Path) -> Any:
    """Read what :func:`write_job` wrote into memory of its own, so that the file may be removed.

    Raises:
        TangentError: There is no such file, or this process cannot import what is in it.
    """
    try:
        with open(path, "rb") as file:
            body, sizes = pickle.load(file)
            buffers = [np.empty(size, np.uint8) for size in sizes]
            for buffer in buffers:
                read_into(file, buffer.data)
        return pickle.loads(body, buffers=buffers)
    except FileNotFoundError as error:
        raise TangentError(
            f"{path} does not exist.",
            "Workers read model and data from the store, so all of them must see the same folder.",
            "Put the store on a file system that all machines share.",
        ) from error
    except (ImportError, AttributeError) as error:
        raise TangentError(
            f"A worker cannot load the model or the data: {error}",
            "It must be able to import their classes.",
            "Put them into a module that workers can import (PYTHONPATH), not into the script itself.",
        ) from error


@dataclass(frozen=True)
class JobFile:
    """The job of a store, in its private files, which every worker reaches.

    Attributes:
        path: The store.
        name: The name of the file in it.
    """

    path: PathLike
    name: str

    def write(self, content: Any) -> None:
        """Write the job."""
        place = as_place(self.path)
        if isinstance(place, Folder):
            write_job(place.where / self.name, content)
            return
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "job"
            write_job(file, content)
            with open(file, "rb") as source:
                place.upload(self.name, partial(shutil.copyfileobj, source))

    def read(self) -> Any:
        """Read the job into memory of its own.

        Raises:
            TangentError: As for :func:`read_job`.
        """
        place = as_place(self.path)
        if isinstance(place, Folder):
            return read_job(place.where / self.name)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "job"
            with suppress(FileNotFoundError):
                file.write_bytes(place.read(self.name))
            return read_job(file)

    def is_gone(self) -> bool:
        """Return whether the process that wrote the job has removed it."""
        return as_place(self.path).stat(self.name) is None


def _pickler(file: io.BytesIO, buffers: list[pickle.PickleBuffer]) -> Any:
    base: Any = pickle.Pickler
    with suppress(ImportError):
        base = importlib.import_module("cloudpickle").Pickler

    class Pickler(base):
        """A pickler that writes large tensors as arrays of bytes."""

        def reducer_override(self, value: Any) -> Any:
            plain = type(value) is Tensor and value.layout is torch.strided and value.device.type == "cpu"
            if plain and value.nbytes >= _LARGE and value.is_contiguous() and not value.requires_grad:
                return _tensor, (value.reshape(-1).view(torch.uint8).numpy(), value.dtype, tuple(value.shape))
            return super().reducer_override(value) if hasattr(base, "reducer_override") else NotImplemented

    return Pickler(file, protocol=5, buffer_callback=buffers.append)


def _tensor(raw: np.ndarray, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
    return torch.from_numpy(raw).view(dtype).reshape(shape)
