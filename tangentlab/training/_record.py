"""The record of a run in progress."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab.training._spec import plain


@dataclass
class Record:
    """The record of a run, in plain values and tensors so that a checkpoint can contain it.

    Attributes:
        rows: The rows of the history.
        losses: Minibatch loss of every update.
        gradient_norms: Norm of the minibatch gradient of every update.
        rates: Learning rate of every update.
        reached: For each threshold the first iteration whose minibatch loss is at or below it, and the first
            evaluation at which the training loss is; -1 while it has not been reached.
        watched_steps: Iterations at which the watched outputs were recorded.
        watched: The outputs at those iterations.
        values: What callbacks returned, by name and epoch.
    """

    rows: list[dict[str, float]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    gradient_norms: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    reached: dict[float, dict[str, int]] = field(default_factory=dict)
    watched_steps: list[int] = field(default_factory=list)
    watched: list[Tensor] = field(default_factory=list)
    values: dict[str, dict[int, Any]] = field(default_factory=dict)

    def update(self, step: int, loss: float, gradient_norm: float, rate: float) -> None:
        """Record one update, made from the weights after ``step`` updates."""
        self.losses.append(loss)
        self.gradient_norms.append(gradient_norm)
        self.rates.append(rate)
        self._reach("minibatch", step, loss)

    def row(self, step: int, values: dict[str, float]) -> None:
        """Record one row of the history; it includes the means of loss and gradient norm over the updates since the
        last row."""
        since = int(self.rows[-1]["step"]) if self.rows else 0
        losses, norms = self.losses[since:step], self.gradient_norms[since:step]
        nan = float("nan")
        self.rows.append(
            {
                **values,
                "minibatch_loss": sum(losses) / len(losses) if losses else nan,
                "gradient_norm": sum(norms) / len(norms) if norms else nan,
            }
        )
        if "train_loss" in values:
            self._reach("train", step, values["train_loss"])

    def _reach(self, kind: str, step: int, loss: float) -> None:
        for threshold, first in self.reached.items():
            if first[kind] < 0 and loss <= threshold:
                first[kind] = step

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {
            "rows": self.rows,
            "losses": torch.tensor(self.losses, dtype=torch.float64),
            "gradient_norms": torch.tensor(self.gradient_norms, dtype=torch.float64),
            "rates": torch.tensor(self.rates, dtype=torch.float64),
            "reached": self.reached,
            "watched_steps": self.watched_steps,
            "watched": self.watched,
            "values": self.values,
        }

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> "Record":
        """Restore the state from a checkpoint."""
        columns = {name: state[name].tolist() for name in ("losses", "gradient_norms", "rates")}
        return cls(**{**state, **columns})

    def history(self) -> pd.DataFrame:
        """Return one row per evaluation."""
        table = pd.DataFrame(self.rows)
        return table.astype({"epoch": int, "step": int}) if len(table) else table

    def steps(self) -> pd.DataFrame:
        """Return one row per update."""
        return pd.DataFrame(
            {
                "step": range(len(self.losses)),
                "lr": self.rates,
                "loss": self.losses,
                "gradient_norm": self.gradient_norms,
            }
        )

    def iterations_to(self) -> pd.DataFrame:
        """Return one row per threshold; missing if it was not reached."""
        rows = [{"loss": threshold, **first} for threshold, first in self.reached.items()]
        table = pd.DataFrame(rows, columns=["loss", "minibatch", "train"])
        for name in ("minibatch", "train"):
            table[name] = table[name].astype("Int64").where(table[name] >= 0)
        return table


def keep(value: Any, name: str, model: nn.Module, storable: bool) -> Any:
    """Return a callback's value with copies of all tensors that share memory with the model, before training changes
    them.

    Args:
        value: What the callback returned.
        name: The callback's.
        model: The model.
        storable: Whether it must be possible to store it in a checkpoint.

    Raises:
        TangentError: If it must be storable and contains anything but tensors, numbers, strings and containers of them.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return plain(value)
    if isinstance(value, Tensor):
        value = value.detach()
        own = {tensor.untyped_storage().data_ptr() for tensor in [*model.parameters(), *model.buffers()]}
        return value.clone() if value.untyped_storage().data_ptr() in own else value
    if type(value) is dict:
        return {keep(key, name, model, storable): keep(part, name, model, storable) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(keep(part, name, model, storable) for part in value)
    if not storable:
        return value
    raise TangentError(
        f"Callback {name!r} returned a {type(value).__module__}.{type(value).__qualname__}.",
        why="With a folder for checkpoints, what callbacks return is part of the checkpoint, which holds tensors, "
        "numbers, strings, lists and dictionaries.",
        remedy="Return one of those, for example torch.from_numpy(array), or write the value to a file yourself.",
    )
