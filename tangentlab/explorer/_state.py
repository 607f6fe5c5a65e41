"""A kernel at one checkpoint with everything that the views show of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentlab import linalg
from tangentlab._errors import TangentError
from tangentlab.analysis import NADs
from tangentlab.explorer import _similar as similar
from tangentlab.explorer._eigenfunctions import Eigenfunctions, describe
from tangentlab.explorer._labels import Labels
from tangentlab.explorer._leave_one_out import LeaveOneOut, leave_one_out, speakers
from tangentlab.explorer._network import Outputs

COMPLETE = 4096
"""Up to so many samples all eigenpairs are computed; above, the leading ones."""
_LAYERS = 40
"""Layers whose spectrum is computed, the largest ones."""
_SMALL = 1024
"""Up to so many samples all eigenvalues of a layer are computed, which is faster than the leading ones."""
_LAYER_VALUES = 50
"""Eigenvalues of a layer's kernel."""


@dataclass(frozen=True, eq=False)
class Layer:
    """A layer's part of the kernel.

    Attributes:
        name: Its name in the network.
        share: Its share of the kernel's trace; shares sum to 1.
        values: Leading eigenvalues of its part; empty where they were not computed.
    """

    name: str
    share: float
    values: Tensor


@dataclass(frozen=True, eq=False)
class State:
    """A kernel of N samples at one checkpoint.

    Attributes:
        name: The checkpoint.
        kernel: (N, N), in memory or stored.
        diagonal: (N,), float64.
        spectrum: All eigenpairs, or the leading ones.
        effective_rank: Of J; None if not all eigenvalues are known.
        functions: The leading eigenfunctions and what they have to do with the labels.
        fit: Leave-one-out predictions; None without labels.
        near: Nearest samples by cosine in tangent space: indices and cosines, (N, m).
        speakers: Samples that speak for and against the predictions: indices and terms, (N, 2 m); None without labels.
        heat: Cosines of the samples on the heat map, (n, n).
        clusters: All samples ordered by clusters, (N,).
        places: The samples in the plane, (N, 2).
        outputs: The network's outputs; None without a network.
        linear: Outputs of the linearization at the first checkpoint, moved to these weights, (N, O); None without.
        layers: The layers' parts; empty without a network.
        nads: Neural anisotropy directions; None where there are none.
    """

    name: str
    kernel: Any
    diagonal: Tensor
    spectrum: linalg.Spectrum
    effective_rank: float | None
    functions: Eigenfunctions
    fit: LeaveOneOut | None
    near: tuple[Tensor, Tensor]
    speakers: tuple[Tensor, Tensor] | None
    heat: Tensor
    clusters: Tensor
    places: Tensor
    outputs: Outputs | None = None
    linear: Tensor | None = None
    layers: tuple[Layer, ...] = ()
    nads: NADs | None = None

    def __repr__(self) -> str:
        return f"State({self.name!r}, {len(self.diagonal):,} samples, {len(self.spectrum.values):,} eigenpairs)"


@dataclass(frozen=True, eq=False)
class Choices:
    """What is computed of every kernel.

    Attributes:
        labels: The labels, or None.
        k: Eigenfunctions that are shown.
        ridge: Of the regression.
        embedding: Of the map.
        heat: The samples on the heat map, (n,).
    """

    labels: Labels | None
    k: int
    ridge: Any
    embedding: str
    heat: Tensor


def make_state(name: str, kernel: Any, choices: Choices, start: Tensor | None = None) -> dict[str, Any]:
    """Compute what the views show of a kernel, as the fields of a :class:`State`.

    Cost: one eigendecomposition, 10 N^3 operations up to 4,096 samples, else some passes over the kernel for the
    leading pairs; and one more pass over its rows.

    Args:
        name: The checkpoint.
        kernel: (N, N), in memory or stored.
        choices: What to compute.
        start: Places of the samples at another checkpoint, to start the map from.

    Raises:
        TangentError: The kernel is zero, or not symmetric and finite.
    """
    count = kernel.shape[0]
    whole = count <= COMPLETE
    dense = None
    if whole:
        read = kernel.to_tensor() if hasattr(kernel, "to_tensor") else kernel
        dense = read.detach().cpu().double()
    spectrum = linalg.eigh(kernel, None if whole else min(choices.k, count), progress=False)
    if not float(spectrum.values[0]) > 0:
        raise TangentError("The kernel is zero.", "There is nothing to see.", "Look at the model and its data.")
    diagonal = dense.diagonal().clone() if dense is not None else kernel.diagonal().detach().cpu().double()
    labels = choices.labels
    fit = None if labels is None else leave_one_out(spectrum, labels, diagonal, choices.ridge)
    passed = _Pass(choices.heat, fit, diagonal)
    for rows, block in similar.strips(kernel if dense is None else dense):
        passed.take(rows, block)
    heat = torch.cat(passed.heat)
    near = torch.cat([a for a, _ in passed.near]), torch.cat([b for _, b in passed.near])
    spoken = None
    if passed.spoken:
        spoken = torch.cat([a for a, _ in passed.spoken]), torch.cat([b for _, b in passed.spoken])
    leaves = similar.cluster_order(heat.double())
    rank = torch.empty_like(leaves)
    rank[leaves] = torch.arange(len(leaves))
    clusters = torch.argsort(rank[torch.cat(passed.closest)], stable=True)
    if dense is not None:
        places = similar.embed(choices.embedding, similar.cosines(dense, diagonal, slice(0, count)), start)
    else:
        features = spectrum.vectors * spectrum.values.clamp(min=0).sqrt()
        features = features / features.norm(dim=1, keepdim=True).clamp(min=1e-300)
        features = features - features.mean(0)
        left, sizes, _ = torch.linalg.svd(features, full_matrices=False)
        places = left[:, :2] * sizes[:2]
        places = places / places.abs().max().clamp(min=1e-300)
    return {
        "name": name,
        "kernel": kernel,
        "diagonal": diagonal,
        "spectrum": spectrum,
        "effective_rank": linalg.effective_rank(linalg.singular_values(spectrum)) if spectrum.complete else None,
        "functions": describe(spectrum, labels, choices.k),
        "fit": fit,
        "near": near,
        "speakers": spoken,
        "heat": heat,
        "clusters": clusters,
        "places": places,
    }


class _Pass:
    """What one pass over the rows of a kernel collects."""

    def __init__(self, chosen: Tensor, fit: LeaveOneOut | None, diagonal: Tensor) -> None:
        self.chosen, self.fit, self.diagonal = chosen, fit, diagonal
        self.heat: list[Tensor] = []
        self.near: list[tuple[Tensor, Tensor]] = []
        self.spoken: list[tuple[Tensor, Tensor]] = []
        self.closest: list[Tensor] = []

    def take(self, rows: slice, block: Tensor) -> None:
        """Take what is needed from one strip of rows."""
        cosine = similar.cosines(block, self.diagonal, rows)
        self.near.append(similar.nearest(rows, cosine))
        mine = (self.chosen >= rows.start) & (self.chosen < rows.stop)
        few = cosine[:, self.chosen]
        self.heat.append(few[self.chosen[mine] - rows.start].float())
        closest = few.argmax(1)
        closest[self.chosen[mine] - rows.start] = torch.nonzero(mine).flatten()
        self.closest.append(closest)
        if self.fit is not None:
            self.spoken.append(speakers(self.fit.terms(rows, block if self.fit.exact else None)))


def layers_of(parts: Mapping[str, Tensor]) -> tuple[Layer, ...]:
    """Compute each layer's share of the kernel's trace and its leading eigenvalues."""
    traces = {name: float(part.diagonal().double().sum()) for name, part in parts.items()}
    total = sum(traces.values())
    largest = sorted(traces, key=lambda name: -traces[name])[:_LAYERS]
    found = []
    for name, part in parts.items():
        values = torch.zeros(0, dtype=torch.float64)
        if name in largest and traces[name] > 0:
            few = min(_LAYER_VALUES, len(part))
            if len(part) <= _SMALL:
                values = torch.linalg.eigvalsh(part.cpu().double()).flip(0)[:few]
            else:
                values = linalg.eigh(part, few, progress=False).values
        found.append(Layer(name, traces[name] / total if total > 0 else 0.0, values.clamp(min=0)))
    return tuple(found)
