"""The experiment's data, network and training: MNIST, 5,000 + 500 digits, an MLP 784-128-10."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor, nn

from tangentlab import data, models, training
from tangentlab.attribution import Retraining

SPEC = training.TrainingSpec(
    epochs=15,
    batch_size=64,
    optimizer=training.SGD(0.05, momentum=0.9, weight_decay=5e-4),
    schedule=training.LinearDecay(),
    evaluate_every=15,
    evaluate_on=0,
)


def build(seed: int) -> nn.Module:
    """Return the untrained network, 101,770 parameters."""
    return models.build("mlp", input_shape=(1, 28, 28), outputs=10, hidden=(128,), seed=seed)


@dataclass(frozen=True)
class Setup:
    """Where the data is, how much of it is used, and where results go."""

    folder: Path
    data_dir: Path | None
    train: int = 5000
    test: int = 500

    @cached_property
    def retraining(self) -> Retraining:
        """The training that all networks of the experiment share."""
        digits = data.load("mnist", self.data_dir, n_train=self.train, n_test=self.test, seed=0)
        pairs = [(part.inputs(), part.labels) for part in (digits.train, digits.test)]
        return Retraining(build, *pairs, SPEC)

    def checkpoints(self, count: int) -> list[nn.Module]:
        """Return networks trained on all of the training digits with seeds 0, 1, ...; they are kept on disk."""
        found = []
        for seed in range(count):
            path = self.folder / "checkpoints" / f"seed-{seed}.pt"
            network = build(seed)
            if path.exists():
                network.load_state_dict(torch.load(path, weights_only=True))
            else:
                network = self.retraining.model(seed=seed)
                path.parent.mkdir(parents=True, exist_ok=True)
                torch.save(network.state_dict(), path)
            found.append(network.eval())
        return found

    @property
    def labels(self) -> Tensor:
        """Labels of the test digits."""
        return self.retraining.test[1]
