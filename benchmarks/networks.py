"""The benchmark's networks as plain PyTorch modules, with no dependence on tangentlab."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.cases import Case, Problem

INPUT_SHAPE = (3, 32, 32)


def mlp(outputs: int) -> nn.Module:
    """Return 3072-100-100-O with ReLU."""
    return _dense(3072, 100, 100, outputs)


def fcn(outputs: int) -> nn.Module:
    """Return 3072-1024-1024-O with ReLU."""
    return _dense(3072, 1024, 1024, outputs)


def _dense(*sizes: int) -> nn.Module:
    layers: list[nn.Module] = [nn.Flatten()]
    for fan_in, fan_out in pairwise(sizes[:-1]):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


class LeNet(nn.Module):
    """LeNet-5: two valid 5x5 convolutions with max pooling, then 400-120-84-O, with ReLU."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc3(F.relu(self.fc2(x)))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with BatchNorm and a shortcut, itself a 1x1 convolution where shapes change."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    """ResNet18 in its CIFAR form (3x3 stem, no initial pooling): 11.2 million parameters at 10 outputs."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        widths = (64, 64, 128, 256, 512)
        self.layers = nn.Sequential(
            *(
                nn.Sequential(BasicBlock(before, width, stride), BasicBlock(width, width, 1))
                for before, width, stride in zip(widths[:-1], widths[1:], (1, 2, 2, 2), strict=True)
            )
        )
        self.fc = nn.Linear(512, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layers(F.relu(self.bn1(self.conv1(x))))
        return self.fc(x.mean((2, 3)))


NETWORKS: dict[str, Callable[[int], nn.Module]] = {
    "mlp": mlp,
    "fcn": fcn,
    "lenet": LeNet,
    "resnet18": ResNet18,
}


def make_problem(case: Case, seed: int = 0) -> Problem:
    """Draw weights and inputs for a case.

    PyTorch's default initialization, inputs standard normal. Where the network has BatchNorm its running
    statistics are those of 256 further inputs, so that evaluation mode is what a trained network's would be,
    not the identity.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = NETWORKS[case.network](case.outputs)
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    with torch.no_grad():
        if norms:
            for norm in norms:
                norm.momentum = None  # a plain average over the calibration batches
            model.train()
            for _ in range(4):
                model(torch.randn(64, *INPUT_SHAPE, generator=generator))
        model.eval()
        x = torch.randn(case.samples, *INPUT_SHAPE, generator=generator)
        state = {name: tensor.numpy().copy() for name, tensor in model.state_dict().items()}
        y = torch.cat([model.double()(part.double()) for part in x.split(64)]).numpy()
    return Problem(case, state, tuple(name for name, _ in model.named_parameters()), x.numpy(), y)


def load_network(problem: Problem) -> nn.Module:
    """Return the problem's network in evaluation mode, in float32.

    One sample goes through it and back, so that what PyTorch sets up once is set up before anything is measured.
    """
    model = NETWORKS[problem.case.network](problem.case.outputs)
    model.load_state_dict({name: torch.from_numpy(array) for name, array in problem.state.items()})
    model.eval().to(problem.device)
    model(torch.from_numpy(problem.x[:1]).to(problem.device)).sum().backward()
    model.zero_grad(set_to_none=True)
    return model


def scalar_readout(problem: Problem) -> Callable[[Tensor], Tensor]:
    """Return the map on the logits, ``(N, O)`` to ``(N, R)``, whose kernel the case needs."""
    if problem.case.readout == "full":
        return lambda logits: logits
    return lambda logits: logits.sum(-1, keepdim=True) / problem.case.outputs**0.5
