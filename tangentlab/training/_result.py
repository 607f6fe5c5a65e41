"""The result of a training run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor, nn

from tangentlab._html import card
from tangentlab.training._spec import TrainingSpec


@dataclass(frozen=True)
class TrainingResult:
    """A finished run.

    Attributes:
        model: The trained model, the same object that was passed in.
        spec: The run's spec.
        history: One row per evaluation, the first before any update. Columns ``epoch`` and ``step`` (updates made),
            ``lr`` (of the next update), ``train_loss``, ``train_accuracy``, ``test_loss``, ``test_accuracy``,
            ``distance_l2`` and ``distance_cosine`` (of the trained weights to the start), ``seconds`` (of training
            and evaluation so far), ``minibatch_loss`` and ``gradient_norm`` (means over the updates since the row
            before).
        steps: One row per update: ``step``, ``lr``, ``loss`` and ``gradient_norm`` of its minibatch, before it.
        iterations_to: One row per threshold ``loss``: the number of updates made when a minibatch's loss was first at
            or below it (``minibatch``), and when the training loss first was at an evaluation (``train``).
        watched_steps: (T,) updates made at each record of the watched outputs.
        watched: (T, n, ...) outputs on the watched samples, or None.
        values: What callbacks returned, by name and epoch.
        resumed_at: Number of updates in the checkpoint from which the run resumed, or None.
        checkpoint: The last checkpoint, if the run has a folder.
        memory_format: That of the network's convolutions, ``"contiguous"`` or ``"channels_last"``.
    """

    model: nn.Module
    spec: TrainingSpec
    history: pd.DataFrame
    steps: pd.DataFrame
    iterations_to: pd.DataFrame
    watched_steps: list[int]
    watched: Tensor | None
    values: dict[str, dict[int, Any]]
    resumed_at: int | None
    checkpoint: Path | None
    memory_format: str = "contiguous"

    @property
    def final(self) -> dict[str, float]:
        """The last row of the history."""
        return dict(self.history.iloc[-1])

    def __str__(self) -> str:
        last = self.final
        parts = [f"{type(self.model).__name__} after {int(last['epoch'])} epochs, {int(last['step'])} updates"]
        for name in ("train", "test"):
            if f"{name}_loss" in last:
                loss, accuracy = last[f"{name}_loss"], last[f"{name}_accuracy"]
                parts.append(f"{name} loss {loss:.4g}, accuracy {100 * accuracy:.2f} %")
        parts.append(f"distance to start {last['distance_l2']:.4g} (cosine {last['distance_cosine']:.3g})")
        parts.append(f"{last['seconds']:.1f} s")
        return "; ".join(parts)

    def _repr_html_(self) -> str:
        return card("Training", {"run": str(self)}, self.history.tail(10).to_html(index=False, float_format="%.4g"))
