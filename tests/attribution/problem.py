"""A small classification problem in float64, with a trained network."""

import torch
from torch import Tensor, nn

from tangentlab.attribution import Retraining
from tangentlab.training import SGD, TrainingSpec

CLASSES = 3
SPEC = TrainingSpec(epochs=3, batch_size=8, optimizer=SGD(0.2), evaluate_every=3, evaluate_on=0)


def samples(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return inputs (count, 5) and classes of a noisy linear rule."""
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 5, generator=random, dtype=torch.float64)
    noise = 0.3 * torch.randn(count, CLASSES, generator=random, dtype=torch.float64)
    return x, (x[:, :CLASSES] + noise).argmax(1)


def network(seed: int = 0, outputs: int = CLASSES) -> nn.Module:
    """Return a small network with random weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, outputs)
        return nn.Sequential(*layers).double().eval()


def retraining(readout: object = "margin") -> Retraining:
    """Return the training on 40 samples, measured on 6."""
    return Retraining(network, samples(40, 0), samples(6, 1), SPEC, readout)
