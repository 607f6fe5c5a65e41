"""The disentanglement error of two task vectors (Ortiz-Jimenez et al. 2023)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab._html import card
from tangentlab.finetune._moved import Moved
from tangentlab.finetune._task_vector import TaskVector

Distance = Callable[[Tensor, Tensor], Tensor]


def different_predictions(one: Tensor, two: Tensor) -> Tensor:
    """Return whether two outputs (N, O) predict different classes, (N,); with one output, whether signs differ.

    Cost: one pass over the 2 N O numbers.

    Examples:
        >>> import torch
        >>> from tangentlab import finetune
        >>> one, two = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])
        >>> finetune.different_predictions(one, two).tolist()
        [0.0, 1.0]

    See also:
        :func:`tangentlab.finetune.disentanglement_error`.
    """
    one, two = one.reshape(len(one), -1), two.reshape(len(two), -1)
    if one.shape[1] == 1:
        return ((one > 0) != (two > 0))[:, 0].double()
    return (one.argmax(1) != two.argmax(1)).double()


@dataclass(frozen=True)
class Disentanglement:
    r"""The disentanglement error over a grid of scales.

    Attributes:
        names: The names of the two tasks.
        scales: (A,) the scales of both vectors.
        errors: (A, A) :math:`\xi(\alpha_1, \alpha_2)`, rows over the first task's scale.
        by_task: (2, A, A) the terms of the sum: how much each task's samples are affected by the other vector.
    """

    names: tuple[str, str]
    scales: Tensor
    errors: Tensor
    by_task: Tensor

    @property
    def mean(self) -> float:
        """The mean over the grid."""
        return float(self.errors.mean())

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per point of the grid: the two scales, the error, and its two terms."""
        one, two = np.meshgrid(self.scales.numpy(), self.scales.numpy(), indexing="ij")
        columns = {f"scale of {self.names[0]}": one, f"scale of {self.names[1]}": two, "error": self.errors.numpy()}
        columns |= {f"error on {name}": part.numpy() for name, part in zip(self.names, self.by_task, strict=True)}
        return pd.DataFrame({name: values.ravel() for name, values in columns.items()})

    def __str__(self) -> str:
        return (
            f"disentanglement error of {self.names[0]} and {self.names[1]}: mean {self.mean:.4g}, largest "
            f"{float(self.errors.max()):.4g}, over {len(self.scales)} x {len(self.scales)} scales"
        )

    def _repr_html_(self) -> str:
        facts = {"tasks": " and ".join(self.names), "mean": self.mean, "largest": float(self.errors.max())}
        return card("Disentanglement error", facts)


def disentanglement_error(
    model: nn.Module,
    tasks: Mapping[str, tuple[TaskVector, Any]],
    scales: Sequence[float] | Tensor | None = None,
    *,
    distance: Distance = different_predictions,
) -> Disentanglement:
    r"""Compute how much two task vectors interfere, over a grid of their scales:

    .. math:: \xi(\alpha_1, \alpha_2) = \sum_{t=1}^{2} E_{x \sim \mu_t}\,[\,\mathrm{dist}(f(x; \theta_0 + \alpha_t
        \tau_t),\; f(x; \theta_0 + \alpha_1 \tau_1 + \alpha_2 \tau_2))\,]

    (Ortiz-Jimenez et al. 2023, section 4). It is between 0 and 2 for the default distance, whether the predicted
    classes differ. Zero means that a vector changes nothing on the other task's samples.

    Cost: for A scales, A (A + 1) evaluations of each task's samples; of a linearized model, one for each vector.

    Args:
        model: The network or linearized model at theta_0. A linearized model is evaluated once per vector, whatever
            the number of scales; a network A^2 + A times on each task's samples, for A scales.
        tasks: Two tasks by name, each a task vector and samples of the task: a tensor of inputs, or data with targets,
            which are not used.
        scales: The A scales of both vectors; by default 13 from -3 to 3, the range of the paper.
        distance: A function of two tensors of outputs (N, ...) that returns one number per sample.

    Raises:
        TangentError: There are not two tasks, or a vector does not belong to the model.

    Examples:
        >>> import torch
        >>> from tangentlab import finetune
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> tasks = {}
        >>> for name in ("one", "two"):
        ...     moved = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        ...     tasks[name] = finetune.TaskVector.between(network, moved), torch.randn(6, 4)
        ...
        >>> type(finetune.disentanglement_error(network, tasks, [0.0, 1.0])).__name__
        'Disentanglement'

    See also:
        :func:`tangentlab.finetune.addition`, :func:`tangentlab.plot.disentanglement`.
    """
    if len(tasks) != 2:
        raise TangentError(
            f"There are {len(tasks)} tasks.",
            why="The grid has one axis for each of two.",
            remedy="Pass pairs of tasks.",
        )
    grid = torch.as_tensor(np.linspace(-3, 3, 13) if scales is None else scales, dtype=torch.float64).flatten()
    vectors = [vector for vector, _ in tasks.values()]
    parts = []
    for task, (_, samples) in enumerate(tasks.values()):
        outputs = Moved(model, vectors, samples)
        alone = [outputs([float(a) if i == task else 0.0 for i in range(2)]) for a in grid]
        rows = [
            [distance(alone[(i, j)[task]], outputs([float(a), float(b)])).double().mean() for j, b in enumerate(grid)]
            for i, a in enumerate(grid)
        ]
        parts.append(torch.stack([torch.stack(row) for row in rows]).cpu())
    by_task = torch.stack(parts)
    first, second = tasks
    return Disentanglement((first, second), grid, by_task.sum(0), by_task)
