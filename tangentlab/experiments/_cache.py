"""Results of units of work on disk, each named by the hash of what determines it."""

import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import torch

from tangentlab._errors import TangentError
from tangentlab._files import make_folder, write_bytes, write_json
from tangentlab._reading import Unreadable, read_json
from tangentlab._tensor_files import load_torch
from tangentlab.experiments._work import Outcome, UnitOfWork, describe


class Cache:
    """A folder of results. Every file in it is complete, because it is written under another name and then renamed.

    Next to each ``KEY.pt`` is ``KEY.json``, a readable description of the unit. ``KEY.run`` is a folder for a unit
    that writes checkpoints; it is removed when the result is written.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = make_folder(folder)

    def path(self, work: UnitOfWork[Any]) -> Path:
        """Return the path of the result of a unit, whether or not it exists."""
        return self.folder / f"{work.key}.pt"

    def scratch(self, work: UnitOfWork[Any]) -> Path:
        """Return the folder of a unit's checkpoints."""
        return self.folder / f"{work.key}.run"

    def has(self, work: UnitOfWork[Any]) -> bool:
        """Return whether the result of a unit exists."""
        return self.path(work).exists()

    def read(self, work: UnitOfWork[Outcome]) -> Outcome | None:
        """Return the result of a unit, or None. A damaged file is renamed with a warning and counts as none."""
        path = self.path(work)
        if not path.exists():
            return None
        try:
            loaded = _dictionary(load_torch(path))
        except Unreadable as error:
            warnings.warn(f"{path} is damaged and is computed again: it {error}", stacklevel=2)
            os.replace(path, path.with_suffix(".pt.damaged"))
            return None
        if self.scratch(work).exists():  # its process was killed between writing the result and clearing up
            shutil.rmtree(self.scratch(work), ignore_errors=True)
        return cast(Outcome, loaded)

    def write(self, work: UnitOfWork[Outcome], value: Outcome, seconds: float) -> None:
        """Store a result with the time it took, and remove the unit's checkpoints."""
        write_json(self.path(work).with_suffix(".json"), {**describe(work), "seconds": round(seconds, 3)})
        write_bytes(self.path(work), lambda file: torch.save(value, file))
        shutil.rmtree(self.scratch(work), ignore_errors=True)

    def seconds(self, work: UnitOfWork[Any]) -> float:
        """Return how long a finished unit took, in all processes that worked on it; 0 if that is not known."""
        try:
            seconds = (self.note(work.key) or {}).get("seconds", 0.0)
        except TangentError:  # the note is information only; the result does not depend on it
            return 0.0
        return float(seconds) if isinstance(seconds, int | float) else 0.0

    @contextmanager
    def lock(self, work: UnitOfWork[Any]) -> Iterator[None]:
        """Lock a unit, so that one process at a time computes it. The system unlocks it when the process ends for any
        reason."""
        try:
            import fcntl
        except ImportError:  # Windows: two processes may compute the same; either result is right
            yield
            return
        path = self.folder / f"{work.key}.lock"
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
            with suppress(OSError):
                path.unlink()
        finally:
            os.close(descriptor)

    def note(self, name: str) -> dict[str, Any] | None:
        """Return the content of a small JSON file stored next to the results; None if there is no such file.

        Raises:
            TangentError: If the file exists and is not such a file.
        """
        path = self.folder / f"{name}.json"
        if not path.exists():
            return None
        try:
            return _dictionary(read_json(path))
        except Unreadable as error:
            raise TangentError(
                f"{path} {error}.",
                why="It says what the results next to it were made with.",
                remedy="Restore it from a copy, or use another --out.",
            ) from error

    def write_note(self, name: str, value: dict[str, Any]) -> None:
        """Write a small JSON file next to the results."""
        write_json(self.folder / f"{name}.json", value)


def _dictionary(loaded: Any) -> dict[str, Any]:
    if not isinstance(loaded, dict):
        raise Unreadable(f"holds a {type(loaded).__name__} where a dictionary is expected")
    return loaded
