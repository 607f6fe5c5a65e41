"""A use: how one operation turns the gradient of its output into that of one of its parameters, sample by sample.

Every tensor here has been split by sample: activations are (B, *shape), gradients of the R readouts with respect to the
operation's output are (B, R, *shape), with ``shape`` as for a batch of one.
"""

from abc import ABC, abstractmethod
from collections.abc import Container, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tangentlab.kernels._layout import Layout


class Use(ABC):
    """One parameter at one operation.

    Attributes:
        shape: The parameter's shape.
    """

    shape: torch.Size

    @abstractmethod
    def gradient(self, g: Tensor) -> Tensor:
        """Per-sample gradients (B, R, *shape) of the parameter from those of the output (B, R, *)."""

    def features(self, g: Tensor) -> Tensor:
        """The same gradients as (B, R, P), their entries in any fixed order that is cheap to produce."""
        return self.gradient(g).reshape(*g.shape[:2], -1)

    @staticmethod
    def merge(uses: Sequence["Use"]) -> "Use | None":
        """Several uses of one parameter as one, or None where only their gradients can be added."""
        return uses[0] if len(uses) == 1 else None

    def join(self, grads: Sequence[Tensor]) -> Tensor:
        """What :meth:`gradient` takes for a merged use, from the output gradients of its parts."""
        return grads[0]


@dataclass(frozen=True)
class Meeting:
    """An operation's output, and where the samples lie in it.

    Attributes:
        output: The output.
        layout: Its layout.
        batch: B.
        tracked: The ``id`` of every tensor that is made of parameters alone.
    """

    output: Tensor
    layout: Layout
    batch: int
    tracked: Container[int]

    def tracks(self, value: object) -> bool:
        """Whether an operand is made of parameters alone, so that a use of it is wanted."""
        return id(value) in self.tracked

    def split(self, tensor: Tensor) -> Tensor:
        """Split by sample a tensor that has its samples where the output has them."""
        return self.layout.split(tensor.detach(), self.batch)


Uses = list[tuple[Tensor, Use]]
"""What a rule gives: each tensor that may be a parameter, with its use."""
