"""Attribution by inner products of loss gradients."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab.attribution._checks import check_number
from tangentlab.attribution._method import Method, Part
from tangentlab.attribution._request import Request, Side
from tangentlab.kernels import ntk


@dataclass(frozen=True)
class Gradient(Method):
    r"""Inner products of loss gradients: how much a small step on a training sample lowers the loss of a test sample.

    .. math:: \tau(x)_n = \sum_c \eta_c \,
        \langle \nabla_\theta \ell(x; \theta_c), \nabla_\theta \ell(x_n; \theta_c) \rangle

    With checkpoints along one training run and the learning rates eta_c at them, this is TracIn (Pruthi et al. 2020).
    Without ``rates``, eta_c = 1 / (number of checkpoints). With ``cosine``, gradients are divided by their norms, so
    that samples with a large loss do not dominate all others.

    Attributes:
        cosine: Whether to divide by the norms of both gradients.
        rates: eta_c, one per checkpoint; None for their mean.
        readout: The loss: ``"loss"``, ``"next_token"`` for a language model, or any readout with one number per sample.

    Cost: one forward and one backward pass per sample and checkpoint, and the kernel between test and training samples.
    Memory: the (M, N) scores and the factors of all samples within the memory budget.
    """

    name: ClassVar[str] = "gradient"
    cosine: bool = False
    rates: Sequence[float] | None = None
    readout: Any = "loss"

    def __post_init__(self) -> None:
        if self.rates is not None:
            rates = tuple(check_number("a rate", rate, 0) for rate in self.rates)
            object.__setattr__(self, "rates", rates)

    def coefficients(self, count: int) -> list[float]:
        """Return eta_c."""
        if self.rates is None:
            return super().coefficients(count)
        if len(self.rates) != count:
            raise TangentError(
                f"There are {count} checkpoints and {len(self.rates)} rates.",
                remedy="Pass the learning rate at each checkpoint.",
            )
        return list(self.rates)

    def part(self, model: nn.Module, request: Request, number: int, scratch: Path | None) -> Part:
        """Compute the inner products at one checkpoint."""
        test, train = request.test, request.train
        named = request.arguments(test, train, readout=self.readout)
        scores = ntk(model, test.data, train.data, **named)
        if scores.ndim != 2:
            raise TangentError(
                f"The readout {self.readout!r} has {scores.shape[1]} numbers per sample.",
                "A score is the inner product of two gradients.",
                "Choose one with readout=INDEX, or a function that returns one number.",
            )
        if self.cosine:
            scores /= self._norms(model, request, test)[:, None]
            scores /= self._norms(model, request, train)[None]
        return Part(scores)

    def _norms(self, model: nn.Module, request: Request, side: Side) -> Tensor:
        """Compute the norms of the gradients, (N,); a gradient of zero has no direction, and its cosines are zero."""
        squares: Tensor = ntk(model, side.data, diagonal=True, **request.arguments(side, readout=self.readout))
        return squares.sqrt().clamp(min=1e-30)
