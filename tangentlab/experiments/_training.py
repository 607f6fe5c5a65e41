"""A training run as a unit of work: a network or one of its linearizations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NotRequired, Protocol, TypedDict

import pandas as pd
from torch import Tensor, nn

from tangentlab.data import ImageData
from tangentlab.experiments._parts import Model
from tangentlab.experiments._work import UnitOfWork
from tangentlab.linearized import linearize
from tangentlab.training import Callback, DivergenceError, TrainingSpec, train

if TYPE_CHECKING:
    from tangentlab.experiments._context import Context

Form = Literal["network", "linearized", "pretrained"]
LEARNED = 0.95
"""A run that has learned something ends with less than this fraction of its first training loss."""


class Loadable(Protocol):
    """Anything that loads two splits with targets: a :class:`LabeledImages`, or a data set that is drawn."""

    def load(self, context: "Context") -> ImageData:
        """Load both splits."""
        ...


class TrainingOutcome(TypedDict):
    """The result of a run.

    Attributes:
        history: Columns of a table, with one entry per evaluation.
        status: "finished", or the reason for which it diverged.
        lr: The learning rate of the run that counts.
        seconds: Time in all processes that worked on it.
        weights: Weights by epoch, as selected by ``keep``; "-1" is the last.
        reached: Columns of a table of losses and the updates until they were reached; empty where it diverged.
        watched: Outputs on the watched samples along the way, if any; absent where it diverged.
        watched_steps: Updates after which they were recorded.
        memory_format: That of the network's convolutions, which a short measurement chose; absent where it diverged.
    """

    history: dict[str, list[float]]
    status: str
    lr: float
    seconds: float
    weights: dict[str, dict[str, Tensor]]
    reached: dict[str, list[Any]]
    watched: NotRequired[Tensor | None]
    watched_steps: NotRequired[list[int]]
    memory_format: NotRequired[str]


@dataclass(frozen=True)
class Training(UnitOfWork[TrainingOutcome]):
    """One training run. If it is interrupted, it resumes from its last checkpoint.

    Attributes:
        model: The network, whose seed decides the initial weights.
        problem: The data.
        spec: The run.
        form: ``"network"``; ``"linearized"``, f0 + J0 (theta - theta0); or ``"pretrained"``, the unbiased
            linearization J* (theta - theta0) at the solution of ``base`` (ortiz2021, figure 8).
        base: The run whose solution that is.
        keep: Epochs after which the weights are kept; -1 for the last.
        watch: How many training samples' outputs are recorded along the way.
        fallback_lr: Learning rate to start over with where the run diverges or learns nothing (mohamadi2022); None
            for none.
    """

    shown_as: ClassVar[str] = "training {model.name} x{model.width:g} ({form})"
    model: Model
    problem: Loadable
    spec: TrainingSpec
    form: Form = "network"
    base: "Training | None" = None
    keep: tuple[int, ...] = ()
    watch: int = 0
    fallback_lr: float | None = None

    def compute(self, context: "Context") -> TrainingOutcome:
        """Train, and train again with the fallback learning rate if necessary."""
        data: ImageData = self.problem.load(context)
        folder = context.cache.scratch(self)
        try:
            result = self._train(context, data, self.spec, str(folder / "first"))
            if self.fallback_lr is None or _learned(result):
                return result
        except DivergenceError as error:
            if self.fallback_lr is None:
                return _diverged(error, self.spec.optimizer.lr)
        spec = replace(self.spec, optimizer=replace(self.spec.optimizer, lr=self.fallback_lr))
        try:
            return self._train(context, data, spec, str(folder / "second"))
        except DivergenceError as error:
            return _diverged(error, self.fallback_lr)

    def _train(self, context: "Context", data: ImageData, spec: TrainingSpec, folder: str) -> TrainingOutcome:
        model = self._build(context)
        watch = data.train.inputs(range(self.watch)).to(context.device) if self.watch else None
        run = train(
            model,
            data.train,
            spec,
            test=data.test,
            folder=folder,
            watch=watch,
            callbacks=[Callback("weights", _weights, epochs=self.keep)] if self.keep else [],
            memory_format="fastest",
            progress=context.settings.progress,
            title=self.title,
        )
        kept = {str(epoch): state for epoch, state in run.values.get("weights", {}).items()}
        if str(spec.epochs) in kept:
            kept["-1"] = kept[str(spec.epochs)]
        reached = run.iterations_to.astype(object).where(run.iterations_to.notna(), None)
        result = outcome(_columns(run.history), "finished", spec.optimizer.lr)
        result["reached"] = {str(name): list(reached[name]) for name in reached}
        result["weights"] = kept
        result["watched"], result["watched_steps"] = run.watched, list(run.watched_steps)
        result["memory_format"] = run.memory_format
        return result

    def _build(self, context: "Context") -> nn.Module:
        network = self.model.build().to(context.device)
        if self.form == "network":
            return network.train()
        if self.form == "linearized":
            return linearize(network)
        assert self.base is not None
        solution = {name: value.to(context.device) for name, value in context.get(self.base)["weights"]["-1"].items()}
        return linearize(network, at=solution, bias=False)


def _learned(result: TrainingOutcome) -> bool:
    """Return whether the training loss fell. If a large first step kills all units, it stays constant."""
    losses = result["history"]["train_loss"]
    return losses[-1] < LEARNED * losses[0]


def _weights(model: nn.Module, epoch: int) -> dict[str, Tensor]:
    return {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}


def outcome(columns: dict[str, list[float]], status: str, lr: float) -> TrainingOutcome:
    """Return the outcome of a run with this history that stored no weights."""
    seconds = columns["seconds"][-1] if columns.get("seconds") else 0.0
    return {"history": columns, "status": status, "lr": float(lr), "seconds": seconds, "weights": {}, "reached": {}}


def _diverged(error: DivergenceError, lr: float) -> TrainingOutcome:
    return outcome(_columns(error.history), str(error.what), lr)


def _columns(history: pd.DataFrame) -> dict[str, list[float]]:
    return {str(name): [float(value) for value in history[name]] for name in history}


def history(result: TrainingOutcome) -> pd.DataFrame:
    """Return the history of a run's result as a table."""
    return pd.DataFrame(result["history"])


def final(result: TrainingOutcome) -> dict[str, float]:
    """Return the last row of the history; NaN throughout if the run diverged."""
    table = history(result)
    if not len(table):
        return {}
    last = {str(name): float(value) for name, value in table.iloc[-1].items()}
    return last if result["status"] == "finished" else dict.fromkeys(last, float("nan"))


def ending(result: TrainingOutcome, columns: Sequence[str]) -> dict[str, float]:
    """Return some columns of :func:`final`; NaN for a column that the run does not have."""
    last = final(result)
    return {column: last.get(column, float("nan")) for column in columns}


def summary(
    results: Mapping[tuple[Any, ...], TrainingOutcome], names: Sequence[str], columns: Sequence[str]
) -> pd.DataFrame:
    """Return one row per run: its place under ``names``, its :func:`ending`, ``status`` and ``seconds``."""
    return pd.DataFrame(
        [
            {
                **dict(zip(names, place, strict=True)),
                **ending(result, columns),
                "status": result["status"],
                "seconds": result["seconds"],
            }
            for place, result in results.items()
        ]
    )


def reached(result: TrainingOutcome, threshold: float, kind: str = "minibatch") -> float:
    """Return the number of updates until a loss was reached; NaN if it was not."""
    table = result["reached"]
    if not table:
        return float("nan")
    index = [float(value) for value in table["loss"]].index(threshold)
    value = table[kind][index]
    return float("nan") if value is None else float(value)
