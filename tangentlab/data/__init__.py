"""The papers' data sets, in memory as uint8 and normalized when they are read.

    >>> from tangentlab import data
    >>> digits = data.load()                                  # embedded in scikit-learn, needs no files
    >>> cifar = data.load("cifar10", data_dir="~/data", n_train=10_000)
    >>> inputs, labels = cifar.train.batch([0, 1, 2])

:func:`load` gives an :class:`ImageData` with two :class:`Examples`, which are torch data sets. Tasks
(:mod:`tangentlab.tasks`) turn one :class:`ImageData` into another.
"""

from tangentlab._deprecated import renamed_names
from tangentlab.data._examples import Examples, Transform
from tangentlab.data._image_data import ImageData, Provenance, SourceFile
from tangentlab.data._load import DataSource, available, load
from tangentlab.data._locate import DATA_DIR_VARIABLE, cache_dir
from tangentlab.data._normalization import Normalization
from tangentlab.data._snakes import OTHER_SNAKE_SYNSETS, SNAKE_SYNSETS

__all__ = [
    "DATA_DIR_VARIABLE",
    "OTHER_SNAKE_SYNSETS",
    "SNAKE_SYNSETS",
    "DataSource",
    "Examples",
    "ImageData",
    "Normalization",
    "Provenance",
    "SourceFile",
    "Transform",
    "available",
    "cache_dir",
    "load",
]

__getattr__ = renamed_names(__name__, {"Normalisation": "Normalization"})
