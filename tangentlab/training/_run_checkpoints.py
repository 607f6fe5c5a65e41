"""When a run writes checkpoints, and the one from which it resumes."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from tangentlab._errors import TangentError
from tangentlab._reading import first_line
from tangentlab.training._checkpoints import CheckpointStore
from tangentlab.training._fingerprint import check

# Without checkpoint_every, the ends of epochs make checkpoints, at most one in so many seconds.
_SECONDS_BETWEEN_CHECKPOINTS = 10.0


class RunCheckpoints:
    """The checkpoints of a run in progress. A context manager that locks their folder.

    Args:
        folder: Their folder.
        every: Updates between two of them; None for ends of epochs.

    Attributes:
        last: The last one, written or resumed from; None if there is none.
        saved_at: The number of updates after which it was made; -1 if there is none.
    """

    def __init__(self, folder: str | os.PathLike[str], every: int | None) -> None:
        if every is not None and every < 1:
            raise TangentError(f"checkpoint_every={every} is not positive.", remedy="Use 1 or more.")
        self._store = CheckpointStore(folder)
        self._every, self._fingerprint = every, dict[str, Any]()
        self._written = time.monotonic()
        self.last: Path | None = None
        self.saved_at = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._store.close()

    def open(self, fingerprint: dict[str, Any], restore: Callable[[dict[str, Any]], None], discard: bool) -> None:
        """Restore the run from the last checkpoint, if there is one.

        Args:
            fingerprint: What identifies the run.
            restore: Restores the run from the state that was saved.
            discard: Whether to delete all checkpoints instead.

        Raises:
            TangentError: The checkpoints are those of another run, or cannot be restored from.
        """
        self._fingerprint = fingerprint
        if discard:
            self._store.clear()
        found = self._store.load()
        if found is None:
            return
        state, path = found
        check(state["fingerprint"], fingerprint, str(path))
        try:
            restore(state)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError) as error:
            raise TangentError(
                f"The checkpoint {path} does not fit the run: {first_line(error)}.",
                why="Its fingerprint is this run's, but its content is not.",
                remedy="Restore the file from a copy, or pass resume=False to start over.",
            ) from error
        self.last, self.saved_at = path, state["step"]

    def due(self, step: int, per_epoch: int, total: int) -> bool:
        """Return whether a checkpoint is due after ``step`` of ``total`` updates, ``per_epoch`` in an epoch."""
        if self.saved_at == step:
            return False
        if self._every is not None:
            due = step % self._every == 0
        else:
            due = step % per_epoch == 0 and time.monotonic() - self._written > _SECONDS_BETWEEN_CHECKPOINTS
        return due or step == total

    def save(self, state: dict[str, Any]) -> None:
        """Write a checkpoint."""
        self.last = self._store.save({"fingerprint": self._fingerprint, **state}, state["step"])
        self._written, self.saved_at = time.monotonic(), state["step"]
