"""A model with its options: which parameters count, what its outputs are, where and in which precision it runs."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab._copying import check_place, copy_model
from tangentlab._errors import TangentError
from tangentlab.kernels._inputs import Batch, Samples, all_finite, call_model, describe
from tangentlab.kernels._norm_gradients import CorrectedNorms
from tangentlab.kernels._parameters import ParametersLike, refuse_unusable, select_parameters
from tangentlab.kernels._readout import Readout, ReadoutLike, linear_readout, takes_targets
from tangentlab.kernels._sample_readout import bind
from tangentlab.kernels._side_effects import steadily


class Recording(AbstractContextManager[Any]):
    """A context manager that sees the operations of a forward pass."""

    def begin(self, batch: Any) -> None:
        """Record the model's inputs before the forward pass."""


class Network:
    """A model with its tracked parameters, evaluated to readouts.

    The user's model is never changed: where ``dtype`` or ``device`` differ from its own, a copy is used.

    Args:
        model: The module.
        readout: What is differentiated: combinations of outputs, or a function of a sample's outputs and its target.
        parameters: Which parameters count: None for all that require gradients; names, prefixes of names
            ("layer1" stands for everything in it) or patterns ("*.bias"); parameters themselves; or a function of
            name and parameter.
        output: Takes the tensor of outputs from what the model returns; None for the tensor itself, or its ``logits``.
        dtype: Precision to compute in; None for the model's.
        device: Where to compute; None for the model's device.
    """

    def __init__(
        self,
        model: nn.Module,
        readout: ReadoutLike = "full",
        *,
        parameters: ParametersLike = None,
        output: Callable[[Any], Tensor] | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TangentError(
                f"The model is of type {type(model).__name__}.",
                "Parameters are found in a torch.nn.Module.",
                "Wrap the function in a module whose parameters are nn.Parameter.",
            )
        if output is not None and not callable(output):
            raise TangentError(
                f"output= is {output!r}.",
                "It takes the tensor of outputs from what the model returns.",
                "Pass a function, for instance output=lambda r: r.logits.",
            )
        if torch.is_inference_mode_enabled():
            raise TangentError(
                "torch.inference_mode() is on.",
                "It forbids gradients.",
                "Leave that block, or use torch.no_grad() instead.",
            )
        chosen = select_parameters(model, parameters)
        refuse_unusable(model, chosen)
        first = next(iter(chosen.values()))
        self.device = check_place(dtype, device) or first.device
        self.dtype = dtype or first.dtype
        self._given = model
        if any(p.dtype != self.dtype or p.device != self.device for p in model.parameters()):
            model = copy_model(model, dtype=dtype, device=self.device)
            named = dict(model.named_parameters())
            chosen = {name: named[name] for name in chosen}
        self.model = model
        self.parameters: dict[str, Tensor] = dict(chosen)
        self.cast = dtype
        self._coarsest = max(torch.finfo(p.dtype).eps for p in model.parameters())
        if self.device.type == "cuda" and self.dtype == torch.float32:
            self._coarsest = max(self._coarsest, _tensor_float_rounding())
        self.normalizes: bool | None = None
        """Whether the model calls normalizations whose gradients are corrected; None if not known."""
        self.draws = False
        """Whether a forward pass draws random numbers that it does not use."""
        self._output = output
        self._spec = readout
        self._readout: Readout | None = None
        self.harmless: set[str] = set()
        """Attributes that a forward pass changes without an effect on the outputs; the change is undone."""

    @property
    def kernel_dtype(self) -> torch.dtype:
        """The precision in which kernels are added up and returned: that of the network, and single at least."""
        return self.dtype if self.dtype.itemsize >= 4 else torch.float32

    def converted(self, dtype: torch.dtype) -> "Network":
        """Return the network as it was given, in another precision."""
        names, output = list(self.parameters), self._output
        return Network(self._given, self._spec, parameters=names, output=output, dtype=dtype, device=self.device)

    def tolerance(self, double: float, single: float, half: float) -> float:
        """Return which relative error is still rounding, by the coarsest precision that the model computes in."""
        return double if self._coarsest < 1e-12 else single if self._coarsest < 1e-6 else half

    @property
    def rounding(self) -> float:
        """The relative rounding error of the coarsest precision that the model computes in."""
        return self._coarsest

    def notice(self, tensors: Iterable[Tensor]) -> None:
        """Record the precisions of intermediate tensors."""
        epsilons = [torch.finfo(t.dtype).eps for t in tensors if t.is_floating_point() or t.is_complex()]
        self._coarsest = max([self._coarsest, *epsilons])

    @property
    def readout(self) -> Readout:
        """The readout, bound to the model's outputs once the model has run."""
        assert self._readout is not None, "run the model once first"
        return self._readout

    def _run(self, inputs: Any, count: int) -> Any:
        """Return what the model returns for its inputs."""
        try:
            return call_model(self.model, inputs)
        except TangentError:
            raise
        except (RuntimeError, TypeError, ValueError, IndexError, AssertionError) as error:
            raise TangentError(
                f"The model fails on a batch of {count} samples, {describe(inputs)}: {_first_line(error)}",
                "Shapes, dtypes and devices must fit, and the model must take batches of any size. Its parameters "
                f"are {str(self.dtype).removeprefix('torch.')} on {self.device}.",
                "The first axis of x counts samples (x[None] for one); the other axes are those of one sample. dtype= "
                "and device= convert both model and data. Call model(x) yourself to see the whole error.",
            ) from error

    def _call(self, inputs: Any, count: int) -> Any:
        """Return the outputs in what the model returns for its inputs: by the user's ``output``, or its logits."""
        result = self._run(inputs, count)
        if self._output is None:
            return logits_of(result)
        try:
            return self._output(result)
        except TangentError:
            raise
        except (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError) as error:
            raise TangentError(
                f"output= fails on what the model returns, a {type(result).__name__}: {_first_line(error)}",
                "It takes the tensor of outputs from it.",
                "Pass for instance output=lambda r: r.logits or output=lambda r: r[0].",
            ) from error

    def _checked(self, result: Any, count: int) -> Tensor:
        """Return the outputs, (B, ...), or refuse them."""
        if not isinstance(result, Tensor):
            raise TangentError(
                f"The model returns {type(result).__name__}, not a tensor.",
                "Only a tensor can be differentiated.",
                "Pass output=, for instance output=lambda r: r.logits or output=lambda r: r[0].",
            )
        if result.ndim == 0 or result.shape[0] != count:
            raise TangentError(
                f"{count} samples give outputs of shape {tuple(result.shape)}.",
                "The first axis of the outputs must count the samples.",
                "Return one row per sample, without reducing over the batch; pass output= to rearrange.",
            )
        if result.numel() == 0:
            raise TangentError(
                f"The outputs have shape {tuple(result.shape)}.",
                "There is nothing to differentiate.",
                "Return at least one output per sample.",
            )
        if not result.is_floating_point():
            raise TangentError(
                f"The outputs are {str(result.dtype).removeprefix('torch.')}.",
                "Only real outputs have gradients.",
                "Return logits, not predictions.",
            )
        if not all_finite(result.detach()):
            raise TangentError(
                "The model's outputs hold NaN or infinite values.",
                "The kernel would hold them, too.",
                "Check the weights and the scale of the inputs.",
            )
        return result if result.ndim > 1 else result.unsqueeze(1)

    def outputs(self, batch: Batch, count: int, recorder: "Recording | None" = None) -> Tensor:
        """Compute the outputs of a batch, (B, ...); a recorder sees the model's own operations and nothing else."""

        def call() -> Any:
            with recorder or self._sound(copies, count), self._kept_generators():
                return self._call(copies, count)

        def again() -> Any:
            with self._kept_generators(always=True):
                return self._call(_copied(batch.inputs), count)

        copies = _copied(batch.inputs)  # a forward pass may write to its inputs
        if recorder is not None:
            recorder.begin(copies)
        tolerance = self.tolerance(1e-10, 1e-5, 1e-2)
        result = steadily(self.model, call, again, tolerance, self.harmless)
        return self._checked(result, count)

    def _sound(self, inputs: Any, count: int) -> AbstractContextManager[Any]:
        """Return the context of an unrecorded pass: none, unless the model has normalizations to be corrected.

        Whether it has shows only under a mode, which could change the control flow, so that is tried separately.
        """
        if self.normalizes is None:
            with torch.no_grad(), CorrectedNorms() as trial:
                self._run(_copied(inputs), count)
            self.normalizes = trial.needed
        return CorrectedNorms() if self.normalizes else nullcontext()

    def _kept_generators(self, always: bool = False) -> AbstractContextManager[Any]:
        """Return a context that restores the random number generators if the model draws numbers it does not use."""
        devices = [self.device] if self.device.type == "cuda" else []
        return torch.random.fork_rng(devices) if self.draws or always else nullcontext()

    def values(self, batch: Batch, count: int, recorder: "Recording | None" = None) -> Tensor:
        """Compute the readouts of a batch, (B, R)."""
        return self.read(self.outputs(batch, count, recorder), batch)

    def values_on(self, samples: Samples, batch_size: int) -> Tensor:
        """Compute the readouts of all samples, (N, R), without gradients."""
        parts = []
        with torch.no_grad():
            for start in range(0, len(samples), batch_size):
                count = min(batch_size, len(samples) - start)
                parts.append(self.values(samples.batch(slice(start, start + count)), count))
        return torch.cat(parts)

    @property
    def takes_targets(self) -> bool:
        """Whether the readout is a function of a sample's outputs and its target."""
        return takes_targets(self._spec)

    def refuse_targets(self, samples: Samples) -> None:
        """Refuse targets that the readout is not defined for at once, unless a Dataset holds them."""
        if self.takes_targets and samples.known_targets is not None:
            self.readout.refuse_targets(samples.known_targets)

    def read(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Compute the readouts of the outputs of a batch, (B, R)."""
        if self._readout is None:
            spec = self._spec
            if takes_targets(spec):
                self._readout = bind(spec, outputs, batch, self.parameters.values())
            else:
                self._readout = linear_readout(spec, outputs[0].numel())
        return self._readout(outputs, batch)


def logits_of(result: Any) -> Any:
    """Return the ``logits`` of what models of the transformers library return; anything else as it is."""
    return result if isinstance(result, Tensor) else getattr(result, "logits", result)


def _copied(inputs: Any) -> Any:
    """Return a copy of the inputs in memory of its own."""
    if isinstance(inputs, Tensor):
        return inputs.clone()
    if isinstance(inputs, Mapping):
        return {key: _copied(part) for key, part in inputs.items()}
    return tuple(map(_copied, inputs)) if isinstance(inputs, tuple) else inputs


def _tensor_float_rounding() -> float:
    """Return the rounding of float32 products on a GPU if the user has PyTorch use TF32 there, which has ten bits."""
    allowed = torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32
    return 2.0**-10 if allowed else 0.0


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"
