"""Images in one folder per class, as in ImageNet."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._progress import progress_bar
from tangentlab._reading import Unreadable, first_line, regular_size
from tangentlab._seeds import generator
from tangentlab.data._corrupt import corrupt
from tangentlab.data._examples import Examples
from tangentlab.data._image_data import ImageData, Provenance
from tangentlab.data._normalization import Normalization
from tangentlab.data._subset import split_off

if TYPE_CHECKING:
    from PIL.Image import Image

_IGNORED = {".ds_store", "thumbs.db", "desktop.ini"}  # what file managers leave behind
_TRAIN, _TEST = ("train",), ("val", "test")
# What photographs come in. Pillow knows many more, some of which are programs that it hands to an interpreter (EPS).
_FORMATS = ("JPEG", "PNG", "BMP", "GIF", "PPM", "TIFF", "WEBP")
_MOST_PIXELS = 2**26  # of an image, as stored and resized: 200 MB; ImageNet's largest has 20 million


def load_folder(
    root: Path,
    *,
    name: str,
    classes: Sequence[str] | Mapping[str, str] | None,
    resize: int | None,
    crop: int | None,
    test_fraction: float,
    seed: int,
    progress: bool | None,
) -> ImageData:
    """Load ``root/train/CLASS/*`` and ``root/val/CLASS/*`` (or ``test``), or split ``root/CLASS/*``.

    Args:
        root: The folder.
        name: What to call the data set.
        classes: Names of the class folders in the order of the labels, or a mapping from folder names to
            display names; None takes every folder in alphabetical order.
        resize: Length of the shorter side to resize to, keeping proportions; None leaves the size.
        crop: Side of the square cut out of the middle; None cuts nothing.
        test_fraction: Share of the test split where the folder has no split of its own.
        seed: Seed of that split, which is stratified.
        progress: Whether to show a bar; None if standard error is a terminal.
    """
    train_root = _existing(root, _TRAIN)
    names = _class_names(train_root or root, classes)
    sizes = {"resize": resize, "crop": crop}
    normalization: Normalization
    if train_root is not None:
        test_root = _existing(root, _TEST)
        if test_root is None:
            raise TangentError(
                f"{root} has a folder train but neither val nor test.",
                remedy="Add one, or give the folder train itself, which is then split at random.",
            )
        images, labels = _read(train_root, list(names), progress=progress, **sizes)
        test_images, test_labels = _read(test_root, list(names), progress=progress, **sizes)
        normalization = Normalization.of(images)
        train = Examples(images, labels, normalization)
        test = Examples(test_images, test_labels, normalization)
    else:
        images, labels = _read(root, list(names), progress=progress, **sizes)
        in_test = split_off(labels, test_fraction, generator("split", seed))
        normalization = Normalization.of(images[~in_test])
        train = Examples(images[~in_test], labels[~in_test], normalization)
        test = Examples(images[in_test], labels[in_test], normalization)
    return ImageData(name, train, test, tuple(names.values()), Provenance(f"image folders in {root}"))


def _existing(root: Path, names: Sequence[str]) -> Path | None:
    return next((root / name for name in names if (root / name).is_dir()), None)


def _class_names(root: Path, classes: Sequence[str] | Mapping[str, str] | None) -> dict[str, str]:
    """Return folder names and display names, in the order of the labels."""
    there = sorted(path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    if classes is None:
        if len(there) < 2:
            raise TangentError(
                f"{root} has {len(there)} class folders.",
                why="Each class is a folder with its images.",
                remedy="Give the folder that holds the class folders.",
            )
        return {folder: folder for folder in there}
    wanted = dict(classes) if isinstance(classes, Mapping) else {folder: folder for folder in classes}
    missing = [folder for folder in wanted if folder not in there]
    if missing:
        shown = ", ".join(there[:8]) + (", ..." if len(there) > 8 else "") or "none"
        raise TangentError(
            f"{root} has no folder for {', '.join(missing)}.",
            why=f"{len(wanted)} classes were asked for. The folders there are: {shown}.",
            remedy="Add the missing folders, or pass classes=[...] with those that are there.",
        )
    return wanted


def _read(
    root: Path, folders: Sequence[str], *, resize: int | None, crop: int | None, progress: bool | None
) -> tuple[Tensor, Tensor]:
    """Read all images (N, 3, H, W) uint8 and labels (N,), classes in order and files in alphabetical order."""
    paths, labels = [], []
    for label, folder in enumerate(folders):
        files = sorted(path for path in (root / folder).iterdir() if path.is_file())
        files = [path for path in files if path.name.lower() not in _IGNORED and not path.name.startswith("._")]
        if not files:
            raise TangentError(
                f"{root / folder} has no images.", remedy="Put this class's images there, or leave it out."
            )
        paths += files
        labels += [label] * len(files)
    images: Tensor | None = None
    with progress_bar(f"reading {root.name}", len(paths), progress) as tick:
        for index, path in enumerate(paths):
            pixels = _pixels(path, resize, crop)
            if images is None:
                images = torch.empty(len(paths), *pixels.shape, dtype=torch.uint8)
            if pixels.shape != images.shape[1:]:
                raise TangentError(
                    f"{path} has {pixels.shape[1]} x {pixels.shape[2]} pixels where {paths[0]} has "
                    f"{images.shape[2]} x {images.shape[3]}.",
                    why="A network takes images of one size.",
                    remedy="Pass resize=256, crop=224 (samarin2022), or other sizes.",
                )
            images[index] = pixels
            tick()
    if images is None:  # cannot be: every class has a file
        raise TangentError(f"{root} has no images.")
    return images, torch.tensor(labels)


def _pixels(path: Path, resize: int | None, crop: int | None) -> Tensor:
    from PIL import Image, UnidentifiedImageError

    try:
        regular_size(path)
        with warnings.catch_warnings():
            # Damaged metadata is common in ImageNet and does not touch the pixels.
            warnings.simplefilter("ignore")
            with Image.open(path, formats=_FORMATS) as opened:
                _refuse_size(path, opened.size, "has")
                image = opened.convert("RGB")
    except TangentError:
        raise
    except UnidentifiedImageError as error:
        raise corrupt(path, "is not an image that is read here (" + ", ".join(_FORMATS) + ")") from error
    except Unreadable as error:
        raise corrupt(path, str(error)) from error
    except Exception as error:  # Pillow's readers fail on damaged files in nearly any way
        raise corrupt(path, f"cannot be read as an image: {first_line(error)}") from error
    if resize is not None:
        shorter = min(image.size)
        width, height = (max(1, round(side * resize / shorter)) for side in image.size)
        _refuse_size(path, (width, height), f"would be resized from {image.size[0]} x {image.size[1]} to")
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    if crop is not None:
        image = _centre(path, image, crop)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def _refuse_size(path: Path, size: tuple[int, int], what: str) -> None:
    width, height = size
    if min(size) < 1 or width * height > _MOST_PIXELS:
        raise TangentError(
            f"{path} {what} {width} x {height} pixels.",
            why=f"An image has at least one pixel and at most {_MOST_PIXELS:,}.",
            remedy="Remove it, or make it smaller.",
        )


def _centre(path: Path, image: "Image", side: int) -> "Image":
    width, height = image.size
    if min(width, height) < side:
        raise TangentError(
            f"{path} is {width} x {height} after resizing, too small for a crop of {side} x {side}.",
            remedy=f"Pass resize of at least {side}, or a smaller crop.",
        )
    left, top = (width - side) // 2, (height - side) // 2
    return image.crop((left, top, left + side, top + side))
