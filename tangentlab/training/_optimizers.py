"""Optimizers as data."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tangentlab._errors import TangentError

DecayTo = Literal["zero", "start"]


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent: m <- momentum m + g, theta <- theta - lr m.

    Attributes:
        lr: Learning rate, before the schedule.
        momentum: Momentum coefficient.
        nesterov: Whether to use Nesterov momentum.
        weight_decay: Coefficient of the decay term that is added to the gradient.
        decay_to: The target of weight decay. ``"zero"``: the usual decay, weight_decay * theta. ``"start"``:
            weight_decay * (theta - theta_start), the ridge of a linearized model whose weights are its displacement
            (u in samarin2022, equation 2).
    """

    lr: float
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    decay_to: DecayTo = "zero"

    def __post_init__(self) -> None:
        for name in ("lr", "momentum", "weight_decay"):
            object.__setattr__(self, name, float(getattr(self, name)))
        _check(self.lr, self.weight_decay, self.decay_to)
        if not 0 <= self.momentum < 1:
            raise TangentError(f"momentum={self.momentum} is not in [0, 1).", remedy="Use 0.9.")

    def build(self, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
        """Build the torch optimizer."""
        decay = self.weight_decay if self.decay_to == "zero" else 0.0
        return torch.optim.SGD(
            parameters, lr=self.lr, momentum=self.momentum, nesterov=self.nesterov, weight_decay=decay
        )


@dataclass(frozen=True)
class Adam:
    """The Adam optimizer. Weight decay is added to the gradient, as in ``torch.optim.Adam``; see :class:`SGD` for
    ``decay_to``."""

    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    decay_to: DecayTo = "zero"

    def __post_init__(self) -> None:
        for name in ("lr", "eps", "weight_decay"):
            object.__setattr__(self, name, float(getattr(self, name)))
        object.__setattr__(self, "betas", tuple(float(beta) for beta in self.betas))
        _check(self.lr, self.weight_decay, self.decay_to)
        if not all(0 <= beta < 1 for beta in self.betas):
            raise TangentError(f"betas={self.betas} are not in [0, 1).", remedy="Use (0.9, 0.999).")

    def build(self, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
        """Build the torch optimizer."""
        decay = self.weight_decay if self.decay_to == "zero" else 0.0
        return torch.optim.Adam(parameters, lr=self.lr, betas=self.betas, eps=self.eps, weight_decay=decay)


Optimizer = SGD | Adam


def _check(lr: float, weight_decay: float, decay_to: str) -> None:
    if not (lr > 0 and math.isfinite(lr)):
        raise TangentError(
            f"lr={lr} is not a positive number.", remedy="Try 0.1, or GradientFlow's largest stable one."
        )
    if not (weight_decay >= 0 and math.isfinite(weight_decay)):
        raise TangentError(f"weight_decay={weight_decay} is negative or not finite.", remedy="Use 0 for none.")
    if decay_to not in ("zero", "start"):
        raise TangentError(f"decay_to={decay_to!r} is unknown.", remedy="Use 'zero' or 'start'.")
