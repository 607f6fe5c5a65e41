"""Attribution by exact leave-one-out of kernel regression."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab.attribution._method import Method, Part
from tangentlab.attribution._request import Request
from tangentlab.attribution._surrogate import Surrogate, check_ridge, explained_output, fit


@dataclass(frozen=True)
class Exact(Method):
    r"""Exact leave-one-out of kernel regression with the network's kernel, without fitting anything again.

    With :math:`B = (K + \rho)^{-1}` and :math:`A = B Y`, the regression without training sample n gives

    .. math:: f(x) - f_{-n}(x) = K(x, X)\, B_{:, n} \, B_{nn}^{-1} A_n

    (for the full kernel, B_nn is the O x O block of sample n). For classes, Y is one-hot and the score is this change
    of the output of the test sample's class; for numbers it is :math:`\frac12 |f_{-n}(x) - y|^2 - \frac12 |f(x)-y|^2`.
    Either is positive where the sample helps.

    Attributes:
        readout: ``"pntk"``, the pseudo-NTK (N, N), or ``"full"``, the kernel of all outputs (N, O, N, O).
        ridge: rho, or ``"loo"`` for the ridge with the smallest leave-one-out error on the training samples.

    Cost per checkpoint: the kernel, one eigendecomposition (about 10 n^3 operations, n = N or N O; n^3 for a given
    ridge) and 2 M n^2.
    Memory: about 40 n^2 bytes.
    """

    name: ClassVar[str] = "exact"
    readout: Any = "pntk"
    ridge: float | str = "loo"

    def __post_init__(self) -> None:
        check_ridge(self.ridge)
        if self.readout not in ("pntk", "full"):
            raise TangentError(f"There is no regression with readout {self.readout!r}.", "", "Choose pntk or full.")

    def part(self, model: nn.Module, request: Request, number: int, scratch: Path | None) -> Part:
        """Compute the changes at one checkpoint."""
        surrogate = fit(model, request, self.readout, self.ridge)
        output = explained_output(request.test, surrogate)
        if output is not None:
            return Part(_changes(surrogate, output))
        gap = surrogate.predict() - request.test.columns
        scores = torch.zeros(len(request.test), len(request.train), dtype=torch.float64)
        for number in range(surrogate.outputs):  # |f - d - y|^2 - |f - y|^2 = d^2 - 2 d (f - y), summed over outputs
            change = _changes(surrogate, torch.full((len(request.test),), number))
            scores += change * (change / 2 - gap[:, number : number + 1])
        return Part(scores)


def _changes(surrogate: Surrogate, output: Tensor) -> Tensor:
    """Compute f - f_-n of one output of each test sample, (M, N)."""
    count, functions = surrogate.inverse.shape[:2]
    own = surrogate.inverse[torch.arange(count), :, torch.arange(count)]
    left_out = torch.linalg.solve(own, surrogate.coefficients)  # B_nn^-1 A_n, (N, L, C): the left-out residuals
    size = count * functions
    rows = surrogate.rows(surrogate.cross, output).reshape(-1, size) @ surrogate.inverse.reshape(size, size)
    return (rows.view(-1, count, functions) * surrogate.columns(left_out, output)).sum(2)
