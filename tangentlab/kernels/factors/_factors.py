"""The factors of some samples, from which their kernel is computed."""

from collections.abc import Container, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tangentlab.kernels.factors._base import Factor
from tangentlab.kernels.factors._total import Total

Key = tuple[str, int]
"""A layer, and the position of a factor among those kept for it (0 for gradients written out)."""


@dataclass
class Factors:
    """The factors of some samples: one for all gradients written out, and one for each compact group.

    Attributes:
        parts: By layer and number. If layers are not kept apart, gradients written out are under the layer "".
    """

    parts: dict[Key, Factor]

    @property
    def count(self) -> int:
        """The number of samples."""
        return next(iter(self.parts.values())).count

    @property
    def readouts(self) -> int:
        """The number R of readouts."""
        return next(iter(self.parts.values())).readouts

    def cast(self, dtype: torch.dtype) -> "Factors":
        """Return them in another precision."""
        return Factors({key: part.cast(dtype) for key, part in self.parts.items()})

    def layers(self) -> dict[str, "Factors"]:
        """Return the same factors, separately for each layer."""
        names = dict.fromkeys(layer for layer, _ in self.parts)
        return {name: self.only({key for key in self.parts if key[0] == name}) for name in names}

    def only(self, keys: Container[Key]) -> "Factors":
        """Return some of the factors."""
        return Factors({key: part for key, part in self.parts.items() if key in keys})

    def __getitem__(self, rows: slice) -> "Factors":
        return Factors({key: part[rows] for key, part in self.parts.items()})

    def take(self, samples: Sequence[int]) -> "Factors":
        """Return those of some samples."""
        return Factors({key: part.map(lambda tensor: tensor[list(samples)]) for key, part in self.parts.items()})

    def select(self, readout: int) -> "Factors":
        """Return those of one readout."""
        return Factors({key: part.select(readout) for key, part in self.parts.items()})

    def merged(self) -> "Factors":
        """Return those whose kernel is the trace over the readouts."""
        return Factors({key: part.merged() for key, part in self.parts.items()})

    def add_gram(self, other: "Factors", out: Tensor) -> None:
        """Add the kernel of these samples with others to ``out``, (n1 R, n2 R)."""
        total = Total(out)
        for key, part in self.parts.items():
            part.add_gram(other.parts[key], total)
        total.finish()

    def diagonal(self) -> Tensor:
        """Return the kernel's blocks on the diagonal, (n, R, R)."""
        first, *others = self.parts.values()
        total = Total(first.diagonal())
        for part in others:
            total.room().add_(part.diagonal())
        return total.finish()
