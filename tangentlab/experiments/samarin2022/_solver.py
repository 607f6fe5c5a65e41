"""The minimum-norm solution of the linearized problem as a unit of work."""

from dataclasses import dataclass
from typing import ClassVar, TypedDict

import torch
from torch import Tensor

from tangentlab import analysis
from tangentlab.experiments._context import Context
from tangentlab.experiments._kernels import gram
from tangentlab.experiments._parts import LabeledImages, Weights, inputs
from tangentlab.experiments._work import UnitOfWork

TARGETS = (0.0, 1.0)


class SolverOutcome(TypedDict):
    """The account of the solution, and the accuracy of its predictions.

    Attributes:
        rank: Singular values of J that were used; None where no displacement meets the targets.
        iterations: Products with J.
        residual: ||J u - (y - f0)|| / ||y - f0||.
        norm: ||u||.
        train_accuracy: On the training points.
        test_accuracy: On the test split.
    """

    rank: int | None
    iterations: int
    residual: float
    norm: float
    train_accuracy: float
    test_accuracy: float


@dataclass(frozen=True)
class Solver(UnitOfWork[SolverOutcome]):
    """The minimum-norm solution of y - f0 = J u in float64, by :func:`tangentlab.analysis.minimum_norm`.

    Attributes:
        weights: The network at initialization.
        problem: Both splits.
        size: The first so many training points; None for all.
        cutoff: Singular values of J below this share of the largest count as zero; 0 for no cutoff.
    """

    stored_as: ClassVar[str] = "LeastSquaresSolver"
    shown_as: ClassVar[str] = "solver, {weights.model.name} x{weights.model.width:g}"
    weights: Weights
    problem: LabeledImages
    size: int | None = None
    cutoff: float = 0.0

    def compute(self, context: Context) -> SolverOutcome:
        """Compute the kernel, the solution and its predictions on both splits."""
        data = self.problem.load(context)
        network = self.weights.build(context, torch.float64)
        x = inputs(data, "train", self.size).to(context.device, torch.float64)
        x_test = inputs(data, "test").to(context.device, torch.float64)
        targets = data.train.targets[: len(x)].double()
        found = analysis.minimum_norm(
            network,
            x,
            targets,
            readout=0,
            cutoff=self.cutoff or None,
            kernel=gram(self, context, network, x, 0),
            progress=context.settings.progress,
            batch_size=64,  # of 16 to 1,024 the fastest with one thread; larger batches leave the processor's caches
        )
        return {
            "rank": found.fit.rank,
            "iterations": found.fit.iterations,
            "residual": float(found.fit.residual),
            "norm": found.norm,
            "train_accuracy": _accuracy(found.predictions, targets),
            "test_accuracy": _accuracy(found.predict(x_test), data.test.targets),
        }


def _accuracy(outputs: Tensor, targets: Tensor) -> float:
    """Return the fraction of outputs on the targets' side of the middle."""
    middle = sum(TARGETS) / 2
    return float(((outputs.cpu().reshape(-1) > middle) == (targets.reshape(-1) > middle)).double().mean())
