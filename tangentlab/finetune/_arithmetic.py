"""Task arithmetic: addition and negation of task vectors (Ilharco et al. 2023, Ortiz-Jimenez et al. 2023)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from torch import nn

from tangentlab._copying import copy_model
from tangentlab._errors import TangentError
from tangentlab._html import card
from tangentlab.finetune._accuracies import Accuracies, Accuracy
from tangentlab.finetune._task_vector import TaskVector
from tangentlab.linearized import linearize
from tangentlab.training import Loss, SoftmaxCrossEntropy, TrainingSpec, train

_SCALES = tuple(np.linspace(0, 1, 21).round(2).tolist())


@dataclass(frozen=True)
class _OverScales:
    """Accuracies over a grid of scales of task vectors.

    Attributes:
        table: One row per scale alpha; the column ``scale`` and accuracies.
        base: The accuracies of theta0.
        scale: The scale that was chosen on the validation samples.
    """

    table: pd.DataFrame
    base: dict[str, float]
    scale: float

    @property
    def best(self) -> dict[str, float]:
        """The row of the chosen scale."""
        return dict(self.table[self.table["scale"] == self.scale].iloc[0])

    def _repr_html_(self) -> str:
        return card(f"{type(self).__name__} of task vectors", {"result": str(self)}, self.table.to_html(index=False))


@dataclass(frozen=True)
class Addition(_OverScales):
    """The accuracy on several tasks after their vectors were added, theta0 + alpha sum_t tau_t.

    Attributes:
        table: One row per scale alpha: ``scale``, the accuracy on each task, ``absolute`` (their mean) and
            ``normalized`` (the mean of each accuracy divided by that of the task's own model).
        base: The accuracy of theta0 on each task.
        scale: The scale that was chosen: the one with the largest normalized accuracy on the validation samples.
        alone: The accuracy of theta0 + tau_t on task t.
    """

    alone: dict[str, float]

    def __str__(self) -> str:
        best = self.best
        return (
            f"sum of {len(self.alone)} task vectors at scale {self.scale:g}: mean accuracy {best['absolute']:.2%}, "
            f"{best['normalized']:.2%} of the tasks' own models"
        )


@dataclass(frozen=True)
class Negation(_OverScales):
    """The accuracy after a task vector was subtracted, theta0 - alpha tau.

    Attributes:
        table: One row per scale alpha: ``scale``, ``target`` (accuracy on the task to forget) and ``control``.
        base: The accuracies of theta0.
        scale: The scale that was chosen: the one with the smallest target accuracy on the validation samples among
            those that keep the share ``keep`` of the control accuracy.
        keep: That share.
    """

    keep: float

    def __str__(self) -> str:
        best = self.best
        return (
            f"negation at scale {self.scale:g}: target accuracy {self.base['target']:.2%} -> {best['target']:.2%}, "
            f"control {self.base['control']:.2%} -> {best['control']:.2%}"
        )


@dataclass(frozen=True)
class TaskArithmetic:
    """Networks and linearizations fine-tuned on each task, and what their vectors do together.

    Attributes:
        vectors: The task vectors by kind of model (``"network"``, ``"linearization"``) and task.
        additions: The sum of the vectors of each kind.
        negations: For each kind and task, the vector subtracted, with another task's samples as control.
    """

    vectors: dict[str, dict[str, TaskVector]]
    additions: dict[str, Addition]
    negations: dict[str, dict[str, Negation]]

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per kind of model: accuracies of single models and of the sum."""
        rows = []
        for kind, found in self.additions.items():
            alone = float(np.mean(list(found.alone.values())))
            best = found.best
            row = {"model": kind, "alone": alone, "sum": best["absolute"], "normalized": best["normalized"]}
            rows.append({**row, "scale": found.scale})
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        lines = [f"{kind}: {found}" for kind, found in self.additions.items()]
        lines += [f"{kind}, {task}: {found}" for kind, all_ in self.negations.items() for task, found in all_.items()]
        return "\n".join(lines)


def addition(
    model: nn.Module,
    vectors: Mapping[str, TaskVector],
    test: Mapping[str, Any],
    *,
    validation: Mapping[str, Any] | None = None,
    scales: Sequence[float] = _SCALES,
    loss: Loss | None = None,
) -> Addition:
    """Add the vectors of several tasks at one scale and measure the accuracy on each task.

    Cost: for G scales, G + 4 evaluations of each sample, validation samples included; 4 by a linearized model.

    Args:
        model: The network or linearized model at theta0; the vectors must be of the same kind.
        vectors: The task vectors by task.
        test: Test samples (inputs, targets) by task.
        validation: Samples to choose the scale with; by default those of ``test``, which makes the result optimistic.
        scales: The scales alpha that are tried.
        loss: Decides which outputs are correct; by default the largest logit.

    Examples:
        >>> import torch
        >>> from tangentlab import finetune
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> vectors = {}
        >>> for task in ("one", "two"):
        ...     moved = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        ...     vectors[task] = finetune.TaskVector.between(network, moved)
        ...
        >>> test = {"one": (x, y), "two": (x, 1 - y)}
        >>> type(finetune.addition(network, vectors, test, scales=[0.0, 0.5])).__name__
        'Addition'

    See also:
        :func:`tangentlab.finetune.negation`, :func:`tangentlab.finetune.task_arithmetic`,
        :class:`tangentlab.finetune.TaskVector`.
    """
    loss = loss or SoftmaxCrossEntropy()
    _same_tasks(vectors, test, "test samples")
    _same_tasks(vectors, validation or test, "validation samples")
    one = Accuracies(model, vectors, test, loss)
    other = one if validation is None else Accuracies(model, vectors, validation, loss)
    rows, chosen = [], []
    for scale in scales:
        rows.append({"scale": float(scale), **one.row(scale)})
        chosen.append(rows[-1]["normalized"] if other is one else other.row(scale)["normalized"])
    return Addition(pd.DataFrame(rows), one.base, rows[int(np.argmax(chosen))]["scale"], one.alone)


def negation(
    model: nn.Module,
    vector: TaskVector,
    target: Any,
    control: Any,
    *,
    validation: tuple[Any, Any] | None = None,
    keep: float = 0.95,
    scales: Sequence[float] = _SCALES,
    loss: Loss | None = None,
) -> Negation:
    """Undo a task: subtract its vector, so that the model forgets it, and measure what else the model loses.

    Cost: for G scales, up to G + 3 evaluations of each sample, 2 G + 4 without ``validation``; 2 if linearized.

    Args:
        model: The network or linearized model at theta0.
        vector: The vector of the task to forget.
        target: Test samples (inputs, targets) of that task.
        control: Test samples of what is to be kept.
        validation: Target and control samples to choose the scale with; by default the test samples.
        keep: The share of the control accuracy of theta0 that must remain (0.95 in both papers).
        scales: The scales alpha that are tried; 0 is always among them.
        loss: Decides which outputs are correct; by default the largest logit.

    Examples:
        >>> import torch
        >>> from tangentlab import finetune
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> moved = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> vector = finetune.TaskVector.between(network, moved)
        >>> type(finetune.negation(network, vector, (x, y), (x, 1 - y), scales=[0.0, 0.5])).__name__
        'Negation'

    See also:
        :func:`tangentlab.finetune.addition`, :func:`tangentlab.finetune.task_arithmetic`.
    """
    if not 0 <= keep <= 1:
        raise TangentError(f"keep={keep} is not a share.", remedy="Pass a number from 0 to 1.")
    loss = loss or SoftmaxCrossEntropy()
    test = [Accuracy(model, [vector], data, loss) for data in (target, control)]
    chosen = test if validation is None else [Accuracy(model, [vector], data, loss) for data in validation]
    least = keep * chosen[1]([0.0])
    rows, best, lowest = [], 0.0, chosen[0]([0.0])
    for scale in sorted({0.0, *map(float, scales)}):
        rows.append({"scale": scale, "target": test[0]([-scale]), "control": test[1]([-scale])})
        forgotten, kept = chosen[0]([-scale]), chosen[1]([-scale])
        if kept >= least and forgotten < lowest:
            best, lowest = scale, forgotten
    first = rows[0]
    return Negation(pd.DataFrame(rows), {"target": first["target"], "control": first["control"]}, best, keep)


def task_arithmetic(
    network: nn.Module,
    tasks: Mapping[str, tuple[Any, Any, Any]],
    spec: TrainingSpec,
    *,
    linearized_spec: TrainingSpec | None = None,
    scales: Sequence[float] = _SCALES,
    keep: float = 0.95,
    progress: bool | None = None,
) -> TaskArithmetic:
    """Train a network and its linearization on each task, then add and negate their task vectors.

    Cost: one training of the network and one of its linearization per task, and evaluations of the validation samples
    at every scale.

    Args:
        network: The pretrained network theta0. It is not changed.
        tasks: For each task its training, validation and test samples. The scales are chosen on the validation samples.
        spec: The fine-tuning; its loss decides which outputs are correct.
        linearized_spec: That of the linearization, if it differs.
        scales: The scales that are tried.
        keep: The share of the control accuracy that a negation must keep; the control of a task is the next task.
        progress: Whether to show progress bars.

    Examples:
        >>> import torch
        >>> from tangentlab import finetune, training
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> tasks = {"one": ((x, y), (x, y), (x, y)), "two": ((x, 1 - y), (x, 1 - y), (x, 1 - y))}
        >>> spec = training.TrainingSpec(epochs=1, batch_size=10, optimizer=training.SGD(0.1))
        >>> type(finetune.task_arithmetic(network, tasks, spec, scales=[0.5], progress=False)).__name__
        'TaskArithmetic'

    See also:
        :func:`tangentlab.finetune.addition`, :func:`tangentlab.finetune.negation`,
        :func:`tangentlab.finetune.disentanglement_error`.
    """
    if len(tasks) < 2:
        raise TangentError(f"There are {len(tasks)} tasks.", remedy="Pass two or more, by name.")
    names, linear = list(tasks), linearize(network)
    specs = {"network": spec, "linearization": linearized_spec or spec}
    bases = {"network": network, "linearization": linear}
    vectors: dict[str, dict[str, TaskVector]] = {kind: {} for kind in specs}
    for name, (samples, *_) in tasks.items():
        tuned = train(copy_model(network), samples, specs["network"], progress=progress).model
        vectors["network"][name] = TaskVector.between(network, tuned)
        moved = train(linearize(network), samples, specs["linearization"], progress=progress).model
        vectors["linearization"][name] = TaskVector.of(moved)  # type: ignore[arg-type]
    validation, test = ({name: parts[i] for name, parts in tasks.items()} for i in (1, 2))
    additions, negations = {}, {}
    for kind, base in bases.items():
        loss = specs[kind].loss
        additions[kind] = addition(base, vectors[kind], test, validation=validation, scales=scales, loss=loss)
        negations[kind] = {
            name: negation(
                base,
                vectors[kind][name],
                test[name],
                test[other],
                validation=(validation[name], validation[other]),
                keep=keep,
                scales=scales,
                loss=loss,
            )
            for name, other in zip(names, names[1:] + names[:1], strict=True)
        }
    return TaskArithmetic(vectors, additions, negations)


def _same_tasks(vectors: Mapping[str, Any], data: Mapping[str, Any], what: str) -> None:
    if not vectors:
        raise TangentError("There are no task vectors.", remedy="Pass one or more, by name.")
    if vectors.keys() - data.keys():
        missing = ", ".join(sorted(vectors.keys() - data.keys()))
        raise TangentError(f"There are no {what} of {missing}.", remedy="Pass some for each task.")
