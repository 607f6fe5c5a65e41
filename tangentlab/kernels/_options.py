"""The options of a kernel as one value."""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab.kernels._network import ParametersLike
from tangentlab.kernels._readout import SAMPLE_READOUTS, ReadoutLike, takes_targets


@dataclass(frozen=True)
class Options:
    """The options of a kernel besides model and samples; see :func:`tangentlab.ntk` for each.

    Attributes:
        readout: What is differentiated.
        parameters: Which parameters count.
        output: Takes the tensor of outputs from what the model returns.
        input: Takes the model's input from an item of a Dataset or a batch of a DataLoader.
        dtype: Precision to compute in.
        device: Where to compute.
        batch_size: Samples per forward pass.
        memory_budget: Bytes for the result and everything on the way to it.
        check: Whether a few samples are compared with plain differentiation.
        progress: Whether a progress bar is shown; None for "on a terminal".
        targets: One target per sample, for readouts that take them; a pair for two sets of samples.
    """

    readout: ReadoutLike = "full"
    parameters: ParametersLike = None
    output: Callable[[Any], Tensor] | None = None
    input: Callable[[Any], Any] | None = None
    dtype: torch.dtype | None = None
    device: torch.device | str | None = None
    batch_size: int | None = None
    memory_budget: int | float | str | None = None
    check: bool = True
    progress: bool | None = None
    targets: Any = None

    def __post_init__(self) -> None:
        if self.targets is not None and not takes_targets(self.readout):
            raise TangentError(
                f"targets= was passed with the readout {self.readout!r}."
                if isinstance(self.readout, (str, int))
                else "targets= was passed with a readout matrix.",
                "It is a linear map of the outputs, which does not depend on targets.",
                f"Leave targets out, or pass a readout that takes them: {', '.join(map(repr, SAMPLE_READOUTS))} or a "
                "function.",
            )
        size = self.batch_size
        if size is None:
            return
        if not isinstance(size, Integral) or isinstance(size, bool) or size < 1:
            raise TangentError(f"batch_size is {size!r}.", "", "Pass a positive int, or None for automatic.")
        object.__setattr__(self, "batch_size", int(size))

    def refuse_readouts(self, names: tuple[str, ...], what: str, why: str, remedy: str) -> None:
        """Refuse the readouts that a function does not support.

        Raises:
            TangentError: The readout is one of ``names``.
        """
        if isinstance(self.readout, str) and self.readout in names:
            raise TangentError(f"{what} has no readout {self.readout!r}.", why, remedy)
