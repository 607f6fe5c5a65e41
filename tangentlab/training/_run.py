"""A training run in progress: updates, what is measured on the way, and the state that checkpoints hold."""

import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab._progress import Ticker
from tangentlab.training._callback import CallbackLike
from tangentlab.training._divergence import DivergenceError
from tangentlab.training._fingerprint import fingerprint
from tangentlab.training._measure import answer, distances, evaluate, outputs_on
from tangentlab.training._memory_format import LONG, MemoryFormat, fastest, lay_out
from tangentlab.training._record import Record, keep
from tangentlab.training._result import TrainingResult
from tangentlab.training._run_checkpoints import RunCheckpoints
from tangentlab.training._samples import IndexedSamples, order, steps_per_epoch
from tangentlab.training._spec import TrainingSpec

_SECONDS_BETWEEN_NOTES = 0.2


class Run:
    """A run in progress."""

    def __init__(
        self,
        model: nn.Module,
        train: IndexedSamples,
        test: IndexedSamples | None,
        spec: TrainingSpec,
        watch: Tensor | None,
        callbacks: Sequence[CallbackLike],
    ) -> None:
        self.model, self.train, self.test, self.spec = model, train, test, spec
        self.watch, self.callbacks = watch, callbacks
        names = [callback.name for callback in callbacks]
        if len({*names}) < len(names):
            raise TangentError(
                f"Two callbacks have one name; there are {', '.join(names)}.",
                why="Their values are kept by name.",
                remedy="Give each a name of its own.",
            )
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        if not self.parameters:
            raise TangentError("The model has no parameters to train.", remedy="Set requires_grad on some.")
        self.start = [p.detach().clone() for p in self.parameters]
        self.optimizer = spec.optimizer.build(self.parameters)
        self.per_epoch = steps_per_epoch(len(train), spec.batch_size, spec.drop_last)
        self.total = self.per_epoch * spec.epochs
        self.record = Record(reached={loss: {"minibatch": -1, "train": -1} for loss in spec.thresholds})
        self.step = 0
        self.seconds_before, self.began = 0.0, time.monotonic()
        self.checkpoints: RunCheckpoints | None = None
        self.resumed_at: int | None = None
        self.memory_format = "contiguous"
        self.modes = [(module, module.training) for module in model.modules()]

    def restore_modes(self) -> None:
        for module, mode in self.modes:
            module.training = mode

    # Checkpoints

    def resume(self, discard: bool) -> None:
        """Resume from the folder's last checkpoint, if there is one, or discard those that are there."""
        assert self.checkpoints is not None
        torch.manual_seed(self.spec.seed)  # or a data set with random transforms would be another one at every call
        identity = fingerprint(self.model, self.train, self.test, self.spec, self.watch)
        self.checkpoints.open(identity, self.restore, discard)

    def restore(self, state: dict[str, Any]) -> None:
        """Restore model, optimizer, record and generators from a checkpoint."""
        self.model.load_state_dict(state["model"])
        for name, buffer in self.model.named_buffers():
            if name in state["other buffers"]:
                buffer.copy_(state["other buffers"][name])
        self.optimizer.load_state_dict(state["optimizer"])
        self.record = Record.restore(state["record"])
        self.memory_format = state.get("memory format", "contiguous")
        self.step = self.resumed_at = state["step"]
        self.seconds_before = state["seconds"]
        torch.set_rng_state(state["generators"][0])
        for device, generator in enumerate(state["generators"][1:]):
            torch.cuda.set_rng_state(generator, device)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds, unless the weights are not finite."""
        if not all(bool(torch.isfinite(p).all()) for p in self.parameters):
            self.diverged("the weights are not finite")
        model = self.model.state_dict()
        cuda = torch.cuda.get_rng_state_all() if any(p.is_cuda for p in self.parameters) else []
        return {
            "step": self.step,
            "memory format": self.memory_format,
            "model": model,
            "other buffers": {name: b for name, b in self.model.named_buffers() if name not in model},
            "optimizer": self.optimizer.state_dict(),
            "generators": [torch.get_rng_state(), *cuda],
            "record": self.record.state(),
            "seconds": self.seconds(),
        }

    def save_if_due(self) -> None:
        if self.checkpoints is not None and self.checkpoints.due(self.step, self.per_epoch, self.total):
            self.checkpoints.save(self.state())

    def seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.began

    def lay_out(self, wanted: MemoryFormat) -> None:
        """Put the network into the memory format that is wanted, or of the checkpoint that the run resumed from."""
        if self.resumed_at is None and wanted != "fastest":
            self.memory_format = wanted
        elif self.resumed_at is None and self.total >= LONG:
            first = order(len(self.train), self.spec.batch_size, self.spec.drop_last, self.spec.seed, 0)[0]
            self.memory_format = fastest(self.model, *self.train.at_epoch(0).batch(first), self.spec.loss)
        if self.memory_format != "contiguous":
            lay_out(self.model, self.memory_format)

    # Training

    def go(self, tick: Ticker) -> None:
        """Make all remaining updates."""
        noted, since, count = 0.0, time.monotonic(), 0
        while self.step < self.total:
            epoch, position = divmod(self.step, self.per_epoch)
            batches = order(len(self.train), self.spec.batch_size, self.spec.drop_last, self.spec.seed, epoch)
            samples = self.train.at_epoch(epoch)
            self.model.train()
            for indices in batches[position:]:
                loss = self.update(*samples.batch(indices))
                count += 1
                if time.monotonic() - noted > _SECONDS_BETWEEN_NOTES:
                    noted = time.monotonic()
                    rate = count / (noted - since)
                    tick(1, f"epoch {epoch + 1}/{self.spec.epochs}, loss {loss:.4g}, {rate:.3g} updates/s")
                else:
                    tick(1)
                every = self.spec.watch_every
                if every is not None and self.watch is not None and self.step % every == 0:
                    self.look()
                if self.step % self.per_epoch == 0:
                    self.measure(epoch + 1)
                self.save_if_due()

    def update(self, inputs: Any, targets: Tensor) -> float:
        """Make one update from one minibatch. Return its loss."""
        rate = self.rate()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        outputs = answer(self.model, inputs)
        targets = targets.to(outputs.device)
        if self.step < self.per_epoch:  # every sample once; the evaluation may leave some out
            self.spec.loss.check(outputs.detach(), targets)
        loss = self.spec.loss.per_sample(outputs, targets).mean()
        value = float(loss.detach())
        if value - value != 0:  # infinite or NaN
            self.diverged(f"the loss of the next minibatch is {value}")
        loss.backward()
        grads = [p.grad for p in self.parameters if p.grad is not None]
        norm = float(torch.nn.utils.get_total_norm(grads))
        if norm - norm != 0:
            self.diverged(f"the norm of the next gradient is {norm}")
        if self.spec.optimizer.decay_to == "start" and self.spec.optimizer.weight_decay:
            self.pull_to_start()
        self.optimizer.step()
        self.record.update(self.step, value, norm, rate)
        self.step += 1
        return value

    def rate(self) -> float:
        factor = self.spec.schedule.factor(min(self.step, self.total - 1), self.total, self.per_epoch)
        return float(self.spec.optimizer.lr * factor)

    def pull_to_start(self) -> None:
        with torch.no_grad():
            for parameter, start in zip(self.parameters, self.start, strict=True):
                if parameter.grad is not None:
                    parameter.grad.add_(parameter - start, alpha=self.spec.optimizer.weight_decay)

    # Measuring

    def measure(self, epoch: int) -> None:
        """Record what is due after ``epoch`` epochs: a row of the history, watched outputs, callbacks."""
        spec = self.spec
        with torch.random.fork_rng([p.device.index or 0 for p in self.parameters[:1] if p.is_cuda]):
            if epoch % spec.evaluate_every == 0 or epoch == spec.epochs:
                self.evaluate(epoch)
                if self.watch is not None and spec.watch_every is None:
                    self.look()
            if epoch == 0 and self.watch is not None and spec.watch_every is not None:
                self.look()
            self.call_back(epoch)
        self.model.train()

    def call_back(self, epoch: int) -> None:
        """Call the callbacks that are due after ``epoch`` epochs and have not been called for that epoch."""
        for callback in self.callbacks:
            values = self.record.values.setdefault(callback.name, {})
            if callback.due(epoch, self.spec.epochs) and epoch not in values:
                self.model.eval()
                value = callback.function(self.model, epoch)
                values[epoch] = keep(value, callback.name, self.model, storable=self.checkpoints is not None)

    def catch_up(self) -> None:
        """Call the callbacks due now that the interrupted run did not have, and name those due earlier."""
        epoch, position = divmod(self.step, self.per_epoch)
        if position == 0:
            with torch.random.fork_rng([p.device.index or 0 for p in self.parameters[:1] if p.is_cuda]):
                self.call_back(epoch)
        for callback in self.callbacks:
            values = self.record.values.get(callback.name, {})
            missed = [e for e in range(epoch + 1) if callback.due(e, self.spec.epochs) and e not in values]
            if missed:
                warnings.warn(
                    f"Callback {callback.name!r} has no value for the epochs {missed}: they were trained without it.",
                    stacklevel=3,
                )

    def evaluate(self, epoch: int) -> None:
        spec = self.spec
        row: dict[str, float] = {"epoch": epoch, "step": self.step, "lr": self.rate()}
        counts = {"train": (self.train, spec.evaluate_on), "test": (self.test, None)}
        for name, (samples, count) in counts.items():
            if samples is not None and count != 0:
                score = evaluate(
                    self.model,
                    samples,
                    spec.loss,
                    batch_size=spec.evaluation_batch_size,
                    count=count,
                    check=epoch == 0,
                )
                row[f"{name}_loss"], row[f"{name}_accuracy"] = score.loss, score.accuracy
        row["distance_l2"], row["distance_cosine"] = distances(self.parameters, self.start)
        row["seconds"] = self.seconds()
        train_loss = row.get("train_loss", 0.0)
        if train_loss - train_loss != 0:
            self.diverged(f"the training loss is {train_loss}")
        self.record.row(self.step, row)

    def look(self) -> None:
        assert self.watch is not None
        if not self.record.watched_steps or self.record.watched_steps[-1] != self.step:
            self.record.watched_steps.append(self.step)
            self.record.watched.append(outputs_on(self.model, self.watch))

    def diverged(self, reason: str) -> None:
        """Stop the run."""
        last = self.record.losses[-1] if self.record.losses else float("nan")
        kept, path = self.checkpoints, self.checkpoint
        raise DivergenceError(
            f"Training diverged after {self.step} of {self.total} updates (epoch {self.step // self.per_epoch + 1}): "
            f"{reason}. The last finite loss of a minibatch was {last:.4g}."
            + (f" The checkpoint after {kept.saved_at} updates is kept, {path}." if kept and path else ""),
            why="The steps are too large for the curvature of the loss, or the inputs or targets are not finite.",
            remedy=f"Lower the learning rate (it is {self.rate():.3g}); for squared loss GradientFlow tells the "
            "largest stable one.",
            step=self.step,
            checkpoint=path,
            history=self.record.history(),
        )

    @property
    def checkpoint(self) -> Path | None:
        """The last checkpoint."""
        return None if self.checkpoints is None else self.checkpoints.last

    def result(self) -> TrainingResult:
        record = self.record
        return TrainingResult(
            model=self.model,
            spec=self.spec,
            history=record.history(),
            steps=record.steps(),
            iterations_to=record.iterations_to(),
            watched_steps=record.watched_steps,
            watched=torch.stack(record.watched) if record.watched else None,
            values=record.values,
            resumed_at=self.resumed_at,
            checkpoint=self.checkpoint,
            memory_format=self.memory_format,
        )
