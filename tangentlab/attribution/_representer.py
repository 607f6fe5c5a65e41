"""Attribution by the representer decomposition of kernel regression."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from tangentlab._errors import TangentError
from tangentlab.attribution._exact import Exact
from tangentlab.attribution._method import Method, Part
from tangentlab.attribution._request import Request
from tangentlab.attribution._surrogate import explained_output, fit


@dataclass(frozen=True)
class Representer(Method):
    r"""Coefficient times kernel: the exact terms of the prediction of kernel regression with the network's kernel.

    .. math:: f_y(x) = \sum_n \tau(x)_n, \qquad \tau(x)_n = \sum_o K_{y,o}(x, x_n)\, A_{n,o}, \qquad
        A = (K + \rho)^{-1} Y

    (representer points, Yeh et al. 2018, with the whole network's kernel in place of the last layer's). The scores of a
    test sample add up to the regression's output for its class. A term says what a sample contributes to the fitted
    function, not what would change without it: the others would take over a part, which ``Exact`` counts.

    Attributes:
        readout: ``"pntk"`` or ``"full"``.
        ridge: rho, or ``"loo"`` for the ridge with the smallest leave-one-out error on the training samples.

    Cost and memory as for ``Exact``.
    """

    name: ClassVar[str] = "representer"
    readout: Any = "pntk"
    ridge: float | str = "loo"

    def __post_init__(self) -> None:
        Exact(self.readout, self.ridge)

    def part(self, model: nn.Module, request: Request, number: int, scratch: Path | None) -> Part:
        """Compute the terms at one checkpoint."""
        surrogate = fit(model, request, self.readout, self.ridge)
        output = explained_output(request.test, surrogate)
        if output is None:
            if surrogate.outputs != 1:
                raise TangentError(
                    f"The targets are {surrogate.outputs} numbers per sample.",
                    "The method explains one output of each test sample.",
                    "Pass one column of the targets, or use method='exact'.",
                )
            output = torch.zeros(len(request.test), dtype=torch.int64)
        rows = surrogate.rows(surrogate.cross, output)
        return Part((rows * surrogate.columns(surrogate.coefficients, output)).sum(2))
