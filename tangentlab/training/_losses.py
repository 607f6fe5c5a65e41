"""Losses, each with its own normalization and its own definition of a correct prediction."""

from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from tangentlab._deprecated import renamed_arguments
from tangentlab._errors import TangentError


class Loss(Protocol):
    """A loss: the mean over samples of :meth:`per_sample`."""

    def per_sample(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Compute the loss of each sample, (N,)."""
        ...

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return whether each sample is classified correctly, (N,)."""
        ...

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        """Refuse outputs or targets that do not fit this loss."""
        ...


@dataclass(frozen=True)
class SigmoidCrossEntropy:
    """The loss of binary tasks on one logit (ortiz2021): log(1 + exp(-s z)), with s = +1 or -1 the side of the sample.

    Outputs (N, 1) or (N,). Targets (N,) or (N, 1): -1 and 1, or 0 and 1, of any type. A sample is right if the sign
    of its logit is; a logit of exactly 0 counts as the negative side.
    """

    def per_sample(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Compute log(1 + exp(-s z)), (N,)."""
        logits = _column(outputs)
        return F.binary_cross_entropy_with_logits(logits, (_column(targets) > 0).to(logits), reduction="none")

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return whether the sign is right, (N,)."""
        return (_column(outputs) > 0) == (_column(targets) > 0)

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        """Refuse outputs other than one logit per sample, and targets of other than two values."""
        if outputs.ndim > 2 or (outputs.ndim == 2 and outputs.shape[1] != 1):
            raise TangentError(
                f"Sigmoid cross-entropy takes one logit per sample; the model gives outputs {tuple(outputs.shape)}.",
                remedy="Build the model with outputs=1, or use SoftmaxCrossEntropy.",
            )
        values = set(torch.unique(targets.detach().double()).tolist())
        if not (values <= {-1.0, 1.0} or values <= {0.0, 1.0}) or targets.numel() != len(outputs):
            raise TangentError(
                f"Sigmoid cross-entropy takes one target per sample, -1 or 1, or 0 or 1; these are "
                f"{tuple(targets.shape)} with values {_some(values)}.",
                remedy="Make the task binary, for example with tangentlab.tasks.binary.",
            )


@dataclass(frozen=True)
class SoftmaxCrossEntropy:
    """The loss of classification on L logits: -log softmax(z)_y. Outputs (N, L), targets (N,) class indices."""

    def per_sample(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Compute -log softmax(z)_y, (N,)."""
        return F.cross_entropy(outputs, targets.long(), reduction="none")

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return whether the largest logit is that of the class, (N,)."""
        return outputs.argmax(1) == targets

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        """Refuse fewer than two logits, and targets that are not class indices among them."""
        if outputs.ndim != 2 or outputs.shape[1] < 2:
            raise TangentError(
                f"Softmax cross-entropy takes outputs (N, L) with L > 1, not {tuple(outputs.shape)}.",
                remedy="Use SigmoidCrossEntropy for one logit.",
            )
        _check_classes(outputs, targets)


@renamed_arguments(normalisation="normalization")
@dataclass(frozen=True)
class Squared:
    """The squared loss, on one-hot targets if the targets are class indices (samarin2022).

    Outputs (N, L) or (N,). Targets (N,) class numbers (integers), for which the loss makes one-hot vectors, or
    floating-point targets in the shape of the outputs. A sample is right if the largest output is at the largest
    target; with one output, if output and target are on the same side of ``threshold``.

    Attributes:
        normalization: The squared error of a sample. ``"mean"``: the mean over its L outputs, as
            ``torch.nn.MSELoss``; ``"sum"``: the sum, |f - y|^2, as in samarin2022, equation 3; ``"half"``: half the
            sum, for which gradient flow reads df/dt = -K (f - y) / N.
        threshold: Divides the two sides of a single output.
    """

    normalization: Literal["mean", "sum", "half"] = field(default="mean", metadata={"stored_as": "normalisation"})
    threshold: float = 0.0

    def __post_init__(self) -> None:
        if self.normalization not in ("mean", "sum", "half"):
            raise TangentError(
                f"There is no normalization {self.normalization!r}.", remedy="Use 'mean', 'sum' or 'half'."
            )

    def per_sample(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Compute the normalized squared error, (N,)."""
        outputs = outputs.reshape(len(outputs), -1)
        error = (outputs - self._vectors(outputs, targets)).square()
        if self.normalization == "mean":
            return error.mean(1)
        return error.sum(1) * (0.5 if self.normalization == "half" else 1.0)

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return whether the argmax or the side is right, (N,)."""
        outputs = outputs.reshape(len(outputs), -1)
        vectors = self._vectors(outputs, targets)
        if outputs.shape[1] == 1:
            return ((outputs > self.threshold) == (vectors > self.threshold))[:, 0]
        return outputs.argmax(1) == vectors.argmax(1)

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        """Refuse class indices beyond the outputs, and targets of another shape."""
        if targets.is_floating_point():
            if targets.numel() != outputs.numel():
                raise TangentError(
                    f"Targets {tuple(targets.shape)} do not fit outputs {tuple(outputs.shape)}.",
                    remedy="Give targets in the shape of the outputs, or class numbers as integers.",
                )
        elif outputs.ndim != 2 or outputs.shape[1] < 2:
            raise TangentError(
                f"Class numbers become one-hot vectors, and the model gives outputs {tuple(outputs.shape)}.",
                remedy="Build the model with one output per class, or pass floating-point targets such as -1 and 1.",
            )
        else:
            _check_classes(outputs, targets)

    def scale(self, samples: int, outputs: int) -> float:
        """Return the factor c for which this loss is c * sum_n ||f(x_n) - y_n||^2 / 2, as :class:`GradientFlow` takes
        it."""
        return {"mean": 2.0 / outputs, "sum": 2.0, "half": 1.0}[self.normalization] / samples

    @staticmethod
    def _vectors(outputs: Tensor, targets: Tensor) -> Tensor:
        if targets.is_floating_point():
            return targets.reshape(outputs.shape).to(outputs)
        return F.one_hot(targets.long(), outputs.shape[1]).to(outputs)


@dataclass(frozen=True)
class TaskSum:
    """The sum over tasks of one loss: outputs and targets (N, T), a column per task.

    For a :class:`tangentlab.linearized.LinearizedTasks`, whose tasks have weights of their own: each is trained as by
    ``loss`` alone. A sample is right if it is in every task.

    Attributes:
        loss: The loss of each task, on outputs (N, 1).
    """

    loss: Loss

    def per_sample(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Compute the sum of the losses of a sample, (N,)."""
        return torch.stack([self.loss.per_sample(*pair) for pair in self._tasks(outputs, targets)]).sum(0)

    def correct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return whether each sample is right in every task, (N,)."""
        return torch.stack([self.loss.correct(*pair) for pair in self._tasks(outputs, targets)]).all(0)

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        """Refuse outputs or targets that do not fit the loss, and different numbers of tasks."""
        if outputs.ndim != 2 or targets.shape != outputs.shape:
            raise TangentError(
                f"Outputs {tuple(outputs.shape)} and targets {tuple(targets.shape)} are not (N, T) of T tasks.",
                remedy="Give one column of targets per task.",
            )
        for pair in self._tasks(outputs, targets):
            self.loss.check(*pair)

    @staticmethod
    def _tasks(outputs: Tensor, targets: Tensor) -> list[tuple[Tensor, Tensor]]:
        return list(zip(outputs.split(1, 1), targets.split(1, 1), strict=True))


def _column(values: Tensor) -> Tensor:
    return values.reshape(len(values))


def _check_classes(outputs: Tensor, targets: Tensor) -> None:
    if targets.is_floating_point() or targets.shape != outputs.shape[:1]:
        raise TangentError(
            f"Class numbers must be integers of shape ({len(outputs)},), not {targets.dtype} {tuple(targets.shape)}.",
            remedy="Give labels as int64.",
        )
    if len(targets) and not 0 <= int(targets.min()) <= int(targets.max()) < outputs.shape[1]:
        raise TangentError(
            f"Classes {int(targets.min())} to {int(targets.max())} do not fit {outputs.shape[1]} outputs.",
            remedy="Build the model with one output per class.",
        )


def _some(values: set[float]) -> str:
    shown = ", ".join(f"{value:g}" for value in sorted(values)[:6])
    return shown + (", ..." if len(values) > 6 else "")
