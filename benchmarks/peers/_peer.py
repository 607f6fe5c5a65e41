"""The interface of a tool.

A peer's module must import without the tool it wraps: the parent process lists settings, and only the child
that measures, in the peer's own environment, imports the tool (inside :meth:`Peer.prepare`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.cases import Case, Problem

Setting = Mapping[str, Any]


class Unsuitable(Exception):
    """A setting that cannot run on this case, with the reason (for example a Jacobian that is too large)."""


class Peer(ABC):
    """One tool.

    Attributes:
        name: for the command line and the table.
        requirements: file in ``benchmarks/`` from which its environment is made; ``None``: the environment
            that runs the harness.
    """

    name: str
    requirements: str | None = None

    @abstractmethod
    def settings(self, case: Case) -> tuple[Setting, ...]:
        """Return the settings worth trying on a case, the likely best first; plain JSON values."""

    @abstractmethod
    def prepare(self, problem: Problem, setting: Setting, memory: int) -> Callable[[], Any]:
        """Build the network and compile what is compiled ahead; return a function that computes the kernel once.

        Where compiling took time, what is returned says how many seconds in an attribute ``compiling``.

        Args:
            problem: weights, inputs and readout.
            setting: one of :meth:`settings`.
            memory: bytes the process may use.

        Raises:
            Unsuitable: the setting cannot work on this problem.
        """

    @abstractmethod
    def canonical(self, problem: Problem, kernel: Any) -> np.ndarray:
        """Return the kernel in our layout, ``(N, R, N, R)`` as a ``(N R, N R)`` matrix; its cost is not counted."""


def describe(setting: Setting) -> str:
    """Describe a setting in a few words for the table."""
    return ", ".join(f"{key} {value}" for key, value in setting.items() if value is not None) or "default"
