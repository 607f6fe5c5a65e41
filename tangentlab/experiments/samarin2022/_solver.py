"""The minimum-norm solution of the linearized problem as a unit of work."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, TypedDict

import torch
from torch import Tensor

from tangentlab import linalg
from tangentlab.experiments._context import Context
from tangentlab.experiments._kernels import gram
from tangentlab.experiments._parts import LabeledImages, Weights, inputs
from tangentlab.experiments._work import UnitOfWork
from tangentlab.kernels import ntk

TARGETS = (0.0, 1.0)
DECOMPOSED = 16_384
"""Points up to which :func:`tangentlab.linalg.regress` decomposes a singular kernel."""


class SolverOutcome(TypedDict):
    """The method of the solution, and the accuracy of its predictions."""

    rank: int | None
    method: str
    residual: float
    ridge: float
    train_accuracy: float
    test_accuracy: float


@dataclass(frozen=True)
class Solver(UnitOfWork[SolverOutcome]):
    """The minimum-norm solution of y - f0 = J u by the dual: K a = y - f0, f(x) = f0(x) + K(x, X) a.

    Attributes:
        weights: The network at initialization.
        problem: Both splits.
        size: The first so many training points; None for all.
        ridge: In units of eps tr K, where there are too many points for a decomposition; None for sqrt(n).
        double: Whether the kernel is computed in float64.

    The result: ``train_accuracy``, ``test_accuracy``, ``rank``, ``method``, ``ridge`` and
    ``residual``.
    """

    shown_as: ClassVar[str] = "solver, {weights.model.name} x{weights.model.width:g}"
    weights: Weights
    problem: LabeledImages
    size: int | None = None
    ridge: float | None = None
    double: bool = True

    def compute(self, context: Context) -> SolverOutcome:
        """Compute the kernel, the solution and its predictions on both splits."""
        data = self.problem.load(context)
        dtype = torch.float64 if self.double else torch.float32
        network = self.weights.build(context, dtype)
        x = inputs(data, "train", self.size).to(context.device, dtype)
        x_test = inputs(data, "test").to(context.device, dtype)
        targets = data.train.targets[: len(x)].double()
        progress = context.settings.progress
        with torch.no_grad():
            start, start_test = (
                torch.cat([network(part) for part in each.split(512)]).double() for each in (x, x_test)
            )
        kernel = gram(self, context, network, x, 0)
        fit = self._solve(kernel, targets.to(start.device), start, progress)
        fitted = start + linalg.as_source(kernel).accurate_product(fit.coefficients)
        del kernel
        cross = ntk(network, x_test, x, readout=0, progress=progress)
        return {
            "rank": fit.rank,
            "method": str(fit.method),
            "residual": float(fit.residual),
            "ridge": float(fit.ridge),
            "train_accuracy": _accuracy(fitted, targets),
            "test_accuracy": _accuracy(fit.predict(cross, f0=start_test), data.test.targets),
        }

    def _solve(self, kernel: Any, targets: Tensor, start: Tensor, progress: bool | None) -> linalg.Regression:
        """Solve without ridge while a singular kernel can be decomposed, and with a ridge above that size: that a
        kernel of 60,000 points is singular is known only when most of its factor is computed."""
        n, ridge = len(targets), 0.0
        if n > DECOMPOSED:
            level = math.sqrt(n) if self.ridge is None else self.ridge
            ridge = level * torch.finfo(torch.float64).eps * float(linalg.as_source(kernel).diagonal().sum())
        return linalg.regress(kernel, targets, f0=start, ridge=ridge, progress=progress)


def _accuracy(outputs: Tensor, targets: Tensor) -> float:
    """Return the fraction of outputs on the targets' side of the middle."""
    middle = sum(TARGETS) / 2
    return float(((outputs.cpu().reshape(-1) > middle) == (targets.reshape(-1) > middle)).double().mean())
