"""Checkpoints on disk: written atomically, verified when they are read; the last two are retained."""

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._files import written_whole
from tangentlab._reading import first_line
from tangentlab._tensor_files import load_torch

_KEEP = 2
_FORMAT = 1
_PARTS: dict[str, Any] = {
    "fingerprint": dict,
    "step": int,
    "model": Mapping,
    "other buffers": Mapping,
    "optimizer": dict,
    "generators": list,
    "record": dict,
    "seconds": int | float,
}
"""What a checkpoint consists of."""


class CheckpointStore:
    """The checkpoints of one run, in a folder of their own.

    A file is written under a temporary name, flushed to the disk and renamed, so that a process that is killed at
    any moment leaves the files that were there before. Files are plain ``torch.save`` archives, read with
    ``weights_only=True``; the checksums inside them are verified first.

    One process at a time: the folder is locked as long as the store is open, and unlocked by the system when the
    process ends for any reason.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(self.folder)
        for leftover in self.folder.glob("*.partial"):
            leftover.unlink()

    def close(self) -> None:
        """Unlock the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def paths(self) -> list[Path]:
        """Return the paths of the checkpoints, latest first."""
        return sorted(self.folder.glob("step-*.pt"), reverse=True)

    def save(self, state: dict[str, Any], step: int) -> Path:
        """Write a checkpoint and remove all but the last two."""
        final = self.folder / f"step-{step:012d}.pt"
        with written_whole(final) as file:
            torch.save({"format": _FORMAT, **state}, file)
        for old in self.paths()[_KEEP:]:
            old.unlink()
        return final

    def load(self) -> tuple[dict[str, Any], Path] | None:
        """Load the latest undamaged checkpoint; return None if there are no checkpoints.

        A damaged one is named in a warning and renamed to ``*.damaged``, and the one before it is used.

        Raises:
            TangentError: If there are checkpoints and all are damaged.
        """
        paths = self.paths()
        damage = []
        for path in paths:
            try:
                return _read(path), path
            except Exception as error:  # a damaged file can fail in any way
                reason = first_line(error)
                damage.append(f"{path.name} ({reason})")
                warnings.warn(
                    f"Checkpoint {path} is damaged and is not used: {reason}. The one before it is.", stacklevel=2
                )
                os.replace(path, path.with_suffix(".pt.damaged"))
        if paths:
            raise TangentError(
                f"No checkpoint in {self.folder} is whole: {'; '.join(damage)}.",
                why="Starting over silently would throw the run's work away.",
                remedy="Restore one of the files, or pass resume=False to start over.",
            )
        return None

    def clear(self) -> None:
        """Remove the checkpoints."""
        for path in self.paths():
            path.unlink()


def _read(path: Path) -> dict[str, Any]:
    state = load_torch(path)
    if not isinstance(state, dict) or state.get("format") != _FORMAT:
        raise ValueError("it is not a checkpoint of this version")
    for name, kind in _PARTS.items():
        if not isinstance(state.get(name), kind) or isinstance(state.get(name), bool):
            raise ValueError(f"its {name!r} is missing or not what it should be")
    if state["step"] < 0 or not all(isinstance(part, Tensor) for part in state["model"].values()):
        raise ValueError("its weights or its step are not what they should be")
    return state


def _lock(folder: Path) -> int | None:
    try:
        import fcntl
    except ImportError:  # Windows: no lock
        return None
    descriptor = os.open(folder / "lock", os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise TangentError(
            f"Another process is training in {folder}.",
            why="Two runs would overwrite each other's checkpoints.",
            remedy="Wait for it, or use another folder.",
        ) from error
    return descriptor
