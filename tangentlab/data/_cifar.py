"""CIFAR-10, from its binary or its python form, from a folder or from an archive."""

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from tangentlab._errors import TangentError
from tangentlab._reading import Unreadable, read_bytes, regular_size
from tangentlab.data import _locate
from tangentlab.data._archive import extract
from tangentlab.data._corrupt import corrupt
from tangentlab.data._download import DownloadFailure, fetch
from tangentlab.data._examples import Examples
from tangentlab.data._image_data import ImageData, Provenance, SourceFile
from tangentlab.data._normalization import Normalization
from tangentlab.data._published import CIFAR10_BINARY, CIFAR10_CLASSES, CIFAR10_PYTHON, CifarForm
from tangentlab.data._unpickle import read_pickled_arrays

RECORDS = 10_000  # in each of the six files
_PIXELS = 3 * 32 * 32
_RECORD = 1 + _PIXELS  # a label and the red, green and blue planes
_CHUNK = 1_000  # records read at once, so that memory holds the result and little else
_MOST_NAMES = 2**16  # bytes of the list of classes
_MOST_BYTES = 2**30  # an archive that unpacks to more is not CIFAR-10

# The order in which a folder is searched and the network is asked: the binary form needs no unpickling.
_FORMS = (CIFAR10_BINARY, CIFAR10_PYTHON)

# Fills rows of images (n, 3072) and labels (n,) from a batch file and returns the file's MD5.
_Reader = Callable[[Path, NDArray[np.uint8], NDArray[np.int64]], str]


def load_cifar10(data_dir: str | os.PathLike[str] | None, *, download: bool, progress: bool | None) -> ImageData:
    """Load CIFAR-10: 50,000 training and 10,000 test images, 3 x 32 x 32, ten classes."""
    form, folder = _find(data_dir, download=download, progress=progress)
    if form is CIFAR10_BINARY:
        _check_class_names(folder / "batches.meta.txt")
    reader = _read_binary if form is CIFAR10_BINARY else _read_python
    records: list[SourceFile] = []
    splits = []
    for batches in (form.train, form.test):
        images = np.empty((RECORDS * len(batches), _PIXELS), np.uint8)
        labels = np.empty(RECORDS * len(batches), np.int64)
        for index, (name, published) in enumerate(batches):
            rows = slice(index * RECORDS, (index + 1) * RECORDS)
            md5 = reader(folder / name, images[rows], labels[rows])
            records.append(SourceFile(str(folder / name), md5, published))
        splits.append((torch.from_numpy(images).view(-1, 3, 32, 32), torch.from_numpy(labels)))
    normalization = Normalization.of(splits[0][0])
    train, test = (Examples(images, labels, normalization) for images, labels in splits)
    source = f"CIFAR-10, {'binary' if form is CIFAR10_BINARY else 'python'} batches in {folder}"
    return ImageData("cifar10", train, test, CIFAR10_CLASSES, Provenance(source, tuple(records)))


def _read_binary(path: Path, images: NDArray[np.uint8], labels: NDArray[np.int64]) -> str:
    try:
        size = regular_size(path)
    except Unreadable as error:
        raise corrupt(path, str(error)) from error
    if size != len(images) * _RECORD:
        raise corrupt(path, f"has {size:,} bytes where {len(images) * _RECORD:,} are expected")
    md5 = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        for start in range(0, len(images), _CHUNK):
            count = min(_CHUNK, len(images) - start)
            block = file.read(count * _RECORD)
            md5.update(block)
            rows = np.frombuffer(block, np.uint8).reshape(count, _RECORD)
            labels[start : start + count] = rows[:, 0]
            images[start : start + count] = rows[:, 1:]
    _check_labels(path, labels.tolist())
    return md5.hexdigest()


def _read_python(path: Path, images: NDArray[np.uint8], labels: NDArray[np.int64]) -> str:
    batch = read_pickled_arrays(path)
    data, names = batch.get("data"), batch.get("labels")
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape != images.shape:
        found = f"{data.dtype} {data.shape}" if isinstance(data, np.ndarray) else type(data).__name__
        raise corrupt(path, f"has data of {found} where uint8 {images.shape} is expected")
    if not isinstance(names, list) or len(names) != len(labels) or not all(type(name) is int for name in names):
        raise corrupt(path, f"does not have a list of {len(labels):,} integer labels")
    _check_labels(path, names)  # before they go into the array, which numbers of any size would overflow
    images[:] = data
    labels[:] = names
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def _check_labels(path: Path, labels: Iterable[int]) -> None:
    wrong = next((label for label in labels if not 0 <= label <= 9), None)
    if wrong is not None:
        shown = str(wrong) if abs(wrong) < 10**18 else "of absurd size"
        raise corrupt(path, f"has the label {shown}, and labels go from 0 to 9")


def _check_class_names(path: Path) -> None:
    """Check the order of the classes: a copy made by others may number them differently, which would go unnoticed."""
    if not path.is_file():
        return
    try:
        text = read_bytes(path, _MOST_NAMES).decode(errors="replace")
    except Unreadable as error:
        raise corrupt(path, str(error)) from error
    names = tuple(line.strip() for line in text.splitlines() if line.strip())
    if names != CIFAR10_CLASSES:
        raise TangentError(
            f"{path} lists the classes {', '.join(map(_shown, names[:20]))}.",
            why=f"CIFAR-10's are {', '.join(CIFAR10_CLASSES)}: the labels would mean other things.",
            remedy="Use the publisher's files, or remove this list if it is known to be wrong.",
        )


def _shown(name: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in name[:40])


def _find(data_dir: str | os.PathLike[str] | None, *, download: bool, progress: bool | None) -> tuple[CifarForm, Path]:
    roots = _locate.roots(data_dir)
    notes = ""
    for root in roots:
        for form in _FORMS:
            folders = [root / form.folder, root / "cifar10" / form.folder, root / "cifar10", root]
            names = [(name,) for name, _ in (*form.train, *form.test)]
            found = _locate.first_with_all(folders, names)
            if found:
                return form, found[0].parent
            notes += _locate.incomplete(folders, names)
        for form in _FORMS:
            for archive in (root / form.archive.name, root / "cifar10" / form.archive.name):
                if archive.is_file():
                    return form, _unpack(form, archive)
    reasons = ["Downloading was not allowed (download=False)."]
    if download:
        reasons = []
        for form in _FORMS:
            try:
                archive = fetch(form.archive, _locate.cache_dir() / "cifar10", progress)
            except DownloadFailure as failure:
                reasons.append(f"{failure.what} {failure.why or failure.remedy}")
            else:
                return form, _unpack(form, archive)
    raise TangentError(
        f"CIFAR-10 was not found in {', '.join(str(root) for root in roots)}.",
        why=notes + " ".join(reasons),
        remedy=f"Put {CIFAR10_BINARY.archive.name} or {CIFAR10_PYTHON.archive.name}, or the folder that one of "
        f"them unpacks to ({CIFAR10_BINARY.folder}, {CIFAR10_PYTHON.folder}), into a folder DIR and pass "
        f'data_dir=DIR, or set {_locate.DATA_DIR_VARIABLE}=DIR. The data set "digits" needs no files.',
    )


def _unpack(form: CifarForm, archive: Path) -> Path:
    """Unpack into the cache, under the archive's checksum: the user's folder may not be writable."""
    with archive.open("rb") as file:
        md5 = hashlib.file_digest(file, "md5").hexdigest()
    folder = extract(archive, _locate.cache_dir() / "unpacked" / md5, _MOST_BYTES) / form.folder
    missing = [name for name, _ in (*form.train, *form.test) if not (folder / name).is_file()]
    if missing:
        raise corrupt(archive, f"does not hold {form.folder}/{missing[0]}")
    return folder
