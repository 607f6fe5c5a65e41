"""Factors on disk: their numbers, and nothing else, one tensor after the other.

What the numbers mean is known from a template, the factors of any one sample by the same plan, so nothing that is
read back is ever unpickled.
"""

import tempfile
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._memory import show_bytes
from tangentlab.kernels.factors import Factor, Factors, Key, tidy


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


def _on_cpu(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu()


def _raw(tensor: Tensor) -> memoryview:
    return memoryview(tensor.detach().reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]


class Spilled:
    """The factors of all samples on disk, to be read for some of the samples and some of the parameters.

    They are in one file, in which every tensor has a stretch of its own, sample after sample. The file has no name, so
    it is gone when it is closed or when the process ends, however it ends. A thread writes and reads ahead while the
    caller computes: a batch is written during the passes of the next one, so the factors of two are in memory.

    Args:
        folder: Where there is room.
        samples: How many samples there are.

    Raises:
        TangentError: The file cannot be made.
    """

    def __init__(self, folder: Path, samples: int) -> None:
        self.folder, self.samples = folder, samples
        self._template = Factors({})
        self._starts: dict[Key, list[int]] = {}
        self._thread = ThreadPoolExecutor(1, "factors-on-disk")
        self._writing: Future[None] | None = None
        try:
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
        except OSError as error:
            raise self._refusal(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown(cancel_futures=True)
        self._file.close()

    @property
    def sizes(self) -> dict[Key, int]:
        """The bytes of each factor for one sample."""
        return {key: size_in_bytes(self._template.only([key])) for key in self._template.parts}

    def write(self, factors: Factors, runs: Sequence[tuple[slice, slice]]) -> bool:
        """Begin to write the factors of a batch, which must not change from now on, after those of the last one.

        Args:
            factors: The factors.
            runs: Runs of samples: their places in the batch, and among all samples.

        Returns:
            False if they are not like those written before.

        Raises:
            TangentError: The disk is full, or failing: earlier factors could not be written.
        """
        if not self._starts:
            self._template = Factors({key: part[:1].map(torch.clone) for key, part in factors.parts.items()})
            end = 0
            for key, part in self._template.parts.items():
                self._starts[key] = []
                for tensor in part.tensors().values():
                    self._starts[key].append(end)
                    end += self.samples * tensor.numel() * tensor.element_size()
        for key, part in factors.parts.items():
            if key not in self._starts or part[:1].shapes() != self._template.parts[key].shapes():
                return False
        self._finish_writing()
        self._writing = self._thread.submit(
            self._write_all, {k: p.map(_on_cpu) for k, p in factors.parts.items()}, runs
        )
        return True

    def _finish_writing(self) -> None:
        """Wait until everything is written."""
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _write_all(self, parts: dict[Key, Factor], runs: Sequence[tuple[slice, slice]]) -> None:
        for key, part in parts.items():
            for tensor, start in zip(part.tensors().values(), self._starts[key], strict=True):
                for given, places in runs:
                    self._write(tensor[given], start, places.start)

    def _write(self, tensor: Tensor, start: int, row: int) -> None:
        raw = _raw(tensor.contiguous())
        try:
            self._file.seek(start + row * (len(raw) // len(tensor)))
            while raw:
                raw = raw[self._file.write(raw) :]
        except OSError as error:
            raise self._refusal(error) from error

    def _refusal(self, error: OSError) -> TangentError:
        size = sum(self.sizes.values()) * self.samples
        return TangentError(
            f"Factors cannot be written to {self.folder}: {error.strerror}.",
            "Those of all samples do not fit into the memory budget, so they are kept on disk temporarily"
            + (f", where they take {show_bytes(size)}." if size else "."),
            "Free some space, set the environment variable TMPDIR to a folder on another disk, or pass a larger "
            "memory_budget.",
        )

    def read(self, keys: Collection[Key], rows: range) -> Factors:
        """Return some factors of some samples."""
        return self.read_ahead(keys, rows).result()

    def read_ahead(self, keys: Collection[Key], rows: range) -> "Future[Factors]":
        """Begin to read some factors of some samples."""
        self._finish_writing()
        factors = Factors({k: p.allocate(len(rows)) for k, p in self._template.parts.items() if k in keys})
        return self._thread.submit(self._fill, factors, rows)

    def _fill(self, factors: Factors, rows: range) -> Factors:
        for key, part in factors.parts.items():
            for tensor, start in zip(part.tensors().values(), self._starts[key], strict=True):
                room = tensor if tensor.device.type == "cpu" else torch.empty_like(tensor, device="cpu")
                raw = _raw(room)
                self._file.seek(start + rows.start * (len(raw) // max(1, len(rows))))
                read_into(self._file, raw)
                if room is not tensor:
                    tensor.copy_(room)
        return factors
