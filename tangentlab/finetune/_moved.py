"""Outputs of one model at many points theta0 + sum_t alpha_t tau_t."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab._copying import copy_model
from tangentlab._errors import TangentError
from tangentlab.finetune._task_vector import TaskVector
from tangentlab.linearized import Linearized
from tangentlab.training.internal import IndexedSamples, answer

_BATCH = 512


class Moved:
    """The outputs of a model on fixed samples, as a function of the scales of task vectors.

    A linearized model is evaluated once per vector, at a cost of about three forward passes; its outputs at any scales
    are then f + sum_t alpha_t J tau_t. A network is evaluated anew at every point.

    Args:
        model: The network or linearized model at the base point. It is not changed.
        vectors: The task vectors tau_t.
        data: The samples, in any form that :func:`tangentlab.training.train` takes, or a tensor of inputs.
    """

    def __init__(self, model: nn.Module, vectors: Sequence[TaskVector], data: Any) -> None:
        for vector in vectors:
            vector.check(model)
        linear = isinstance(model, Linearized)
        self.vectors = vectors
        self._model = copy.deepcopy(model) if linear else copy_model(model).eval()
        self._start = {name: t.detach().clone() for name, t in self._named()}
        self._batches: list[Any]
        if isinstance(data, Tensor):
            self._batches, self.targets = list(data.split(_BATCH)), None
        else:
            pairs = list(IndexedSamples(data).batches(_BATCH))
            self._batches, self.targets = [x for x, _ in pairs], torch.cat([y for _, y in pairs])
        self._base: Tensor | None = None
        self._steps: list[Tensor] = []
        if linear:
            self._base = self._outputs()
            self._steps = [self._at([float(i == t) for i in range(len(vectors))]) - self._base for t in self._indices()]

    def __call__(self, scales: Sequence[float]) -> Tensor:
        """Compute the outputs at theta0 + sum_t scales[t] tau_t, (N, ...)."""
        if len(scales) != len(self.vectors):
            raise TangentError(
                f"There are {len(self.vectors)} vectors, and {len(scales)} scales.", remedy="Match them."
            )
        if self._base is None:
            return self._at(scales)
        return torch.stack([a * step for a, step in zip(scales, self._steps, strict=True)]).sum(0) + self._base

    def _indices(self) -> range:
        return range(len(self.vectors))

    def _named(self) -> list[tuple[str, Tensor]]:
        return [*self._model.named_parameters(), *self._model.named_buffers()]

    def _at(self, scales: Sequence[float]) -> Tensor:
        with torch.no_grad():
            for name, tensor in self._named():
                tensor.copy_(self._start[name])
        for vector, scale in zip(self.vectors, scales, strict=True):
            if scale:
                vector.move(self._model, float(scale))
        return self._outputs()

    def _outputs(self) -> Tensor:
        with torch.no_grad():
            return torch.cat([answer(self._model, batch) for batch in self._batches])
