"""The checkpoints of block coordinate descent."""

import os
import time
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._files import make_folder, write_bytes
from tangentlab.solvers._checkpoint import readable, refuse_other
from tangentlab.solvers._descent import Descent, State
from tangentlab.store.internal import Digest, sweep

_STATE = "descent.pt"
_SAVED = 20.0
"""Seconds between two writes inside a pass."""
_AGREE = 1e-3
"""The relative difference between diagonals that counts as rounding."""


@dataclass(frozen=True)
class Pass:
    """A pass over the blocks.

    Attributes:
        number: Its number, from 1.
        residual: The largest ||r|| / ||y - f0|| over the columns, of residuals taken on the way, each block's before
            it is solved: an upper estimate of that at the end.
        error: The mean squared error on the validation samples; None if there are none.
        seconds: Since the start of the call.
    """

    number: int
    residual: float
    error: float | None
    seconds: float


@dataclass
class Saved:
    """The state of a descent, and its folder.

    Attributes:
        folder: The folder; None for no checkpoints.
        about: What the solution depends on.
        diagonal: That of the kernel, by which another kernel is recognized.
        state: The state.
        history: The finished passes.
    """

    folder: Path | None
    about: dict[str, Any]
    diagonal: Tensor
    state: State
    history: list[Pass] = field(default_factory=list)
    written: float = field(default_factory=time.monotonic)

    @classmethod
    def open(cls, folder: str | os.PathLike[str] | None, descent: Descent) -> "Saved":
        """Begin, or continue what a folder holds.

        Raises:
            TangentError: It holds another regression, or is damaged.
        """
        state = State.begin(descent.right, descent.blocks)
        if folder is None:
            return cls(None, {}, torch.empty(0), state)
        about = {
            "rows": descent.access.n,
            "targets": Digest()(descent.right.cpu())[:16],
            "ridge": descent.ridge,
            "block": descent.width * descent.access.unit,
            "seed": descent.seed,
        }
        made = cls(make_folder(Path(folder)), about, descent.access.diagonal().cpu(), state)
        assert made.folder is not None
        sweep(made.folder)  # what killed processes had begun to write
        if not (made.folder / _STATE).exists():
            return made
        with readable(made.folder / _STATE) as found:
            theirs, diagonal = dict(found["about"]), found["diagonal"]
            device = descent.right.device
            values: dict[str, Any] = {
                k: v.to(device) if isinstance(v, Tensor) else v for k, v in found["state"].items()
            }
            loaded, history = State(**values), [Pass(*each) for each in found["history"]]
            if theirs == about and not (loaded.z.shape == loaded.v.shape == state.z.shape):
                raise ValueError
        refuse_other(made.folder, theirs, about)
        if float((diagonal - made.diagonal).abs().max()) > _AGREE * float(diagonal.abs().max()):
            raise TangentError(
                f"{made.folder} holds another regression: the diagonals of the kernels differ.",
                "The network computes something else, or the samples are others.",
                "Choose another folder, or pass what it was begun with.",
            )
        made.state, made.history = loaded, history
        return made

    def save_now_and_then(self) -> None:
        """Write the state if it was not written for a while."""
        if time.monotonic() - self.written > _SAVED:
            self.save()

    def save(self) -> None:
        """Write the state, completely or not at all."""
        self.written = time.monotonic()
        if self.folder is None:
            return
        content = {
            "about": self.about,
            "diagonal": self.diagonal,
            "state": {name: v.cpu() if isinstance(v, Tensor) else v for name, v in vars(self.state).items()},
            "history": [list(astuple(each)) for each in self.history],
        }
        write_bytes(self.folder / _STATE, lambda file: torch.save(content, file))
