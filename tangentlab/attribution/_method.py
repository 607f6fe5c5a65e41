"""The interface of a method of attribution."""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

from tangentlab.attribution._request import Request


class Part(NamedTuple):
    """What one checkpoint contributes.

    Attributes:
        scores: (M, N).
        weights: (N,) factors of the training samples, averaged over checkpoints before they are applied; or None.
    """

    scores: Tensor
    weights: Tensor | None = None


@dataclass(frozen=True)
class Method(ABC):
    """A method of attribution: scores of training samples for each test sample, positive where a sample helps.

    Attributes:
        name: The name in :func:`attribute` and on the command line.
    """

    name: ClassVar[str]

    @abstractmethod
    def part(self, model: nn.Module, request: Request, number: int, scratch: Path | None) -> Part:
        """Compute the contribution of one checkpoint.

        Args:
            model: The network with the weights of the checkpoint.
            request: Samples and options.
            number: The number of the checkpoint.
            scratch: A folder for intermediate results that a rerun finds again; None for memory.
        """

    def coefficients(self, count: int) -> list[float]:
        """Return the factor of each of ``count`` checkpoints: their mean, unless a method has other ones."""
        return [1 / count] * count

    def describe(self) -> dict[str, Any]:
        """Return plain values that distinguish two methods."""
        return {"name": self.name, **{key: _plain(value) for key, value in asdict(self).items()}}


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return getattr(value, "__qualname__", type(value).__name__)
