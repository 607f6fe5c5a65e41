"""A network at fixed weights, for a posterior: its outputs, and kernels of its samples."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab._copying import copy_model
from tangentlab._errors import TangentError
from tangentlab._memory import available, parse_bytes
from tangentlab.kernels import NTKOperator, SketchedKernel, ntk, sketch
from tangentlab.kernels.internal import Network, Options, ParametersLike, Samples

READOUTS = ("full", "pntk", "per_class")
_BATCH = 512
"""Samples per forward pass."""


class Tangent:
    """A copy of a network in evaluation mode, with the options of its kernels.

    Args:
        model: The network. It is copied and not changed.
        readout: ``"full"``, ``"pntk"`` or ``"per_class"``.
        parameters: Which parameters are uncertain.
        output: Takes the tensor of outputs from what the model returns.
        input: Takes the model's input from an item.
        dtype: Precision of the network and its kernels.
        device: Where to compute.
        batch_size: Samples per pass.
        memory_budget: Of the kernels.
        progress: Progress bars of the kernels.
    """

    def __init__(
        self,
        model: nn.Module,
        readout: str = "full",
        *,
        parameters: ParametersLike = None,
        output: Callable[[Any], Tensor] | None = None,
        input: Callable[[Any], Any] | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        batch_size: int | None = None,
        memory_budget: int | float | str | None = None,
        progress: bool | None = None,
    ) -> None:
        if readout not in READOUTS:
            raise TangentError(
                f"The readout is {readout!r}.",
                "The posterior is one of all outputs.",
                'Use "full", "pntk" (one kernel for every output) or "per_class" (outputs without covariance).',
            )
        if not isinstance(model, nn.Module):
            raise TangentError(
                f"The model is of type {type(model).__name__}.", "", "Pass a torch.nn.Module: the trained network."
            )
        names = _names(model, parameters)
        self.model = copy_model(model, dtype=dtype, device=device).eval()
        self.readout, self._output, self._input = readout, output, input
        self._network = Network(self.model, "full", parameters=names, output=self._output, dtype=dtype, device=device)
        self._options: dict[str, Any] = {
            "parameters": names,
            "output": self._output,
            "dtype": dtype,
            "device": device,
            "batch_size": batch_size,
            "memory_budget": memory_budget,
        }
        self._batch, self._progress = Options(batch_size=batch_size).batch_size or _BATCH, progress
        self._kept: dict[Any, Any] | None = None

    @property
    def device(self) -> torch.device:
        """Where results are."""
        return self._network.device

    @property
    def dtype(self) -> torch.dtype:
        """The precision of kernels."""
        return self._network.dtype

    @property
    def room(self) -> int:
        """Bytes that matrices may take."""
        budget = self._options["memory_budget"]
        return int(0.6 * available(self.device)) if budget is None else parse_bytes(budget)

    def rows_at_once(self, numbers_per_row: int) -> int:
        """Return how many rows of so many float64 numbers take a quarter of the memory, at most 1 GiB; at least one.

        Each batch of new samples costs the passes of all training samples again, so that few large batches are best.
        """
        return max(1, min(2**27, self.room // 32) // max(1, numbers_per_row))

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The parameters that are uncertain, by name."""
        return self._network.parameters

    def read(self, x: Any) -> Samples:
        """Return the samples in what a user passes."""
        if isinstance(x, Samples):
            return x
        cast = self._network.cast
        return Samples(x, device=self.device, dtype=cast, input=self._input, model=self.model, name="x")

    def outputs(self, samples: Samples) -> Tensor:
        """Compute f, (N, O), float64."""
        return self._network.values_on(samples, self._batch).double()

    def gram(self, x: Any, other: Any = None) -> Tensor:
        """Compute the kernel of inputs: (N, O, M, O), (N, M) or (O, N, M) by the readout; float64."""
        return self._computed("gram", x, other, {"progress": self._progress})

    def own(self, x: Any) -> Tensor:
        """Compute the kernel of each sample with itself: (N, O, O), (N,) or (O, N); float64."""
        return self._computed("own", x, None, {"progress": False, "diagonal": True})

    def _computed(self, what: str, x: Any, other: Any, options: dict[str, Any]) -> Tensor:
        kernel: Tensor = self._once(
            (what, id(x), id(other)),
            lambda: ntk(self.model, x, other, readout=self.readout, **options, **self._options),
        )
        return kernel.double()

    def _once(self, key: Any, compute: Callable[[], Any]) -> Any:
        """Return what was computed for a key while remembering; otherwise, or the first time, compute it."""
        if self._kept is None:
            return compute()
        if key not in self._kept:
            self._kept[key] = compute()
        return self._kept[key]

    @contextmanager
    def remembering(self) -> Iterator[None]:
        """Store the kernels and features of new samples, which are asked for again with other hyperparameters.

        They go by the identity of the inputs, which the caller keeps alive.
        """
        self._kept = {}
        try:
            yield
        finally:
            self._kept = None

    def operator(self, x: Any, other: Any = None) -> NTKOperator:
        """Return the full kernel as an operator."""
        return NTKOperator(self.model, x, other, readout="full", **self._options)

    def sketch(self, x: Any, k: int, seed: int) -> SketchedKernel:
        """Return features of the full kernel."""
        options = {**self._options, "progress": self._progress}
        found: SketchedKernel = self._once(
            ("sketch", id(x), k, seed), lambda: sketch(self.model, x, k, readout="full", seed=seed, **options)
        )
        return found


def _names(model: nn.Module, parameters: ParametersLike) -> Any:
    """Return the choice of parameters with names for tensors, which the copy of the network does not have."""
    chosen: Any = parameters.parameters() if isinstance(parameters, nn.Module) else parameters
    if chosen is None or isinstance(chosen, str) or callable(chosen):
        return chosen
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [names.get(id(one), one) for one in ([chosen] if isinstance(chosen, Tensor) else chosen)]
