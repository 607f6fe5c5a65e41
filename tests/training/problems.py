"""Small problems for the loop."""

from typing import Any

import torch
from torch import Tensor, nn

from tangentlab.training import SGD, SigmoidCrossEntropy, SoftmaxCrossEntropy, Squared, TrainingSpec


def mlp(outputs: int = 3, seed: int = 0, width: int = 16) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, width), nn.Tanh(), nn.Linear(width, outputs))


def convnet(seed: int = 0, dropout: float = 0.0) -> nn.Module:
    """BatchNorm's statistics, and dropout's randomness, are part of what a checkpoint must hold."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Dropout(dropout),
        nn.Flatten(),
        nn.Linear(36, 3),
    )


def clusters(samples: int = 60, classes: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    centers = 2 * torch.randn(classes, 5, generator=torch.Generator().manual_seed(99))
    labels = torch.arange(samples) % classes
    return centers[labels] + torch.randn(samples, 5, generator=generator), labels


def images(samples: int = 40, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(samples) % 3
    pictures = torch.randn(samples, 1, 6, 6, generator=generator)
    pictures[:, 0, 0] += labels[:, None] - 1.0
    return pictures, labels


def spec(**changes: Any) -> TrainingSpec:
    settings: dict[str, Any] = {
        "epochs": 3,
        "batch_size": 8,
        "loss": SoftmaxCrossEntropy(),
        "optimizer": SGD(0.1, momentum=0.9),
        "seed": 5,
    }
    return TrainingSpec(**{**settings, **changes})


def task(loss: object) -> tuple[int, Tensor, Tensor]:
    """Outputs, inputs and targets for a loss."""
    if isinstance(loss, SigmoidCrossEntropy):
        x, y = clusters(classes=2)
        return 1, x, 2.0 * y[:, None] - 1
    if isinstance(loss, Squared):
        x, y = clusters()
        return 3, x, y
    x, y = clusters()
    return 3, x, y
