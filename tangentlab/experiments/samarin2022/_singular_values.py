"""Singular values of the feature matrix J as a unit of work, and the effective rank of a matrix without structure."""

from dataclasses import dataclass
from typing import ClassVar, TypedDict

import numpy as np
import torch
from torch import Tensor

from tangentlab import linalg
from tangentlab.experiments._context import Context
from tangentlab.experiments._parts import Images, Weights, inputs
from tangentlab.experiments._work import UnitOfWork
from tangentlab.kernels import ntk


class SingularValuesOutcome(TypedDict):
    """Singular values, descending, and the number of parameters."""

    values: Tensor
    parameters: int


@dataclass(frozen=True)
class SingularValues(UnitOfWork[SingularValuesOutcome]):
    """Singular values of J, (samples * outputs) x parameters, from the kernel J J^T in float64.

    The result: ``values``, descending, and ``parameters``.
    """

    shown_as: ClassVar[str] = "singular values of {weights.model.name} x{weights.model.width:g}"
    weights: Weights
    images: Images
    samples: int

    def compute(self, context: Context) -> SingularValuesOutcome:
        """Compute the full kernel, then its eigenvalues."""
        x = inputs(self.images.load(context), "train", self.samples)
        network = self.weights.build(context, torch.float64)
        kernel = ntk(network, x.to(context.device, torch.float64), progress=context.settings.progress)
        return {
            "values": linalg.singular_values(kernel.cpu()),
            "parameters": sum(p.numel() for p in network.parameters()),
        }


def unstructured_rank(rows: int, columns: int) -> float:
    r"""Compute the effective rank of a large matrix of independent entries of mean zero and equal variance.

    By the law of Marchenko and Pastur, with y the smaller side over the larger, the squared singular values are
    :math:`1 + y + 2 \sqrt{y} \cos\theta` with density :math:`2 \sin^2\theta / \pi` over themselves. That is
    0.80 of the full rank for a square matrix, and 0.99 for one with ten times as many columns as rows.
    """
    small, large = sorted((rows, columns))
    y = small / large
    theta = (np.arange(20_000) + 0.5) * (np.pi / 20_000)
    squares = 1 + y + 2 * np.sqrt(y) * np.cos(theta)
    weights = np.sin(theta) ** 2 / squares
    weights /= weights.sum()
    s = np.sqrt(squares)
    mean = float(weights @ s)
    return small * mean * float(np.exp(-(weights @ (s * np.log(s))) / mean))
