"""Learning rate schedules: the factor on the optimizer's learning rate, as a function of the step alone.

They depend only on the step, so a resumed run needs no state of them.
"""

import math
from dataclasses import dataclass
from typing import Protocol

from tangentlab._errors import TangentError


class Schedule(Protocol):
    """A factor on the learning rate for each step."""

    def factor(self, step: int, total: int, steps_per_epoch: int) -> float:
        """Return the factor on the learning rate of update ``step`` (from 0) of ``total``."""
        ...


@dataclass(frozen=True)
class Constant:
    """A factor that is always 1."""

    def factor(self, step: int, total: int, steps_per_epoch: int) -> float:
        """Return 1."""
        return 1.0


@dataclass(frozen=True)
class LinearDecay:
    """A factor that falls linearly from 1 at the first update to 0 after the last (ortiz2021)."""

    def factor(self, step: int, total: int, steps_per_epoch: int) -> float:
        """Return 1 - step / total."""
        return 1.0 - step / total


@dataclass(frozen=True)
class Steps:
    """A factor that is multiplied by ``factor_each`` every ``every`` epochs (samarin2022: /10 every 30 epochs)."""

    every: int = 30
    factor_each: float = 0.1

    def __post_init__(self) -> None:
        if self.every < 1 or self.factor_each <= 0:
            raise TangentError(
                f"Steps(every={self.every}, factor_each={self.factor_each}) makes no schedule.",
                remedy="Use a whole number of epochs and a positive factor.",
            )

    def factor(self, step: int, total: int, steps_per_epoch: int) -> float:
        """Return factor_each ** (epoch // every)."""
        return float(self.factor_each ** (step // steps_per_epoch // self.every))


@dataclass(frozen=True)
class OneCycle:
    """A factor that rises along half a cosine to 1 in the first ``warmup`` of the steps, then falls along another.

    The factors of ``torch.optim.lr_scheduler.OneCycleLR`` with cosine annealing, of which ``lr`` is the maximum.
    Momentum is not changed.

    Attributes:
        warmup: Fraction of all steps in which the factor rises.
        start: Factor of the first step.
        end: Factor of the last step.
    """

    warmup: float = 0.3
    start: float = 1 / 25
    end: float = 1 / 25e4

    def __post_init__(self) -> None:
        if not 0 <= self.warmup <= 1:
            raise TangentError(f"warmup={self.warmup} is not a fraction of the steps.", remedy="Use 0.3.")

    def factor(self, step: int, total: int, steps_per_epoch: int) -> float:
        """Return the value of half cosines from ``start`` to 1 and from 1 to ``end``."""
        peak = self.warmup * total - 1
        if step <= peak:
            return _half_cosine(self.start, 1.0, step / peak if peak > 0 else 1.0)
        rest = total - 1 - peak
        return _half_cosine(1.0, self.end, (step - peak) / rest if rest > 0 else 1.0)


def _half_cosine(begin: float, end: float, fraction: float) -> float:
    return end + (begin - end) / 2 * (1 + math.cos(math.pi * fraction))
