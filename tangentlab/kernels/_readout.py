"""Readouts: the linear map on a network's outputs that is applied before differentiating.

With outputs f(x) in R^O and a readout Q in R^(O x R), the kernel is that of Q^T f:

    K[n, r, m, s] = sum_{o,p} Q[o, r] Q[p, s] <d f_o(x_n)/d theta, d f_p(x_m)/d theta>

No division is hidden: ``"full"``, an int and ``"trace"`` are plain sums over parameters (and, for the trace, over
outputs: divide by O yourself for the mean); ``"pntk"`` divides by O because its Q is ones / sqrt(O).
"""

from dataclasses import dataclass
from numbers import Integral
from typing import Literal

import torch
from torch import Tensor

from tangentlab._errors import TangentError

Reduction = Literal["none", "squeeze", "trace", "per_class"]
ReadoutLike = str | int | Tensor
_NAMES = ("full", "pntk", "trace", "per_class")


@dataclass(frozen=True)
class Readout:
    """A readout bound to a network with a known number of outputs.

    Attributes:
        matrix: Q, of shape (O, R), or None for the identity.
        outputs: O.
        reduction: What happens to the two R axes: kept ("none"), both of length one and dropped ("squeeze"), summed
            over their diagonal ("trace"), or only their diagonal kept, as a leading axis ("per_class").
    """

    matrix: Tensor | None
    outputs: int
    reduction: Reduction

    @property
    def size(self) -> int:
        """R, the number of functions of a sample that are differentiated."""
        return self.outputs if self.matrix is None else self.matrix.shape[1]

    def __call__(self, outputs: Tensor) -> Tensor:
        """Compute Q^T f for a batch: (B, O) to (B, R)."""
        return outputs if self.matrix is None else outputs @ self.matrix.to(outputs)

    def shape(self, n1: int, n2: int) -> tuple[int, ...]:
        """Return the shape of the kernel of n1 against n2 samples."""
        if self.reduction == "none":
            return (n1, self.size, n2, self.size)
        return (self.size, n1, n2) if self.reduction == "per_class" else (n1, n2)


def make_readout(spec: ReadoutLike, outputs: int) -> Readout:
    """Return the readout that a user asked for.

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
            "A readout selects the combinations of outputs that are differentiated.",
            f"Pass one of {', '.join(map(repr, _NAMES))}, an int, or a tensor of shape (outputs, R).",
        )
    if isinstance(spec, Tensor):
        return Readout(_checked(spec, outputs), outputs, "none")
    if isinstance(spec, int):
        if not -outputs <= spec < outputs:
            raise TangentError(
                f"The readout {spec} asks for an output that does not exist.",
                f"The model has {outputs} outputs, numbered 0 to {outputs - 1}.",
                "Pass an index in that range.",
            )
        column = torch.zeros(outputs, 1)
        column[spec] = 1
        return Readout(column, outputs, "squeeze")
    if spec == "full":
        return Readout(None, outputs, "none")
    if spec == "pntk":
        return Readout(torch.full((outputs, 1), 1.0, dtype=torch.float64) / outputs**0.5, outputs, "squeeze")
    if spec == "trace":
        return Readout(None, outputs, "trace")
    if spec == "per_class":
        return Readout(None, outputs, "per_class")
    raise TangentError(
        f"There is no readout {spec!r}.",
        "A readout selects the combinations of outputs that are differentiated.",
        f"Pass one of {', '.join(map(repr, _NAMES))}, an int, or a tensor of shape (outputs, R).",
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
