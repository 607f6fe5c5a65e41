"""The interface of the forms that a posterior's kernel can have."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from tangentlab.posterior._likelihood import Curvature
from tangentlab.posterior._tangent import Tangent

Scope = Literal["none", "blocks", "joint"]
"""Which covariances of new samples are wanted: none, of a sample's outputs with each other, or of all."""


@dataclass(frozen=True)
class Displacement:
    """A displacement u of the weights, seen on the training samples.

    Attributes:
        coefficients: What the form predicts new samples from.
        values: J u on the training samples, (N, O).
        norm: |u|^2.
    """

    coefficients: Tensor
    values: Tensor
    norm: float


class Form(ABC):
    r"""The kernel K = J J^T of the training samples, and the inverse that the posterior needs.

    With the curvature W = S S^T and a ridge rho, everything follows from

    .. math:: M = S\,(\rho + S^T K S)^{-1} S^T

    - the reduction of the kernel of new samples, K** - K* M K*^T;
    - the Newton step: the displacement u = J^T a with a = (b - M K b) / rho, for which J u = K a;
    - the determinant det(1 + S^T K S / rho).

    Attributes:
        name: The method, as :attr:`Posterior.method` says it.
        tangent: The network.
        samples: N.
        outputs: O.
    """

    name: str
    exact = True
    """Whether the kernel's own posterior is computed, up to rounding."""

    def __init__(self, tangent: Tangent, samples: int, outputs: int) -> None:
        self.tangent, self.samples, self.outputs = tangent, samples, outputs

    @abstractmethod
    def weigh(self, curvature: Curvature, many: bool) -> None:
        """Take the curvature at some outputs; ``many`` ridges will follow, or one."""

    @abstractmethod
    def at(self, ridge: float) -> None:
        """Choose the ridge."""

    @abstractmethod
    def displacement(self, right: Tensor) -> Displacement:
        """Compute the Newton step for b, (N, O)."""

    @abstractmethod
    def combine(self, one: Displacement, two: Displacement, share: float) -> Displacement:
        """Return (1 - share) one + share two."""

    @abstractmethod
    def log_determinant(self) -> float:
        """Compute log det(1 + S^T K S / rho)."""

    @abstractmethod
    def new(self, x: Any, coefficients: Tensor | None, scope: Scope) -> tuple[Tensor | None, Tensor | None]:
        """Compute at new samples the change J u of the outputs, (M, O), and the reduced kernel K** - K* M K*^T.

        The kernel is (M, O, O) for ``"blocks"``, (M, O, M, O) for ``"joint"``.
        """

    @abstractmethod
    def scale(self) -> float:
        """Return the mean of the kernel's diagonal."""

    @abstractmethod
    def forget(self) -> None:
        """Remove what only other ridges, new weights and displacements need."""

    @abstractmethod
    def chunk(self) -> int:
        """Return how many new samples are best asked for at once."""

    @abstractmethod
    def describe(self) -> str:
        """Describe in a few words what is computed how."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return tensors and numbers from which the form can be restored for predictions."""


def blocks_of(joint: Tensor) -> Tensor:
    """Return the blocks (M, O, O) of each sample with itself from (M, O, M, O)."""
    return joint.diagonal(dim1=0, dim2=2).permute(2, 0, 1)


def rows_within(numbers_per_row: int, numbers: int = 2**25) -> int:
    """Return how many rows of so many numbers stay below a limit, at least one."""
    return max(1, numbers // max(1, numbers_per_row))
