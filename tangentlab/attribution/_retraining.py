"""Training a network on part of the data and measuring it, as a function that can be pickled."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab.attribution._samples import select
from tangentlab.attribution._values import pair, sample_values
from tangentlab.training import TrainingSpec, train


@dataclass(frozen=True, eq=False)
class Retraining:
    """The training that :func:`retrain` repeats on subsets: ``retraining(indices, seed)`` returns the measured values.

    Attributes:
        build: ``build(seed)`` returns the untrained network.
        train: The training samples with their targets, as for :func:`tangentlab.training.train`: a pair of tensors, an
            object with ``batch`` and ``select`` such as :class:`tangentlab.data.Examples`, or a map-style ``Dataset``.
        test: The test samples in the same forms.
        spec: The training run; its seed is replaced by the task's.
        readout: What is measured on the test samples: ``"margin"``, ``"loss"``, ``"label"``, or a function of one
            sample's outputs and its target.
    """

    build: Callable[[int], nn.Module]
    train: Any
    test: Any
    spec: TrainingSpec
    readout: Any = "margin"

    def identity(self) -> tuple[Any, ...]:
        """Return what distinguishes two retrainings, apart from the code of this class."""
        return self.build, self.train, self.test, replace(self.spec, seed=0).describe(), self.readout

    def model(self, indices: Tensor | None = None, seed: int = 0) -> nn.Module:
        """Train a network on the given training samples, or on all, and return it in evaluation mode."""
        network = self.build(seed)
        data = self.train if indices is None else select(self.train, indices)
        train(network, data, replace(self.spec, seed=seed), progress=False)
        return network.eval()

    def measure(self, model: nn.Module) -> Tensor:
        """Return the measured value of each test sample, (M,)."""
        inputs, targets = pair(self.test)
        return sample_values(model, inputs, readout=self.readout, targets=targets)

    def __call__(self, indices: Tensor, seed: int) -> Tensor:
        """Train on the given samples and measure."""
        with torch.random.fork_rng(devices=[]):
            return self.measure(self.model(indices, seed))
