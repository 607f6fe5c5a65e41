"""How a kernel changed between checkpoints."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tangentlab import analysis
from tangentlab.explorer._labels import Labels
from tangentlab.explorer._state import State

ROTATED = 20
"""Eigenfunctions that are followed."""


@dataclass(frozen=True, eq=False)
class Change:
    """A kernel beside that of the first checkpoint.

    Attributes:
        distance: The cosine distance of the two kernels (:func:`tangentlab.analysis.kernel_distance`).
        overlap: The overlap of the two leading eigenspaces (:func:`tangentlab.analysis.rotation`).
        alignment: tr(Y^T K Y) / (lambda_1 |Y|^2), 0 to 1: 1 if the targets are the leading eigenvector. None without
            labels.
        energy: The energy concentration of the targets on the leading eigenvectors; None without labels.
        overlaps: |<u_i(0), u_j(t)>|^2, (k, k): row i says where the first checkpoint's eigenfunction i went.
    """

    distance: float
    overlap: float
    alignment: float | None
    energy: float | None
    overlaps: Tensor


def changes(states: Sequence[State], labels: Labels | None) -> list[Change]:
    """Compare the kernel of every checkpoint with the first one."""
    first, found = states[0], []
    k = min(ROTATED, len(first.spectrum.values))
    for state in states:
        alignment = energy = None
        if labels is not None:
            y = labels.targets
            norm = float(y.square().sum())
            total = float(analysis.alignment(state.kernel, y).sum()) * len(y) ** 2
            alignment = total / (float(state.spectrum.values[0]) * norm)
            assert state.functions.energy is not None
            energy = float(state.functions.energy[:k].sum().clamp(min=0).sqrt())
        products = first.spectrum.vectors[:, :k].T @ state.spectrum.vectors[:, :k]
        found.append(
            Change(
                distance=0.0 if state is first else analysis.kernel_distance(first.kernel, state.kernel),
                overlap=analysis.rotation(first.spectrum, state.spectrum, k).overlap,
                alignment=alignment,
                energy=energy,
                overlaps=torch.square(products),
            )
        )
    return found
