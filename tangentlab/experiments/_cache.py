"""Results of units of work on disk, each under the hash of what decides it."""

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
    """A folder of results. A file that is there is whole: it was written under another name and renamed.

    Beside each ``KEY.pt`` lies ``KEY.json``, what it is the result of, for people. ``KEY.run`` is a folder for a unit
    that keeps checkpoints on its way; it is removed when the result is written.

    Args:
        folder: Where.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = make_folder(folder)

    def path(self, work: UnitOfWork[Any]) -> Path:
        """Where the result is, or will be."""
        return self.folder / f"{work.key}.pt"

    def scratch(self, work: UnitOfWork[Any]) -> Path:
        """The folder of a unit's checkpoints."""
        return self.folder / f"{work.key}.run"

    def has(self, work: UnitOfWork[Any]) -> bool:
        """Whether the result is there."""
        return self.path(work).exists()

    def read(self, work: UnitOfWork[Outcome]) -> Outcome | None:
        """The result, or None; a damaged file is put aside with a warning and counts as none."""
        path = self.path(work)
        if not path.exists():
            return None
        try:
            loaded = load_torch(path)
            if not isinstance(loaded, dict):
                raise Unreadable(f"holds {type(loaded).__name__} where a dictionary is expected")
        except Unreadable as error:
            warnings.warn(f"{path} is damaged and is computed again: it {error}", stacklevel=2)
            os.replace(path, path.with_suffix(".pt.damaged"))
            return None
        if self.scratch(work).exists():  # its process was killed between writing the result and clearing up
            shutil.rmtree(self.scratch(work), ignore_errors=True)
        return cast(Outcome, loaded)

    def write(self, work: UnitOfWork[Outcome], value: Outcome, seconds: float) -> None:
        """Keeps a result with the time it took, and removes the unit's checkpoints."""
        write_json(self.path(work).with_suffix(".json"), {**describe(work), "seconds": round(seconds, 3)})
        write_bytes(self.path(work), lambda file: torch.save(value, file))
        shutil.rmtree(self.scratch(work), ignore_errors=True)

    def seconds(self, work: UnitOfWork[Any]) -> float:
        """How long a finished unit took, in all processes that worked on it; 0 where that is not known."""
        try:
            seconds = (self.note(work.key) or {}).get("seconds", 0.0)
        except TangentError:  # a note is for people; the result does not depend on it
            return 0.0
        return float(seconds) if isinstance(seconds, int | float) else 0.0

    @contextmanager
    def lock(self, work: UnitOfWork[Any]) -> Iterator[None]:
        """One process at a time computes a unit; the system unlocks when a process ends in whatever way."""
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
        """A small JSON file kept beside the results.

        Raises:
            TangentError: If it is there and is no such file.
        """
        path = self.folder / f"{name}.json"
        if not path.exists():
            return None
        try:
            loaded = read_json(path)
            if not isinstance(loaded, dict):
                raise Unreadable(f"holds a {type(loaded).__name__} where an object is expected")
        except Unreadable as error:
            raise TangentError(
                f"{path} {error}.",
                why="It says what the results beside it were made with.",
                remedy="Restore it from a copy, or use another --out.",
            ) from error
        return loaded

    def write_note(self, name: str, value: dict[str, Any]) -> None:
        """Writes one."""
        write_json(self.folder / f"{name}.json", value)
