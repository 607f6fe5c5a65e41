"""Writes the publishers' formats, small, for tests that damage them."""

import gzip
import io
import pickle
import struct
import tarfile
from pathlib import Path
from typing import ClassVar

import numpy as np

NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def idx(array: np.ndarray) -> bytes:
    """An array of bytes in IDX."""
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def small_mnist(seed: int = 0, train: int = 30, test: int = 20) -> dict[str, bytes]:
    """The four files, uncompressed, with random pixels."""
    rng = np.random.default_rng(seed)
    contents = []
    for count in (train, test):
        contents += [idx(rng.integers(0, 256, (count, 28, 28))), idx(np.arange(count) % 10)]
    return dict(zip(NAMES, contents, strict=True))


def write_mnist(folder: Path, files: dict[str, bytes], *, compressed: bool = True, dotted: bool = False) -> None:
    """The files in a folder, under one of the four spellings in use."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        spelled = name.replace("-idx", ".idx") if dotted else name
        path = folder / (spelled + ".gz" if compressed else spelled)
        path.write_bytes(gzip.compress(content) if compressed else content)


def small_cifar(records: int, seed: int = 0) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Labels (n,) and pixels (n, 3072) of the six batches."""
    rng = np.random.default_rng(seed)
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    return {
        name: (rng.integers(0, 10, records), rng.integers(0, 256, (records, 3072)).astype(np.uint8)) for name in names
    }


def write_binary(folder: Path, batches: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    """CIFAR-10's binary form."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (labels, pixels) in batches.items():
        rows = np.concatenate([labels[:, None].astype(np.uint8), pixels], 1)
        (folder / f"{name}.bin").write_bytes(rows.tobytes())


class Python2Pickler(pickle._Pickler):
    """Writes byte strings as Python 2 did, in which CIFAR-10 was pickled."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_string(self, obj: bytes) -> None:
        self.write(b"T" + struct.pack("<i", len(obj)) + obj)

    dispatch[bytes] = save_string


def python2_dumps(value: object) -> bytes:
    """As Python 2 and numpy 1 would have pickled it."""
    buffer = io.BytesIO()
    Python2Pickler(buffer, protocol=2).dump(value)
    return buffer.getvalue().replace(b"numpy._core", b"numpy.core")


def batch_dictionary(labels: np.ndarray, pixels: np.ndarray) -> dict[bytes, object]:
    """What a python batch holds."""
    return {b"batch_label": b"a batch", b"labels": labels.tolist(), b"data": pixels, b"filenames": [b"a.png"]}


def write_python(folder: Path, batches: dict[str, tuple[np.ndarray, np.ndarray]], dumps=python2_dumps) -> None:
    """CIFAR-10's python form."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (labels, pixels) in batches.items():
        (folder / name).write_bytes(dumps(batch_dictionary(labels, pixels)))


def write_archive(path: Path, folder: Path) -> None:
    """A compressed archive of a folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        tar.add(folder, folder.name)
