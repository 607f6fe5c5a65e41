"""Readouts: the functions of a sample that are differentiated, as they are bound to a network.

A linear readout is a map Q in R^(O x R) on the outputs f(x) in R^O, the same for every sample:

    K[n, r, m, s] = sum_{o,p} Q[o, r] Q[p, s] <d f_o(x_n)/d theta, d f_p(x_m)/d theta>

No division is hidden: ``"full"``, an int and ``"trace"`` are plain sums over parameters (and, for the trace, over
outputs: divide by O yourself for the mean); ``"pntk"`` divides by O because its Q is ones / sqrt(O). Functions of a
sample's outputs and its target are in :mod:`tangentlab.kernels._sample_readout`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal, TypeGuard

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._suggestions import did_you_mean
from tangentlab.kernels._inputs import Batch

Reduction = Literal["none", "squeeze", "trace", "per_class"]
SampleFunction = Callable[[Tensor, Any], Tensor]
"""From the outputs of one sample, in the shape that the network gives them, and its target to one or R numbers."""
ReadoutLike = str | int | Tensor | SampleFunction
SAMPLE_READOUTS = ("loss", "margin", "label", "next_token")
"""Names of functions of a sample's outputs and its target."""
_LINEAR = ("full", "pntk", "trace", "per_class")
_WHY = "A readout is what is differentiated: combinations of outputs, or a function of outputs and target."
_REMEDY = (
    f"Pass one of {', '.join(map(repr, _LINEAR + SAMPLE_READOUTS))}, an int, a tensor of shape (outputs, R), or a "
    "function of one sample's outputs and its target."
)


def takes_targets(spec: Any) -> TypeGuard[str | SampleFunction]:
    """Return whether a readout is a function of a sample's outputs and its target, not a linear map."""
    return spec in SAMPLE_READOUTS if isinstance(spec, str) else callable(spec)


class Readout(ABC):
    """A readout bound to a network whose outputs are known.

    Attributes:
        reduction: What happens to the two R axes: kept ("none"), both of length one and dropped ("squeeze"), summed
            over their diagonal ("trace"), or only their diagonal kept, as a leading axis ("per_class").
    """

    reduction: Reduction

    @property
    @abstractmethod
    def size(self) -> int:
        """R, the number of functions of a sample that are differentiated."""

    @abstractmethod
    def __call__(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Compute the readouts of a batch, (B, R), from its outputs (B, ...)."""

    def refuse_targets(self, targets: Any) -> None:
        """Refuse targets, of all samples at once, that the readout cannot be computed from."""
        return

    def working_bytes(self, outputs: Tensor) -> int:
        """Return the memory per sample that the readout takes besides the outputs and their gradients."""
        return 0

    def shape(self, n1: int, n2: int) -> tuple[int, ...]:
        """Return the shape of the kernel of n1 against n2 samples."""
        if self.reduction == "none":
            return (n1, self.size, n2, self.size)
        return (self.size, n1, n2) if self.reduction == "per_class" else (n1, n2)


@dataclass(frozen=True)
class LinearReadout(Readout):
    """A linear map on the outputs.

    Attributes:
        matrix: Q, of shape (O, R), or None for the identity.
        outputs: O.
        reduction: See :class:`Readout`.
    """

    matrix: Tensor | None
    outputs: int
    reduction: Reduction

    @property
    def size(self) -> int:
        """R, the number of columns of Q."""
        return self.outputs if self.matrix is None else self.matrix.shape[1]

    def __call__(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Compute Q^T f for a batch, axes of the outputs after the first flattened.

        Raises:
            TangentError: The network gives another number of outputs than before.
        """
        outputs = outputs.flatten(1)
        if outputs.shape[1] != self.outputs:
            raise TangentError(
                f"The model gave {self.outputs} outputs per sample and now gives {outputs.shape[1]}.",
                "A kernel needs the same functions for every sample.",
                "Pad the inputs to one length, or pass output= to pool over positions.",
            )
        return outputs if self.matrix is None else outputs @ self.matrix.to(outputs)


def linear_readout(spec: ReadoutLike, outputs: int) -> Readout:
    """Return the linear readout that a user asked for.

    Args:
        spec: ``"full"``: all outputs, kernel (N1, O, N2, O). ``"pntk"``: sum of logits / sqrt(O), (N1, N2). An int k:
            the k-th output (negative counts from the end), (N1, N2). A tensor (O, R): those combinations,
            (N1, R, N2, R). ``"trace"``: sum over o of the full kernel at (o, o), (N1, N2). ``"per_class"``: one
            kernel per output, (O, N1, N2).
        outputs: O.

    Raises:
        TangentError: An unknown name, an index out of range, a matrix that does not fit.
    """
    if isinstance(spec, Integral) and not isinstance(spec, bool):
        spec = int(spec)
    if isinstance(spec, bool) or not isinstance(spec, (str, int, Tensor)):
        raise TangentError(
            f"The readout is of type {type(spec).__name__}.",
            _WHY,
            _REMEDY,
        )
    if isinstance(spec, Tensor):
        return LinearReadout(_checked(spec, outputs), outputs, "none")
    if isinstance(spec, int):
        if not -outputs <= spec < outputs:
            raise TangentError(
                f"The readout {spec} asks for an output that does not exist.",
                f"The model has {outputs} outputs, numbered 0 to {outputs - 1}.",
                "Pass an index in that range.",
            )
        column = torch.zeros(outputs, 1)
        column[spec] = 1
        return LinearReadout(column, outputs, "squeeze")
    if spec == "full":
        return LinearReadout(None, outputs, "none")
    if spec == "pntk":
        return LinearReadout(torch.full((outputs, 1), 1.0, dtype=torch.float64) / outputs**0.5, outputs, "squeeze")
    if spec == "trace":
        return LinearReadout(None, outputs, "trace")
    if spec == "per_class":
        return LinearReadout(None, outputs, "per_class")
    raise TangentError(
        f"There is no readout {spec!r}.",
        _WHY,
        did_you_mean(spec, _LINEAR + SAMPLE_READOUTS) + _REMEDY,
    )


def _checked(matrix: Tensor, outputs: int) -> Tensor:
    if matrix.ndim != 2 or matrix.shape[0] != outputs or matrix.shape[1] == 0 or matrix.is_complex():
        raise TangentError(
            f"The readout matrix is {str(matrix.dtype).removeprefix('torch.')} {tuple(matrix.shape)}.",
            f"The model has {outputs} outputs, so it must be real of shape ({outputs}, R) with R at least 1.",
            "Write readout[:, None] for one combination of outputs."
            if matrix.ndim == 1
            else "Pass one column per combination of outputs; transpose the matrix if it is (R, outputs).",
        )
    if not torch.isfinite(matrix).all():
        raise TangentError(
            "The readout matrix holds NaN or infinite values.",
            "The kernel would hold them, too.",
            "Pass a finite matrix.",
        )
    return matrix.detach() if matrix.is_floating_point() else matrix.detach().to(torch.float64)
