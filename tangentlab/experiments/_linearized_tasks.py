"""Linearized models of one network on several tasks, trained as one: a unit of work."""

import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, TypedDict, TypeVar

import torch
from torch import Tensor

from tangentlab.data import Examples
from tangentlab.experiments._context import Context
from tangentlab.experiments._parts import LabeledImages, Model
from tangentlab.experiments._training import Training, TrainingOutcome, outcome
from tangentlab.experiments._work import UnitOfWork
from tangentlab.linearized import LinearizedTasks
from tangentlab.training import DivergenceError, Loss, TaskSum, TrainingSpec, train

Place = TypeVar("Place", bound=Hashable)


class TasksOutcome(TypedDict):
    """The outcome of each task, as of a :class:`Training` with one evaluation, at the end."""

    outcomes: list[TrainingOutcome]


@dataclass(frozen=True)
class TasksTraining(UnitOfWork[TasksOutcome]):
    """The linearization of a network trained on several tasks, which share the passes at the initial weights.

    Each outcome is that of ``Training(model, problem, spec, "linearized")`` up to rounding. If one task diverges, all
    are trained one by one.

    Attributes:
        model: The network, whose seed decides the initial weights.
        problems: The tasks, on the same images.
        spec: The run of each.
    """

    shown_as: ClassVar[str] = "training {model.name} x{model.width:g} (linearized, several tasks)"
    model: Model
    problems: tuple[LabeledImages, ...]
    spec: TrainingSpec

    def compute(self, context: Context) -> TasksOutcome:
        """Train all tasks as one module, then measure each."""
        begin = time.monotonic()
        loaded = [problem.load(context) for problem in self.problems]
        tasks = LinearizedTasks(self.model.build(), len(loaded)).to(context.device)
        splits = [
            getattr(loaded[0], name).with_targets(
                torch.cat([getattr(data, name).targets.reshape(-1, 1) for data in loaded], 1)
            )
            for name in ("train", "test")
        ]
        try:
            train(
                tasks,
                splits[0],
                replace(self.spec, loss=TaskSum(self.spec.loss), evaluate_on=0, evaluate_every=self.spec.epochs),
                folder=str(context.cache.scratch(self)),
                progress=context.settings.progress,
                title=self.title,
            )
        except DivergenceError:
            alone = [Training(self.model, problem, self.spec, "linearized") for problem in self.problems]
            return {"outcomes": [work.compute(context) for work in alone]}
        updates = self.spec.epochs * _updates(len(splits[0]), self.spec)
        scores = [_scores(tasks, split, self.spec) for split in splits]
        seconds = (time.monotonic() - begin) / len(loaded)
        return {"outcomes": [self._outcome(tasks, t, scores, updates, seconds) for t in range(len(loaded))]}

    def _outcome(
        self, tasks: LinearizedTasks, task: int, scores: list[dict[str, Tensor]], updates: int, seconds: float
    ) -> TrainingOutcome:
        base, moved = tasks.base(), tasks.displacement(task)
        weights = torch.cat([w.double().flatten() for w in base.values()])
        change = torch.cat([moved[name].double().flatten() for name in base])
        row = {"epoch": float(self.spec.epochs), "step": float(updates)}
        for name, score in zip(("train", "test"), scores, strict=True):
            row |= {f"{name}_{what}": float(values[task]) for what, values in score.items()}
        row["distance_l2"] = float(change.norm())
        row["distance_cosine"] = 1 - float(torch.nn.functional.cosine_similarity(weights + change, weights, 0))
        row["seconds"] = seconds
        result = outcome({name: [value] for name, value in row.items()}, "finished", self.spec.optimizer.lr)
        result["reached"] = {
            "loss": list(self.spec.thresholds),
            "minibatch": [None] * len(self.spec.thresholds),
            "train": [updates if row["train_loss"] <= loss else None for loss in self.spec.thresholds],
        }
        return result


def together(
    trainings: Mapping[Place, Training],
) -> tuple[dict[Place, tuple[TasksTraining, int]], dict[Place, Training]]:
    """Return linearized runs that differ in their task alone as a unit and a place in it; and all other runs."""
    groups: dict[tuple[Model, TrainingSpec, object], list[Place]] = {}
    for place, run in trainings.items():
        if run.form == "linearized" and not run.keep and not run.watch and isinstance(run.problem, LabeledImages):
            groups.setdefault((run.model, run.spec, run.problem.images), []).append(place)
    shared: dict[Place, tuple[TasksTraining, int]] = {}
    for (model, spec, _), places in groups.items():
        if len(places) > 1:
            problems = tuple(trainings[place].problem for place in places)
            unit = TasksTraining(model, problems, spec)  # type: ignore[arg-type]
            shared |= {place: (unit, number) for number, place in enumerate(places)}
    return shared, {place: run for place, run in trainings.items() if place not in shared}


def _updates(samples: int, spec: TrainingSpec) -> int:
    size = min(spec.batch_size or samples, samples)
    return samples // size if spec.drop_last else -(-samples // size)


def _scores(tasks: LinearizedTasks, split: Examples, spec: TrainingSpec) -> dict[str, Tensor]:
    """Compute mean loss and accuracy of each task on a split, (T,)."""
    loss: Loss = spec.loss
    sums = {"loss": torch.zeros(tasks.tasks, dtype=torch.float64)}
    sums["accuracy"] = torch.zeros_like(sums["loss"])
    device = tasks.displacements[0].device
    with torch.no_grad():
        for start in range(0, len(split), spec.evaluation_batch_size):
            inputs, targets = split.batch(torch.arange(start, min(start + spec.evaluation_batch_size, len(split))))
            outputs = tasks(inputs.to(device)).cpu()
            for task in range(tasks.tasks):
                pair = outputs[:, task : task + 1], targets[:, task : task + 1]
                sums["loss"][task] += loss.per_sample(*pair).double().sum()
                sums["accuracy"][task] += loss.correct(*pair).double().sum()
    return {name: total / len(split) for name, total in sums.items()}
