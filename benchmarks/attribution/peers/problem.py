"""The problem as a peer's process reads it: digits, and the weights of the checkpoints; no dependence on tangentlab."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


def network(state: dict[str, Tensor]) -> nn.Module:
    """Return the network with these weights, in evaluation mode."""
    sizes = state["1.weight"].shape[1], state["1.weight"].shape[0], state["3.weight"].shape[0]
    model = nn.Sequential(nn.Flatten(), nn.Linear(*sizes[:2]), nn.ReLU(), nn.Linear(*sizes[1:]))
    model.load_state_dict(state)
    return model.eval()


def write(path: Path, train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], models: Sequence[nn.Module]) -> None:
    """Write samples and weights; the networks have two dense layers."""
    arrays = {"x": train[0], "y": train[1], "x_test": test[0], "y_test": test[1]}
    names = ("1.weight", "1.bias", "3.weight", "3.bias")
    for number, model in enumerate(models):
        arrays |= {f"{number}/{name}": p.detach() for name, p in zip(names, model.parameters(), strict=True)}
    np.savez(path, **{name: tensor.numpy() for name, tensor in arrays.items()})


class Problem:
    """What :func:`write` wrote."""

    def __init__(self, path: Path) -> None:
        content = np.load(path)
        self.train = torch.from_numpy(content["x"]), torch.from_numpy(content["y"])
        self.test = torch.from_numpy(content["x_test"]), torch.from_numpy(content["y_test"])
        self.states: list[dict[str, Tensor]] = []
        while f"{len(self.states)}/1.weight" in content:
            own = f"{len(self.states)}/"
            self.states.append(
                {name.removeprefix(own): torch.from_numpy(content[name]) for name in content if name.startswith(own)}
            )

    def batches(self, data: tuple[Tensor, Tensor], size: int) -> Any:
        """Yield batches of inputs and labels."""
        return zip(data[0].split(size), data[1].split(size), strict=True)
