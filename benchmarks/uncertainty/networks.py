"""The trained networks of the calibration benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from tangentlab import data, models, training
from tangentlab.data import Examples

EPOCHS = 12
WEIGHT_DECAY = 2e-4
VALIDATION = 5_000
"""Training images that are held out: temperature scaling and the prior precision are chosen on them."""


@dataclass(frozen=True)
class Trained:
    """A trained network and its data.

    Attributes:
        model: In evaluation mode.
        train: The samples it was trained on.
        validation: Held out of the training split.
        test: The test split.
    """

    model: nn.Module
    train: Examples
    validation: Examples
    test: Examples


def trained(dataset: str, seed: int, data_dir: Path, folder: Path) -> Trained:
    """Train a LeNet, or load it from an earlier run; an interrupted run is resumed.

    Plain SGD with momentum 0.9, weight decay, batches of 128 and a learning rate that falls linearly from 0.05: a
    network as practitioners train it, which is overconfident.
    """
    images = data.load(dataset, data_dir)
    order = torch.randperm(len(images.train), generator=torch.Generator().manual_seed(1000 + seed))
    train, validation = images.train.select(order[VALIDATION:]), images.train.select(order[:VALIDATION])
    model = models.build("lenet", variant="ortiz2021", width=1.5, input_shape=images.input_shape, outputs=10, seed=seed)
    spec = training.TrainingSpec(
        epochs=EPOCHS,
        batch_size=128,
        optimizer=training.SGD(0.05, momentum=0.9, weight_decay=WEIGHT_DECAY),
        schedule=training.LinearDecay(),
        seed=seed,
    )
    training.train(model, train, spec, folder=folder / f"{dataset}-{seed}", progress=False)
    return Trained(model.eval(), train, validation, images.test)
