"""Accuracies of a network whose weights are moved along task vectors."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import nn

from tangentlab._errors import TangentError
from tangentlab.finetune._moved import Moved
from tangentlab.finetune._task_vector import TaskVector
from tangentlab.training import Loss


class Accuracy:
    """The accuracy on samples as a function of the scales of task vectors."""

    def __init__(self, model: nn.Module, vectors: Sequence[TaskVector], data: Any, loss: Loss) -> None:
        self._outputs, self._loss = Moved(model, vectors, data), loss
        if self._outputs.targets is None:
            raise TangentError("The samples have no targets.", remedy="Pass (inputs, targets).")
        self._loss.check(self._outputs([0.0] * len(vectors)), self._outputs.targets)

    def __call__(self, scales: Sequence[float]) -> float:
        outputs = self._outputs(scales)
        targets = self._outputs.targets
        assert targets is not None
        return float(self._loss.correct(outputs, targets.to(outputs.device)).double().mean())


class Accuracies:
    """Accuracies on several tasks, each for its own vector and for the sum of all."""

    def __init__(
        self, model: nn.Module, vectors: Mapping[str, TaskVector], data: Mapping[str, Any], loss: Loss
    ) -> None:
        total = sum(vectors.values())
        assert isinstance(total, TaskVector)
        self._sum = {name: Accuracy(model, [total], data[name], loss) for name in vectors}
        own = {name: Accuracy(model, [vector], data[name], loss) for name, vector in vectors.items()}
        self.alone = {name: accuracy([1.0]) for name, accuracy in own.items()}
        self.base = {name: accuracy([0.0]) for name, accuracy in own.items()}

    def row(self, scale: float) -> dict[str, float]:
        """Compute the accuracy on each task, its mean, and the mean relative to each task's own model."""
        found = {name: accuracy([float(scale)]) for name, accuracy in self._sum.items()}
        shares = [found[name] / self.alone[name] if self.alone[name] else float("nan") for name in found]
        return {**found, "absolute": float(np.mean(list(found.values()))), "normalized": float(np.mean(shares))}
