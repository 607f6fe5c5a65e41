"""Loading of all data sets by name."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.utils.data import Dataset

from tangentlab._errors import TangentError
from tangentlab._suggestions import did_you_mean
from tangentlab.data import _locate
from tangentlab.data._cifar import load_cifar10
from tangentlab.data._digits import load_digits
from tangentlab.data._folder import load_folder
from tangentlab.data._image_data import ImageData
from tangentlab.data._mnist import load_idx
from tangentlab.data._published import FASHION_MNIST, MNIST
from tangentlab.data._snakes import SNAKE_SYNSETS
from tangentlab.data._torch_dataset import load_dataset


@dataclass(frozen=True)
class DataSource:
    """A data set that :func:`load` knows.

    Attributes:
        name: The name.
        summary: What it is.
        used_by: The papers that use it.
        files: Paths of its files below the data folder; empty if it needs none.
        shape: (C, H, W) of its images as :func:`load` gives them; None where the files decide.
    """

    name: str
    summary: str
    used_by: str
    files: str = ""
    shape: tuple[int, int, int] | None = None


_SOURCES = (
    DataSource(
        "digits",
        "1,437 + 360 handwritten digits, 1 x 8 x 8, embedded in scikit-learn",
        "the tiny presets",
        shape=(1, 8, 8),
    ),
    DataSource(
        "mnist", "60,000 + 10,000 digits, 1 x 28 x 28", "ortiz2021, samarin2022", "MNIST/raw/*-ubyte.gz", (1, 28, 28)
    ),
    DataSource(
        "fashion_mnist",
        "60,000 + 10,000 pieces of clothing, 1 x 28 x 28",
        "none",
        "FashionMNIST/raw/*-ubyte.gz",
        (1, 28, 28),
    ),
    DataSource(
        "cifar10",
        "50,000 + 10,000 photographs of ten classes, 3 x 32 x 32",
        "ortiz2021, samarin2022, mohamadi2022",
        "cifar-10-batches-bin, cifar-10-batches-py, or one of their archives",
        (3, 32, 32),
    ),
    DataSource(
        "snakes",
        "ten snake classes of ImageNet, resized to 256 and cropped to 3 x 224 x 224",
        "samarin2022",
        "train/SYNSET/*.JPEG and val/SYNSET/*.JPEG, or SYNSET/*.JPEG",
        (3, 224, 224),
    ),
    DataSource("folder", "any images in one folder per class", "none", "train/CLASS/* and val/CLASS/*, or CLASS/*"),
)


def available() -> tuple[DataSource, ...]:
    """Return the data sets that :func:`load` knows.

    Examples:
        >>> from tangentlab import data
        >>> [source.name for source in data.available()][:2]
        ['digits', 'mnist']

    See also:
        :func:`tangentlab.data.load`.
    """
    return _SOURCES


def load(
    source: "str | Dataset[Any] | tuple[Dataset[Any], Dataset[Any]]" = "digits",
    data_dir: str | os.PathLike[str] | None = None,
    *,
    n_train: int | None = None,
    n_test: int | None = None,
    seed: int = 0,
    pad_to: int | None = None,
    download: bool = True,
    progress: bool | None = None,
    classes: Sequence[str] | Mapping[str, str] | None = None,
    resize: int | None = None,
    crop: int | None = None,
    test_fraction: float = 0.2,
) -> ImageData:
    """Load a data set into memory as uint8.

    Files are taken from ``data_dir``, or the folder in the environment variable ``TANGENTLAB_DATA_DIR``; else
    from the cache; else they are downloaded into the cache, with pinned checksums.

    Cost: one pass over the files of both splits, also for a subset, with all of their pixels in memory.

    Args:
        source: One of :func:`available`, or a map-style torch ``Dataset`` of (image, label) pairs, or two of
            them (train, test).
        data_dir: The folder that holds the data sets' folders. Required for ``"folder"`` and ``"snakes"``,
            where it is the folder of the classes itself.
        n_train: Take a stratified subset of this many training examples.
        n_test: The same for the test split.
        seed: Seed of the subsets, and of the split of a source that has none.
        pad_to: Put images on a black square of this side; 32 for LeNet-5 on MNIST (samarin2022).
        download: Whether to download missing files.
        progress: Whether to show progress bars; None if standard error is a terminal.
        classes: For folders: the class folders to take, in the order of the labels, or a mapping from folder
            names to display names. For torch data sets: names of the classes.
        resize: For folders: resize the shorter side to this. 256 for snakes unless given.
        crop: For folders: then cut this square out of the middle. 224 for snakes unless given.
        test_fraction: Share of the test split, for folders and torch data sets without one.

    Raises:
        TangentError: For an unknown name, missing files (saying which to put where), or a damaged file
            (naming it).

    Examples:
        >>> from tangentlab import data
        >>> digits = data.load("digits", n_train=60, n_test=20)
        >>> digits.input_shape, len(digits.train)
        ((1, 8, 8), 60)

    See also:
        :func:`tangentlab.data.available`, :func:`tangentlab.tasks.binary`.
    """
    if not 0 < test_fraction < 1:
        raise TangentError(f"test_fraction={test_fraction} is not between 0 and 1.")
    if isinstance(source, str):
        name = _known(source)
        _refuse_unused(name, classes=classes, resize=resize, crop=crop)
        if name == "digits":
            data = load_digits()
        elif name in (MNIST.name, FASHION_MNIST.name):
            publication = MNIST if name == MNIST.name else FASHION_MNIST
            data = load_idx(publication, data_dir, download=download, progress=progress)
        elif name == "cifar10":
            data = load_cifar10(data_dir, download=download, progress=progress)
        else:
            snakes = name == "snakes"
            data = load_folder(
                _named_folder(name, data_dir),
                name=name,
                classes=SNAKE_SYNSETS if snakes and classes is None else classes,
                resize=256 if snakes and resize is None else resize,
                crop=224 if snakes and crop is None else crop,
                test_fraction=test_fraction,
                seed=seed,
                progress=progress,
            )
    else:
        _refuse_unused("a torch data set", resize=resize, crop=crop)
        train, *others = source if isinstance(source, tuple) else (source,)
        test = others[0] if others else None
        if len(others) > 1 or not isinstance(train, Dataset) or not isinstance(test, Dataset | None):
            raise TangentError(
                f"A {type(source).__name__} is not a data set.",
                remedy="Pass a name, a torch Dataset, or a tuple (train, test) of two.",
            )
        names = list(classes.values()) if isinstance(classes, Mapping) else classes
        data = load_dataset(train, test, classes=names, test_fraction=test_fraction, seed=seed, progress=progress)
    data = data.subset(n_train, n_test, seed)
    return data if pad_to is None else data.pad_to(pad_to)


def _known(source: str) -> str:
    names = [entry.name for entry in _SOURCES]
    plain = source.lower().replace("-", "").replace("_", "")
    spelled = {name.replace("_", ""): name for name in names}
    if plain in spelled:  # CIFAR-10, Fashion-MNIST and the like
        return spelled[plain]
    hint = did_you_mean(source, names, cutoff=0.4)
    raise TangentError(f"There is no data set {source!r}.", remedy=f"{hint}The names are {', '.join(names)}.")


def _named_folder(name: str, data_dir: str | os.PathLike[str] | None) -> Path:
    folder = _locate.user_dir(data_dir)
    if folder is None:
        raise TangentError(
            f"{name!r} needs a folder of images.",
            why="ImageNet cannot be downloaded without an account." if name == "snakes" else "",
            remedy=f"Pass data_dir=DIR or set {_locate.DATA_DIR_VARIABLE}=DIR, with the class folders in "
            "DIR/train and DIR/val, or in DIR itself.",
        )
    return folder


def _refuse_unused(name: str, **options: object) -> None:
    given = [key for key, value in options.items() if value is not None]
    if given and name not in ("folder", "snakes"):
        raise TangentError(
            f"{', '.join(given)} given with {name}.",
            why="It would be ignored: this belongs to folders of images.",
            remedy="Leave it out.",
        )
