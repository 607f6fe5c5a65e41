"""Measures of a network's kernel on a fixed set of samples, relative to where training started."""

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tangentlab import analysis, linalg
from tangentlab._errors import TangentError
from tangentlab.kernels import ntk
from tangentlab.kernels.internal import Options, ReadoutLike, RepeatedKernel, logits_of
from tangentlab.linearized import Linearized, linearization_error, linearize


def as_columns(targets: Tensor) -> Tensor:
    """Return targets as columns: numbers as they are, two classes as -1 and 1, more classes as one-hot vectors."""
    if targets.is_floating_point():
        return targets.double().cpu().reshape(len(targets), -1)
    classes = int(targets.max()) + 1
    if classes <= 2:
        return (2.0 * targets.double().cpu() - 1).reshape(-1, 1)
    return F.one_hot(targets.long().cpu(), classes).double()


@contextmanager
def evaluating(model: nn.Module) -> Any:
    """Switch a model to evaluation mode, and keep PyTorch's random numbers for the training."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.random.fork_rng([] if not torch.cuda.is_available() else None):
            yield
    finally:
        for module, mode in modes:
            module.training = mode


class Probe:
    """The kernel, and the linearization, of a network on fixed samples.

    Args:
        inputs: The samples: a tensor, a tuple or a dict of tensors.
        targets: Their targets, (N,) classes or (N, ...) numbers.
        k: Eigenvectors of the energy concentration.
        readout: As for :func:`tangentlab.ntk`; one number per sample.
        output: Takes the tensor of outputs from what the model returns.
        linearization: Whether to measure the linearization error.
        options: For :func:`tangentlab.ntk`.
    """

    def __init__(
        self,
        inputs: Any,
        targets: Tensor,
        k: int,
        readout: ReadoutLike,
        output: Callable[[Any], Tensor] | None,
        linearization: bool,
        options: dict[str, Any],
    ) -> None:
        self.inputs, self.y = inputs, as_columns(targets)
        self.k, self.readout, self.output = min(k, len(self.y)), readout, output or logits_of
        self.linearization, self.options = linearization, {"progress": False, **options}
        self._kernel: Callable[[nn.Module], Tensor]
        if "optimizer" in options:
            self._kernel = lambda model: ntk(model, inputs, readout=readout, output=self.output, **self.options)
        else:
            self._kernel = RepeatedKernel(inputs, Options(readout, output=self.output, **self.options))
        self.start: Tensor | None = None
        self.last: Tensor | None = None
        self.weights: dict[str, Tensor] = {}
        self._linear: Linearized | None = None

    def measure(self, model: nn.Module) -> dict[str, float]:
        """Compute all measures at the model's present weights; the first call is the start."""
        if isinstance(model, Linearized):
            raise TangentError(
                "The kernel of a linearized model does not change.",
                why="It is the kernel at its base point.",
                remedy="Watch the network, or compute tangentlab.ntk(network, x) once.",
            )
        with evaluating(model):
            kernel = self._kernel(model).cpu()
            if self.start is None:
                self.start, self.last = kernel, kernel
                named = [*model.named_parameters(), *model.named_buffers()]
                self.weights = {n: t.detach().cpu().clone() for n, t in named}
            assert self.last is not None
            row = {
                "distance_to_start": analysis.kernel_distance(self.start, kernel),
                "distance_to_last": analysis.kernel_distance(self.last, kernel),
                **self._spectral(kernel),
            }
            if self.linearization:
                row["linearization_error"] = self._error(model)
        self.last = kernel
        return row

    def _spectral(self, kernel: Tensor) -> dict[str, float]:
        found = analysis.alignments(kernel, self.y)
        spectrum = linalg.eigh(kernel, progress=False)
        inside = (spectrum.vectors[:, : self.k].T @ self.y.to(spectrum.vectors)).norm() / self.y.norm()
        return {
            "alignment": found.alignment,
            "alignment_normalized": found.normalized,
            "alignment_centered": found.centered,
            "energy_concentration": float(inside),
            "effective_rank": linalg.effective_rank(linalg.singular_values(spectrum)),
            "largest_eigenvalue": float(spectrum.values[0]),
        }

    def _error(self, model: nn.Module) -> float:
        if self._linear is None:  # at the start, also in a run that is resumed
            start = {f"network.{name}": weight for name, weight in self.weights.items()}
            self._linear = linearize(_Outputs(model, self.output), at=start)
        with torch.no_grad():
            theta = dict(self._linear.named_parameters())
            for name, parameter in model.named_parameters():
                theta[f"network.{name}"].copy_(parameter)
        inputs = self.inputs
        if isinstance(inputs, dict):
            return linearization_error(self._linear, **inputs).overall
        return linearization_error(self._linear, *(inputs if isinstance(inputs, tuple) else (inputs,))).overall

    def state(self) -> dict[str, Any]:
        """Return what a later process needs to compare with the same start."""
        return {"start": self.start, "last": self.last, "weights": self.weights}

    def load(self, state: dict[str, Any]) -> None:
        """Restore it."""
        self.start, self.last, self.weights = state["start"], state["last"], state["weights"]


class _Outputs(nn.Module):
    """A network that returns one tensor."""

    def __init__(self, network: nn.Module, output: Callable[[Any], Tensor]) -> None:
        super().__init__()
        self.network, self._output = network, output

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return self._output(self.network(*args, **kwargs))
