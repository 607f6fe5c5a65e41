"""The folder of a streaming regression: features part by part, and the normal equations of those that are done."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import torch
from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab._files import make_folder, write_bytes
from tangentlab._reading import Unreadable
from tangentlab._tensor_files import load_torch
from tangentlab.solvers._normal import NormalEquations, to_state
from tangentlab.store.internal import weights_hash

_STATE = "normal.pt"


@contextmanager
def readable(file: Path) -> Iterator[Any]:
    """Read a state, and refuse a file that does not hold what the caller looks for.

    Raises:
        TangentError: The file is damaged, or another program wrote it.
    """
    try:
        yield load_torch(file)
    except (Unreadable, KeyError, TypeError, ValueError) as error:
        raise TangentError(
            f"{file} cannot be used.",
            "It is damaged, or another program wrote it.",
            "Remove the folder, or choose another one.",
        ) from error


def refuse_other(folder: Path, theirs: dict[str, Any], about: dict[str, Any]) -> None:
    """Refuse a folder of another regression.

    Raises:
        TangentError: It was begun with something else; the message has the differences.
    """
    differences = [
        f"{name}: {theirs.get(name)} there, {value} here" for name, value in about.items() if theirs.get(name) != value
    ]
    if differences:
        raise TangentError(
            f"{folder} holds another regression. {'; '.join(differences)}.",
            "Features of two networks or sets of samples would be mixed.",
            "Choose another folder, or pass what it was begun with.",
        )


def refuse_changed(model: nn.Module, weights: str) -> None:
    """Refuse a network whose weights are not those of the fit, given by their hash.

    Raises:
        TangentError: They are others.
    """
    if weights_hash(model) != weights:
        raise TangentError(
            "The weights of the network have changed since the fit.",
            "Gradients at both would be mixed.",
            "Predict before you change them, or fit a copy: copy.deepcopy(model).",
        )


@dataclass
class Checkpoint:
    """What is done of a streaming regression.

    Attributes:
        folder: The folder.
        about: What the features depend on; a folder of another regression is refused.
        equations: The normal equations of the finished parts.
        checksums: Those of the finished parts' features.
        history: Plain values of the milestones.
    """

    folder: Path
    about: dict[str, Any]
    equations: NormalEquations
    checksums: list[int] = field(default_factory=list)
    history: list[list[float]] = field(default_factory=list)

    @classmethod
    def open(cls, folder: Path, about: dict[str, Any], k: int, columns: int) -> "Checkpoint":
        """Open a folder, new or of an interrupted run.

        Raises:
            TangentError: It holds another regression, or is damaged.
        """
        made = cls(make_folder(folder), about, NormalEquations.empty(k, columns))
        if not (made.folder / _STATE).exists():
            return made
        with readable(made.folder / _STATE) as found:
            stored = NormalEquations(**found["equations"])
            made.checksums, made.history = list(found["checksums"]), list(found["history"])
            theirs = dict(found["about"])
        refuse_other(made.folder, theirs, about)
        made.equations = stored
        return made

    @property
    def parts(self) -> int:
        """The number of finished parts."""
        return len(self.checksums)

    def put(self, part: int, features: Tensor) -> None:
        """Write the features of a part."""
        values = np.ascontiguousarray(features.numpy())
        write_bytes(self._file(part), lambda file: np.save(file, values))
        self.checksums.append(google_crc32c.value(values.reshape(-1).view(np.uint8)))

    def get(self, part: int) -> Tensor:
        """Read the features of a finished part.

        Raises:
            TangentError: They are not what was written.
        """
        try:
            values = np.load(self._file(part), allow_pickle=False)
            good = google_crc32c.value(values.reshape(-1).view(np.uint8)) == self.checksums[part]
        except (OSError, ValueError, EOFError):
            good = False
        if not good:
            raise TangentError(
                f"{self._file(part)} is damaged.",
                "Its content is not what was written.",
                "Remove the folder and compute the regression again.",
            )
        return torch.from_numpy(values)

    def save(self) -> None:
        """Write the normal equations of all finished parts, completely or not at all."""
        state = {
            "about": self.about,
            "equations": to_state(self.equations),
            "checksums": self.checksums,
            "history": self.history,
        }
        write_bytes(self.folder / _STATE, lambda file: torch.save(state, file))

    def _file(self, part: int) -> Path:
        return self.folder / f"features-{part:06d}.npy"
