"""Tasks: targets for the images of a data set.

Every task takes an :class:`~tangentlab.data.ImageData` and returns one with other targets or moved images, so that
tasks can follow one another:

    >>> from tangentlab import data, tasks
    >>> mnist = data.load("mnist")
    >>> task = tasks.one_vs_rest(tasks.shifted(mnist, 7, canvas=tasks.SHIFTED_MNIST_CANVAS), 0)
    >>> inputs, targets = task.train.batch([0, 1, 2])         # (3, 1, 35, 35) and (3, 1)

Targets are (N, outputs) float32 for regression and binary tasks (-1 and 1 unless told otherwise) and (N,) int64 class
numbers where no task has been set.
"""

from tangentlab.tasks._eigenfunctions import eigenfunction
from tangentlab.tasks._labels import binary, cifar2, one_hot, one_vs_rest, random_labels
from tangentlab.tasks._nads import nad
from tangentlab.tasks._shifts import SHIFTED_MNIST_CANVAS, Shifts, shifted

__all__ = [
    "SHIFTED_MNIST_CANVAS",
    "Shifts",
    "binary",
    "cifar2",
    "eigenfunction",
    "nad",
    "one_hot",
    "one_vs_rest",
    "random_labels",
    "shifted",
]
