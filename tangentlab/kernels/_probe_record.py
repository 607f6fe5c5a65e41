"""Recording a probe: two forward passes compared, to find out where each tensor has its samples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._layouts import parts_of
from tangentlab.kernels import _composites as composites
from tangentlab.kernels import _layout as layout
from tangentlab.kernels._dataflow import DataFlow, Step, full_name, plain_name
from tangentlab.kernels._inputs import Batch, Samples
from tangentlab.kernels._inputs import tensors as inputs_of
from tangentlab.kernels._network import Network
from tangentlab.kernels._norm_gradients import correct_gradient
from tangentlab.kernels._random_draws import RandomDraws, generators, same_generators
from tangentlab.kernels._record import ParameterSource, Place, Recorder, apart, differentiable
from tangentlab.kernels._row_moves import tensors
from tangentlab.kernels._side_effects import Undisturbed

_SHAPE_ONLY = frozenset("type_as to expand_as view_as reshape_as broadcast_to".split())
"""Operations that take from their second operand how a result looks, and nothing of what is in it."""


class ProbeRecorder(Recorder):
    """The recorder of a probe, which finds where samples lie.

    It keeps every tensor that an operation gives. Given the log of a run with fewer samples, it compares the two.

    Args:
        parameters: The tracked parameters by name.
        batch: Number of samples in the pass.
        device: Where the model is.
        before: The run with fewer samples, or None in the first run.
        locate: Returns where an output has its samples, given the same output of the first run.
    """

    def __init__(
        self,
        parameters: dict[str, Tensor],
        batch: int,
        device: torch.device,
        before: "ProbeRecorder | None" = None,
        locate: Callable[[Tensor, Tensor], Place] = lambda *_: None,
    ) -> None:
        super().__init__(parameters, batch, iter(()))
        self.device, self.before, self.locate = device, before, locate
        self.log: list[Step] = []
        self.decisions: list[tuple[str, Place]] = []
        self.flow, self.draws = DataFlow(), RandomDraws(device)
        self.normalizes = False
        """Whether a normalization was seen whose gradient is corrected."""
        self.kept_bytes = 0
        """Memory that a backward pass through the operations so far may need."""

    def randomness_matters(self) -> bool:
        """Return whether random numbers were drawn that may change the outputs."""
        return self.draws.end()

    def begin(self, batch: Any) -> None:
        self.flow.begin(inputs_of(batch))
        self.draws = RandomDraws(self.device)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if composites.parts(func, args) is not None:
            return super().__torch_function__(func, types, args, kwargs)
        kwargs = kwargs or {}
        given = list(tensors((args, kwargs)))
        shapes = [t.shape for t in given]  # before an operation in place changes them
        result = self.draws.follow(func, given, lambda: func(*args, **kwargs))
        self.tape.note(func, result)
        self.normalizes |= correct_gradient(func, result)
        outputs = list(tensors(result))
        name = full_name(func)
        if not outputs and not name.endswith("__setitem__"):
            return result
        found = [self.sources[id(t)] for t in given if id(t) in self.sources]
        if found:
            result = apart(func, args, result)
            outputs = list(tensors(result))
        self.kept_bytes += sum(_bytes_of_own(t) for t in outputs if all(t is not operand for operand in given))
        # The first run's values are kept as they are now: a later operation may change them in place.
        kept = outputs if self.before is not None else [t.detach().clone() for t in outputs]
        self.log.append(Step(name, shapes, kept))
        if self.before is None:
            return result
        self.flow.follow(func, args, kwargs, outputs, self._same)
        outputs = [t for t in outputs if differentiable(t)]
        if found and outputs:
            self._see(func, args, kwargs, found, outputs)
        return result

    def _derive(
        self, name: str, args: Any, kwargs: dict[str, Any], found: list[ParameterSource], output: Tensor, index: int
    ) -> None:
        # Rows that the content selects can be as many in both runs, or none: that is no function of parameters alone.
        if plain_name(name) not in _SHAPE_ONLY and self.flow.touches(tensors((args, kwargs))):
            for source in found:
                self.unruled.update(dict.fromkeys(source.parameters, name))
        super()._derive(name, args, kwargs, found, output, index)

    @property
    def _same(self) -> Step | None:
        """The latest operation, as it was in the run with fewer samples."""
        assert self.before is not None
        index = len(self.log) - 1
        step = self.before.log[index] if index < len(self.before.log) else None
        fits = step is not None and step.name == self.log[-1].name and len(step.inputs) == len(self.log[-1].inputs)
        return step if fits else None

    def _next_place(self) -> tuple[str, Place]:
        step, same = self.log[-1], self._same
        position = next(i for i, t in enumerate(step.outputs) if differentiable(t))
        place = None if same is None else self.locate(same.outputs[position], step.outputs[position])
        self.decisions.append((step.name, place))
        return self.decisions[-1]


@dataclass(frozen=True)
class Recorded:
    """One of the two forward passes of a probe.

    Attributes:
        samples: Which samples.
        batch: Their inputs and targets.
        recorder: What it did.
        outputs: What it gave, (B, ...).
    """

    samples: Sequence[int]
    batch: Batch
    recorder: ProbeRecorder
    outputs: Tensor


def record_probe(
    network: Network, samples: Samples, two: Sequence[int], more: Callable[[Recorded], Sequence[int]]
) -> tuple[Recorded, Recorded]:
    """Record the forward passes of two samples, and of these two with others.

    Args:
        network: The network.
        samples: The samples.
        two: The samples of the first pass.
        more: Returns those of the second, from what the first one did.
    """
    found: list[Recorded] = []
    network.draws = drawn = False  # so that each pass shows what it draws
    while len(found) < 2:
        before, chosen = (found[0].recorder, more(found[0])) if found else (None, two)
        size, shared = len(chosen), [list(chosen).index(sample) for sample in two]

        def locate(
            before: Tensor, now: Tensor, sizes: tuple[int, int] = (len(two), size), shared: Any = shared
        ) -> Place:
            free = layout.batch_free(before.shape, now.shape)
            return now.shape if free else layout.choose(before, now, sizes, shared)

        recorder = ProbeRecorder(network.parameters, size, network.device, before, locate)
        # What a forward pass writes past the version counters shows in the first; copying the model takes time.
        values = before is None
        with (
            Undisturbed(network.model, network.device, recorder.randomness_matters, values) as calm,
            torch.enable_grad(),
        ):
            if drawn:  # other numbers than before, so that a use out of sight shows in the outputs
                torch.manual_seed(len(samples))
            batch = _steady_batch(samples, chosen, network.device)
            found.append(Recorded(chosen, batch, recorder, network.outputs(batch, size, recorder)))
        drawn |= calm.drawn
        network.normalizes = bool(network.normalizes) or recorder.normalizes
    network.draws = drawn
    return found[0], found[1]


def _steady_batch(samples: Samples, indices: Sequence[int], device: torch.device) -> Any:
    """Return some samples; refuse a data set that draws random numbers when it is read."""
    before = generators(device)
    batch = samples.batch(indices)
    if not same_generators(before, generators(device)):
        raise TangentError(
            "Reading the samples draws random numbers.",
            "A sample is a different one at every reading, so it has no kernel.",
            "Leave random transformations out of the Dataset, or read it once into tensors.",
        )
    return batch


def _bytes_of_own(tensor: Tensor) -> int:
    """Return the memory of a result that a backward pass may need; a view has none of its own."""
    if not tensor.requires_grad or torch._C._functorch.is_functorch_wrapped_tensor(tensor) or tensor._is_view():
        return 0
    return sum(part.numel() * part.element_size() for part in parts_of(tensor))
