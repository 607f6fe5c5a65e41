"""Two checkpoints of one network, compared by their kernels."""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tangentlab import linalg
from tangentlab._copying import copy_model
from tangentlab._errors import TangentError
from tangentlab._html import card
from tangentlab._reading import Unreadable, first_line
from tangentlab._tensor_files import load_weights
from tangentlab.analysis._alignments import Alignments, alignments
from tangentlab.analysis._energy import energy_concentration
from tangentlab.analysis._path import linearization_along
from tangentlab.analysis._rotation import Rotation, kernel_distance, rotation
from tangentlab.kernels import ntk
from tangentlab.kernels.internal import ReadoutLike

Checkpoint = nn.Module | Mapping[str, Any] | str | os.PathLike[str]


@dataclass(frozen=True)
class CheckpointComparison:
    """Two checkpoints of one network on the same N samples.

    Attributes:
        distance: The cosine distance of the kernels, see :func:`kernel_distance`.
        rotation: Their leading eigenspaces, see :func:`rotation`.
        spectra: The eigenvalues and eigenvectors of both kernels; ``plot.spectrum`` draws them in one picture.
        alignments: The alignments of the targets with both, or None without targets.
        energy: The energy concentration of each target on both, (2, m), or None without targets.
        effective_ranks: Those of the two Jacobians.
        linearization_error: The relative error of the linearization at the first checkpoint, evaluated at the second.
        weight_distance: The Euclidean distance of the weights.
        k: The number of eigenvectors in ``rotation`` and ``energy``.
    """

    distance: float
    rotation: Rotation
    spectra: dict[str, linalg.Spectrum]
    alignments: dict[str, Alignments] | None
    energy: Tensor | None
    effective_ranks: tuple[float, float]
    linearization_error: float
    weight_distance: float
    k: int

    def to_pandas(self) -> pd.DataFrame:
        """Return one row per checkpoint: its eigenvalue, effective rank, and alignments."""
        rows = []
        for number, (name, spectrum) in enumerate(self.spectra.items()):
            row: dict[str, Any] = {"checkpoint": name, "largest_eigenvalue": float(spectrum.values[0])}
            row["effective_rank"] = self.effective_ranks[number]
            if self.alignments is not None and self.energy is not None:
                found = self.alignments[name]
                row |= {"alignment": found.alignment, "alignment_normalized": found.normalized}
                row |= {"alignment_centered": found.centered, "energy": float(self.energy[number].mean())}
            rows.append(row)
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        return (
            f"kernel distance {self.distance:.4g}; {self.rotation}; linearization error {self.linearization_error:.4g} "
            f"at a distance of {self.weight_distance:.4g} in weight space"
        )

    def _repr_html_(self) -> str:
        return card("Two checkpoints", {"result": str(self)}, self.to_pandas().to_html(index=False))


def compare_checkpoints(
    model: nn.Module,
    a: Checkpoint,
    b: Checkpoint,
    data: Any,
    *,
    targets: Tensor | None = None,
    k: int = 10,
    readout: ReadoutLike = "pntk",
    output: Callable[[Any], Tensor] | None = None,
    **options: Any,
) -> CheckpointComparison:
    """Compare the kernels of one network at two checkpoints, and the linearization between them.

    Costs both kernels and all their eigenpairs, N^3.

    Args:
        model: The network, for its structure. It is not changed.
        a: The first checkpoint: a network, a state dict, or a file (``torch.save``, a checkpoint of
            :func:`tangentlab.training.train`, or ``.safetensors``).
        b: The second, in the same forms.
        data: N samples: a tensor, a tuple or a dict of tensors.
        targets: (N,) or (N, m) targets for the alignments; class numbers become one-hot vectors.
        k: Eigenvectors for rotation and energy concentration.
        readout: One number per sample, as for :func:`tangentlab.ntk`.
        output: Takes the tensor of outputs from what the model returns.
        options: For :func:`tangentlab.ntk`.

    Raises:
        TangentError: A checkpoint does not fit the network.

    Examples:
        >>> import torch
        >>> from tangentlab import analysis
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> start = {name: value.clone() for name, value in network.state_dict().items()}
        >>> end = {name: value + 0.1 * torch.randn_like(value) for name, value in start.items()}
        >>> found = analysis.compare_checkpoints(network, start, end, x, k=5)
        >>> type(found).__name__
        'CheckpointComparison'

    See also:
        :func:`tangentlab.analysis.rotation`, :func:`tangentlab.analysis.kernel_distance`,
        :func:`tangentlab.analysis.linearization_along`.
    """
    networks = {"a": _at(model, a, "first"), "b": _at(model, b, "second")}
    options = {"progress": False, **options, "readout": readout, "output": output}
    kernels = {name: ntk(network, data, **options) for name, network in networks.items()}
    spectra = {name: linalg.eigh(kernel, progress=False) for name, kernel in kernels.items()}
    k = min(k, spectra["a"].n)
    found, energy = None, None
    if targets is not None:
        columns = F.one_hot(targets.long()).double() if _classes(targets) else targets
        found = {name: alignments(kernel, columns) for name, kernel in kernels.items()}
        parts = [energy_concentration(spectrum, columns, k).reshape(-1).cpu() for spectrum in spectra.values()]
        energy = torch.stack(parts)
    start, end = (_Tensors(network, output) for network in networks.values())
    inputs = _inputs(data)
    error = linearization_along(start, [end], *inputs)
    one, two = (effective for effective in map(_rank, spectra.values()))
    moved = zip(networks["a"].parameters(), networks["b"].parameters(), strict=True)
    distance = math.sqrt(sum(float((q.detach().double() - p.detach().double()).square().sum()) for p, q in moved))
    return CheckpointComparison(
        kernel_distance(*kernels.values()),
        rotation(spectra["a"], spectra["b"], k),
        spectra,
        found,
        energy,
        (one, two),
        float(error["error"][0]),
        distance,
        k,
    )


def _rank(spectrum: linalg.Spectrum) -> float:
    return linalg.effective_rank(linalg.singular_values(spectrum))


def _classes(targets: Tensor) -> bool:
    return not targets.is_floating_point() and targets.ndim == 1 and targets.dtype != torch.bool


def _inputs(data: Any) -> tuple[Any, ...]:
    return data if isinstance(data, tuple) else (data,)


class _Tensors(nn.Module):
    """A network that returns one tensor; a dict of inputs is passed by keyword."""

    def __init__(self, network: nn.Module, output: Callable[[Any], Tensor] | None) -> None:
        super().__init__()
        self.network, self._output = network, output

    def forward(self, *inputs: Any) -> Any:
        keywords = len(inputs) == 1 and isinstance(inputs[0], Mapping)
        found = self.network(**inputs[0]) if keywords else self.network(*inputs)
        return found if self._output is None else self._output(found)


def _at(model: nn.Module, checkpoint: Checkpoint, which: str) -> nn.Module:
    """Return a copy of the network in evaluation mode with the weights of a checkpoint."""
    state: Any = checkpoint
    if isinstance(checkpoint, nn.Module):
        state = checkpoint.state_dict()
    elif isinstance(checkpoint, str | os.PathLike):
        path = Path(checkpoint)
        try:
            state = load_weights(path)
        except Unreadable as error:
            raise TangentError(f"The {which} checkpoint {str(path)!r} {error}.", remedy="Give another file.") from error
    twin = copy_model(model).eval()
    try:
        twin.load_state_dict(state)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise TangentError(
            f"The {which} checkpoint does not fit the network: {first_line(error)}.",
            remedy="Give the state dict of a network of the same architecture.",
        ) from error
    return twin
