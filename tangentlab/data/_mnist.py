"""MNIST and Fashion-MNIST."""

import os
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from tangentlab._errors import TangentError
from tangentlab.data import _locate
from tangentlab.data._corrupt import corrupt
from tangentlab.data._download import DownloadFailure, fetch
from tangentlab.data._examples import Examples
from tangentlab.data._idx import read_idx
from tangentlab.data._image_data import ImageData, Provenance, SourceFile
from tangentlab.data._normalization import Normalization
from tangentlab.data._published import FASHION_MNIST, MNIST, IdxPublication

_SIDES = (28, 28)


def load_idx(
    publication: IdxPublication,
    data_dir: str | os.PathLike[str] | None,
    *,
    download: bool,
    progress: bool | None,
) -> ImageData:
    """Load a data set in MNIST's format: 28 x 28 gray images and labels from 0 to 9.

    The files may be compressed or not and may be called ``train-images-idx3-ubyte`` or
    ``train-images.idx3-ubyte``, with or without ``.gz``.
    """
    paths = _find(publication, data_dir, download=download, progress=progress)
    arrays, records = [], []
    for path, file in zip(paths, publication.files, strict=True):
        array, md5 = read_idx(path, 3 if "images" in file.name else 1)
        _refuse_relatives(publication, path, md5)
        if array.ndim == 3 and (len(array) == 0 or array.shape[1:] != _SIDES):
            raise corrupt(path, f"holds images {array.shape} where (N, 28, 28) with N > 0 is expected")
        arrays.append(array)
        records.append(SourceFile(str(path), md5, file.content_md5))
    train_images = torch.from_numpy(arrays[0].copy())[:, None]  # a copy: the bytes read are not writable
    normalization = Normalization.of(train_images)
    return ImageData(
        publication.name,
        Examples(train_images, _labels(paths[1], arrays[1], len(arrays[0])), normalization),
        Examples(
            torch.from_numpy(arrays[2].copy())[:, None],
            _labels(paths[3], arrays[3], len(arrays[2])),
            normalization,
        ),
        publication.classes,
        Provenance(f"{publication.title}, IDX files in {paths[0].parent}", tuple(records)),
    )


def _labels(path: Path, labels: NDArray[np.uint8], images: int) -> torch.Tensor:
    if len(labels) != images:
        raise corrupt(path, f"has {len(labels):,} labels for {images:,} images")
    if len(labels) and labels.max() > 9:
        raise corrupt(path, f"has the label {labels.max()}, and labels go from 0 to 9")
    return torch.from_numpy(labels.astype(np.int64))


def _find(
    publication: IdxPublication,
    data_dir: str | os.PathLike[str] | None,
    *,
    download: bool,
    progress: bool | None,
) -> list[Path]:
    roots = _locate.roots(data_dir)
    folders = [root / below for root in roots for below in publication.folders]
    # Files of MNIST and of its relatives have the same names: the bare cache folder belongs to none of them.
    folders = [folder for folder in folders if folder != _locate.cache_dir()]
    dotted = [(file.name, file.name.replace("-idx", ".idx")) for file in publication.files]
    names = [(plain + ".gz", plain, other + ".gz", other) for plain, other in dotted]
    found = _locate.first_with_all(folders, names)
    if found:
        return found
    reason = "Downloading was not allowed (download=False)."
    if download:
        home = _locate.cache_dir() / publication.folders[0]
        try:
            return [fetch(file.remote, home, progress) for file in publication.files]
        except DownloadFailure as failure:
            reason = f"{failure.what} {failure.why or failure.remedy}"
    searched = ", ".join(str(root) for root in roots)
    raise TangentError(
        f"{publication.title} was not found in {searched}.",
        why=_locate.incomplete(folders, names) + reason,
        remedy=f"Put {', '.join(file.remote.name for file in publication.files)} (compressed or not) into "
        f"a folder DIR/{publication.folders[0]} and pass data_dir=DIR, or set {_locate.DATA_DIR_VARIABLE}=DIR. "
        'The data set "digits" needs no files.',
    )


def _refuse_relatives(publication: IdxPublication, path: Path, md5: str) -> None:
    """Refuse files of MNIST's relatives, which have the same names: the confusion would go unnoticed."""
    for other in (MNIST, FASHION_MNIST):
        if other.name != publication.name and md5 in {file.content_md5 for file in other.files}:
            raise TangentError(
                f"{path} is a file of {other.title}, not of {publication.title}.",
                why="Both use the same file names, and this content is the other's.",
                remedy=f"Keep them apart: put {publication.title} into {publication.folders[0]}.",
            )
