"""Comparison of a network with its linearizations at the start and at checkpoints, on the same minibatches."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import torch
from torch import Tensor, nn

from tangentlab._copying import copy_model
from tangentlab._errors import TangentError
from tangentlab.linearized import Linearized, linearize
from tangentlab.training._callback import Callback
from tangentlab.training._divergence import DivergenceError
from tangentlab.training._measure import place
from tangentlab.training._result import TrainingResult
from tangentlab.training._samples import IndexedSamples, splits
from tangentlab.training._spec import TrainingSpec
from tangentlab.training._train import train

Where = Literal["start", "end"] | int

# The callback that keeps the network's weights.
_SNAPSHOT = "weights to linearize at"


@dataclass(frozen=True)
class Comparison:
    """The runs of :func:`compare`.

    Attributes:
        runs: By name, ``"network"`` first. A run that diverged is absent here and has a row in the table.
        table: One row per model: its name, ``status`` ("finished", or what stopped it), the last row of its history,
            and ``iterations_to_<loss>`` for each threshold of the spec (training loss at evaluations).
    """

    runs: dict[str, TrainingResult]
    table: pd.DataFrame

    def shown(self) -> pd.DataFrame:
        """Return the columns that fit on a page."""
        columns = [
            name
            for name in self.table
            if name
            in ("status", "train_loss", "train_accuracy", "test_loss", "test_accuracy", "distance_l2", "seconds")
            or name.startswith("iterations_to")
        ]
        return self.table[columns]

    def __str__(self) -> str:
        return self.shown().to_string(float_format=lambda value: f"{value:.4g}", na_rep="-")

    def _repr_html_(self) -> str:
        return self.shown().to_html(float_format=lambda value: f"{value:.4g}", na_rep="-")


def compare(
    model: nn.Module | Callable[[], nn.Module],
    data: Any,
    spec: TrainingSpec,
    *,
    at: Sequence[Where] = ("start",),
    unbiased: bool = True,
    batch_norm: Literal["frozen", "eval"] = "frozen",
    linear_spec: TrainingSpec | None = None,
    test: Any = None,
    folder: str | os.PathLike[str] | None = None,
    watch: Tensor | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
) -> Comparison:
    """Train a network and its linearizations from the same start on the same minibatches.

        compare(network, (x, y), spec, at=("start", "end"))             # ortiz2021, figure 8

    Cost: one training (:func:`train`) of the network and of each linearization, whose steps take about 5/3 of the
    operations, and one copy of the weights per checkpoint.

    Args:
        model: The network, whose present weights are the start and which is not changed; or a function that builds
            it, called with PyTorch's generator set to ``spec.seed``.
        data: Training samples, as for :func:`train`.
        spec: The spec of all runs.
        at: Where the network is linearized: ``"start"``, and checkpoints of the network's own training given as
            numbers of epochs or ``"end"``.
        unbiased: Whether linearizations at checkpoints are of the unbiased form (theta - theta0) . grad f(theta*),
            as in ortiz2021, or start from the checkpoint's weights and outputs. The one at the start has its bias.
        batch_norm: As for :func:`tangentlab.linearize`.
        linear_spec: Another spec for the linearizations, such as one with another learning rate. Its seed must be
            the same, or the minibatches would differ.
        test: Test samples.
        folder: Folder for checkpoints, with one folder per run. An interrupted comparison resumes.
        watch: Inputs on which outputs are recorded.
        callbacks: Callbacks of every run.
        progress: As for :func:`train`.

    Returns:
        The runs, and a table of them.

    Raises:
        DivergenceError: If the network diverges before a checkpoint that a linearization needs. Other divergence is
            a row of the table.

    Examples:
        >>> import torch
        >>> from tangentlab import training
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> spec = training.TrainingSpec(epochs=2, batch_size=10, optimizer=training.SGD(0.1))
        >>> comparison = training.compare(network, (x, y), spec)
        >>> list(comparison.table.index)
        ['network', 'linearized at the start']

    See also:
        :func:`tangentlab.training.train`, :func:`tangentlab.linearize`, :func:`tangentlab.plot.history`.
    """
    linear = spec if linear_spec is None else linear_spec
    if (linear.seed, linear.batch_size, linear.drop_last) != (spec.seed, spec.batch_size, spec.drop_last):
        raise TangentError(
            "linear_spec differs from spec in seed, batch_size or drop_last.",
            why="The models are to see the same minibatches.",
            remedy="Change only the optimizer, the schedule or the epochs.",
        )
    places = [_place(where, spec.epochs) for where in dict.fromkeys(at)]
    start = model if isinstance(model, nn.Module) else _build(model, spec.seed)
    if isinstance(start, Linearized):
        raise TangentError("The model is already linearized.", remedy="Give the network.")
    at_start = linearize(start, batch_norm=batch_norm)
    _try(at_start, IndexedSamples(splits(data, test)[0]))
    snapshot = Callback(_SNAPSHOT, _weights, epochs=[epoch for epoch in places if epoch > 0])
    runner = _Runner(data, test, folder, watch, progress)
    network = runner.run("network", copy_model(start), spec, [*callbacks, snapshot] if snapshot.epochs else callbacks)
    for epoch in places:
        if epoch == 0:
            name, lin = "linearized at the start", at_start
        else:
            if network is None:
                raise runner.failures["network"]
            form = "unbiased, " if unbiased else ""
            name = f"linearized at epoch {epoch} ({form}{'end' if epoch == spec.epochs else 'checkpoint'})"
            weights = network.values[_SNAPSHOT].get(epoch)
            if weights is None:
                raise TangentError(
                    f"The network's weights after epoch {epoch} have not been kept.",
                    why="The folder holds a comparison that did not ask for them.",
                    remedy="Use another folder.",
                )
            lin = linearize(start, at=weights, bias=not unbiased, batch_norm=batch_norm)
        runner.run(name, lin, linear, callbacks)
    return Comparison(runner.results, runner.table())


class _Runner:
    """The runs of several models, one after another, with their results."""

    def __init__(self, data: Any, test: Any, folder: Any, watch: Tensor | None, progress: bool | None) -> None:
        self.common = {"test": test, "watch": watch, "progress": progress}
        self.data, self.folder = data, None if folder is None else Path(folder)
        self.results: dict[str, TrainingResult] = {}
        self.failures: dict[str, DivergenceError] = {}
        self.names: list[str] = []

    def run(
        self, name: str, model: nn.Module, spec: TrainingSpec, callbacks: Sequence[Callback]
    ) -> TrainingResult | None:
        self.names.append(name)
        below = "".join(c if c.isalnum() else "-" for c in name).strip("-")
        folder = None if self.folder is None else self.folder / below
        try:
            result = train(model, self.data, spec, folder=folder, callbacks=callbacks, title=name, **self.common)
        except DivergenceError as error:
            self.failures[name] = error
            return None
        self.results[name] = result
        return result

    def table(self) -> pd.DataFrame:
        rows = []
        for name in self.names:
            row: dict[str, Any] = {"model": name}
            if name in self.failures:
                error = self.failures[name]
                row["status"] = f"diverged after {error.step} updates"
                rows.append({**row, **({} if error.history.empty else dict(error.history.iloc[-1]))})
                continue
            result = self.results[name]
            row |= {"status": "finished", **result.final}
            for _, entry in result.iterations_to.iterrows():
                row[f"iterations_to_{entry['loss']:g}"] = entry["train"]
            rows.append(row)
        return pd.DataFrame(rows).set_index("model")


def _place(where: Where, epochs: int) -> int:
    epoch = {"start": 0, "end": epochs}.get(where, where) if isinstance(where, str) else where
    if isinstance(epoch, bool) or not isinstance(epoch, int) or not 0 <= epoch <= epochs:
        raise TangentError(
            f"The network cannot be linearized at {where!r}.",
            remedy=f"Use 'start', 'end', or a number of epochs from 0 to {epochs}.",
        )
    return epoch


def _build(build: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build()


def _try(model: Linearized, samples: IndexedSamples) -> None:
    """Call the linearization once, so that a network that cannot be linearized is refused before it is trained."""
    with torch.no_grad():
        model(place(model, samples.batch(torch.arange(1))[0]))


def _weights(model: nn.Module, epoch: int) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}
