"""Neural anisotropy directions as a unit of work, and data sets drawn along them."""

from dataclasses import dataclass
from typing import ClassVar, TypedDict

import torch
from torch import Tensor

from tangentlab import analysis, tasks
from tangentlab.data import ImageData
from tangentlab.experiments._context import Context
from tangentlab.experiments._parts import Weights
from tangentlab.experiments._work import UnitOfWork


class DirectionsOutcome(TypedDict):
    """Directions (k, C, H, W) and singular values (k,), float64."""

    directions: Tensor
    singular_values: Tensor


@dataclass(frozen=True)
class Directions(UnitOfWork[DirectionsOutcome]):
    """The first NADs of a network: right singular vectors of the mixed derivative at x = 0.

    The result: ``directions`` (k, C, H, W) and ``singular_values`` (k,).
    """

    shown_as: ClassVar[str] = "NADs of {weights.model.name}"
    weights: Weights
    k: int

    def compute(self, context: Context) -> DirectionsOutcome:
        """Compute the directions in float64."""
        network = self.weights.build(context, torch.float64)
        shape = self.weights.model.input_shape
        found = analysis.anisotropy_directions(network, input_shape=shape, k=self.k, readout=0)
        return {"directions": found.directions.cpu().double(), "singular_values": found.singular_values.cpu().double()}


@dataclass(frozen=True)
class AlongDirection:
    """The data set D(u) of one NAD, x = epsilon y u + w."""

    directions: Directions
    index: int
    n_train: int
    n_test: int
    epsilon: float
    sigma: float
    seed: int

    def load(self, context: Context) -> ImageData:
        """Draw the samples; equal seeds give equal samples."""
        u = context.get(self.directions)["directions"][self.index - 1]
        return tasks.nad(
            u, n_train=self.n_train, n_test=self.n_test, epsilon=self.epsilon, sigma=self.sigma, seed=self.seed
        )
