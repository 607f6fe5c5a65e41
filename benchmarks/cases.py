"""The problems every tool is given: a network, a number of samples, a readout and the ratio required of us.

Nothing here imports PyTorch, so that a peer of another framework can read a problem too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Case:
    """One row of the benchmark.

    Attributes:
        name: short name for the command line.
        title: what the table calls it.
        network: key of :data:`benchmarks.networks.NETWORKS`.
        outputs: number of logits ``O``.
        readout: ``"full"`` for the ``(N, O, N, O)`` kernel, ``"pntk"`` for the ``(N, N)`` kernel of the sum of
            the logits over ``sqrt(O)``.
        samples: number of inputs ``N``.
        quick_samples: the ``N`` of ``--quick``.
        required: the least ratio of the best peer's time to ours; ``None`` where nothing is required.
    """

    name: str
    title: str
    network: str
    outputs: int
    readout: str
    samples: int
    quick_samples: int
    required: float | None

    @property
    def readouts(self) -> int:
        """Number of scalar functions differentiated per sample."""
        return self.outputs if self.readout == "full" else 1

    def with_samples(self, samples: int) -> Case:
        """Return the same case on another number of inputs, for which no ratio is required."""
        if samples == self.samples:
            return self
        title = self.title.replace(f"N {self.samples}", f"N {samples}")
        return replace(self, samples=samples, title=title, required=None)


CASES: dict[str, Case] = {
    case.name: case
    for case in (
        Case("mlp", "MLP 3072-100-100-1, N 2000", "mlp", 1, "full", 2000, 256, 2.0),
        Case("lenet-1", "LeNet-5, 1 output, N 1000", "lenet", 1, "full", 1000, 128, 6.0),
        Case("lenet-10", "LeNet-5, 10 outputs, N 200", "lenet", 10, "full", 200, 32, 10.0),
        Case("lenet-10-large", "LeNet-5, 10 outputs, N 600", "lenet", 10, "full", 600, 64, 15.0),
        Case("fcn", "FCN 3072-1024-1024-10, N 200", "fcn", 10, "full", 200, 32, 3.0),
        Case("resnet18", "ResNet18, pNTK, N 64", "resnet18", 10, "pntk", 64, 8, 4.0),
    )
}


@dataclass(frozen=True)
class Problem:
    """A case with its numbers: the same weights and inputs for every tool, in float32.

    Attributes:
        case: what is asked.
        state: the network's ``state_dict`` as arrays (parameters and buffers).
        parameters: the names in ``state`` that are differentiated.
        x: inputs, ``(N, 3, 32, 32)``.
        y: the network's outputs on ``x`` in float64, ``(N, O)``, against which a translation of the network to
            another framework is checked.
        device: where the kernel is computed, ``"cpu"`` or ``"cuda"``.
    """

    case: Case
    state: dict[str, np.ndarray]
    parameters: tuple[str, ...]
    x: np.ndarray
    y: np.ndarray
    device: str = "cpu"

    @property
    def parameter_count(self) -> int:
        """Number of differentiated scalars ``P``."""
        return sum(self.state[name].size for name in self.parameters)

    def save(self, path: Path) -> None:
        """Write the problem as one ``.npz`` file."""
        arrays = {f"state/{name}": array for name, array in self.state.items()}
        np.savez(path, x=self.x, y=self.y, parameters=np.array(self.parameters), **arrays)

    @staticmethod
    def load(path: Path, case: Case, device: str = "cpu") -> Problem:
        """Read what :meth:`save` wrote."""
        with np.load(path) as file:
            state = {key.removeprefix("state/"): file[key] for key in file.files if key.startswith("state/")}
            return Problem(case, state, tuple(file["parameters"].tolist()), file["x"], file["y"], device)
