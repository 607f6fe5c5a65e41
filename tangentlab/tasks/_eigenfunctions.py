"""Binarized eigenfunctions of a kernel as targets (ortiz2021, section 3)."""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab.data import ImageData
from tangentlab.linalg import eigh


def eigenfunction(
    data: ImageData,
    j: int,
    *,
    eigenvectors: "Tensor | NDArray[np.floating] | None" = None,
    kernel: "Tensor | NDArray[np.floating] | None" = None,
) -> ImageData:
    """Set the targets to sign(phi_j(x)), where phi_j is the j-th eigenfunction of a kernel.

    Its values are the j-th eigenvector of the Gram matrix over training rows followed by test rows: "we use the
    eigenvectors of the kernel Gram matrix to approximate the eigenfunctions [...] using the 60,000 samples of
    the CIFAR10 dataset, which include both training and test samples" (ortiz2021, appendix B). Where an entry
    is exactly zero the target is -1, as in the authors' code. The sign of an eigenvector is arbitrary, so the
    same kernel may give the task with all targets flipped.

    Cost: all eigenpairs of a kernel by :func:`tangentlab.linalg.eigh`; one pass over the j-th column of eigenvectors.

    Args:
        data: The images; ``len(train) + len(test)`` rows.
        j: Which one, counted from 1 as in the paper; 1 has the largest eigenvalue.
        eigenvectors: (rows, K), the leading eigenvectors as columns, largest eigenvalue first.
        kernel: (rows, rows), symmetric; decomposed here, in float64. For more than one task or many rows compute the
            eigenvectors once and pass them.

    Returns:
        The same images with targets (N, 1) float32 of -1 and 1.

    Examples:
        >>> from tangentlab import data, ntk, models, tasks
        >>> digits = data.load("digits", n_train=60, n_test=20)
        >>> network = models.build("mlp", input_shape=digits.input_shape, outputs=1, hidden=(8,), seed=0)
        >>> kernel = ntk(network, digits.both().inputs(), readout=0)
        >>> tasks.eigenfunction(digits, 1, kernel=kernel).train.targets.unique().tolist()
        [1.0]

    See also:
        :func:`tangentlab.linalg.eigh`, :func:`tangentlab.analysis.energy_concentration`.
    """
    if (eigenvectors is None) == (kernel is None):
        raise TangentError("Give either eigenvectors or a kernel.", remedy="Call eigenfunction(data, j, kernel=...).")
    rows = len(data.train) + len(data.test)
    if kernel is not None:
        vectors = _decompose(torch.as_tensor(kernel), rows)
    else:
        vectors = torch.as_tensor(eigenvectors)
    if vectors.ndim != 2 or len(vectors) != rows:
        raise TangentError(
            f"Eigenvectors of shape {tuple(vectors.shape)} do not fit {len(data.train):,} training and "
            f"{len(data.test):,} test images.",
            remedy=f"Give a matrix with {rows:,} rows, training images first, and one column per eigenvector.",
        )
    if isinstance(j, bool) or not isinstance(j, int) or not 1 <= j <= vectors.shape[1]:
        raise TangentError(
            f"There is no eigenfunction {j!r}.",
            why="They are counted from 1, as in the paper.",
            remedy=f"Give j from 1 to {vectors.shape[1]}.",
        )
    values = vectors[:, j - 1]
    if not torch.isfinite(values).all():
        raise TangentError(f"Eigenvector {j} has entries that are not finite.")
    targets = torch.where(values > 0, 1.0, -1.0)[:, None]
    train, test = targets.split([len(data.train), len(data.test)])
    return replace(
        data,
        name=f"{data.name}, eigenfunction {j}",
        train=data.train.with_targets(train),
        test=data.test.with_targets(test),
    )


def _decompose(kernel: Tensor, rows: int) -> Tensor:
    if kernel.shape != (rows, rows):
        raise TangentError(
            f"A kernel of shape {tuple(kernel.shape)} does not fit {rows:,} images.",
            remedy=f"Give the ({rows:,}, {rows:,}) Gram matrix over training images followed by test images.",
        )
    return eigh(kernel).vectors
