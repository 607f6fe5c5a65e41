"""What a probe found: how a network uses its parameters."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from tangentlab.kernels._dataflow import Tape, hidden_consumers
from tangentlab.kernels._inputs import Samples
from tangentlab.kernels._network import Network
from tangentlab.kernels._probe_record import record_probe
from tangentlab.kernels._record import Place, Recorder, SeenUse

_TAPES = 8
"""Tapes of a model that are kept; a model that reads another value off every batch is compared every time."""


@dataclass(frozen=True)
class Probed:
    """The gradient of a weighted sum of a few samples' readouts, by plain automatic differentiation.

    Attributes:
        samples: Which samples.
        weights: One per sample.
        readouts: One per readout.
        squares: The squared norm of each parameter's part of the gradient, J^T w, which is w^T K w of its kernel.
    """

    samples: tuple[int, ...]
    weights: Tensor
    readouts: Tensor
    squares: dict[str, float]


@dataclass(frozen=True)
class FirstBatch:
    """What the probe computed of the samples in its second pass: everything that their factors are made of.

    Attributes:
        samples: Which samples; one may be there twice.
        uses: All uses of parameters.
        grads: Gradients of the readouts with respect to each use's output, (B, R, *).
    """

    samples: Sequence[int]
    uses: Sequence[SeenUse]
    grads: Sequence[Tensor]


@dataclass(frozen=True)
class Findings:
    """What a probe found.

    Attributes:
        places: For each operation on parameters, in order, where its output has its samples.
        fallback: Parameters without a rule, each with the reason.
        unused: Parameters that the outputs do not depend on.
        uses: The uses that a recording keeps, as the probe saw them, without their numbers (shapes serve the cost
            model).
        trusted: What forward passes do in which the place of a row cannot depend on the data: a list that grows
            as more batches are checked.
        opaque: Whether the graph has code that no recorder sees.
        activation_bytes: Memory that the forward pass of one sample keeps.
        probed: The samples that were probed, and what their kernel must be.
    """

    places: list[tuple[str, Place]]
    fallback: dict[str, str]
    unused: frozenset[str]
    uses: list[SeenUse] = field(repr=False)
    trusted: list[Tape]
    opaque: bool
    activation_bytes: int
    probed: "Probed"
    first: list[FirstBatch] = field(default_factory=list, repr=False)
    """The first batch, if the factors of all samples are wanted; it is taken out when they are computed."""

    @property
    def skipped(self) -> frozenset[str]:
        """Parameters whose uses a recording leaves out."""
        return frozenset(self.fallback) | self.unused

    def without(self, fallback: dict[str, str], unused: frozenset[str]) -> "Findings":
        """Return the findings with another choice of parameters that go through the fallback or are not used."""
        skipped = unused.union(fallback)
        uses = [seen for seen in self.uses if not skipped.issuperset(seen.source.parameters)]
        return replace(self, fallback=fallback, unused=unused, uses=uses)

    def take_first(self, rows: range) -> FirstBatch | None:
        """Return the first batch, once, with the uses that a recording keeps; None if it has other samples than these.

        Its memory is given up in any case.
        """
        first = self.first.pop() if self.first else None
        if first is None or not set(first.samples).issubset(rows):
            return None
        pairs = zip(first.uses, first.grads, strict=True)
        kept = [pair for pair in pairs if not self.skipped.issuperset(pair[0].source.parameters)]
        uses, grads = zip(*kept, strict=True) if kept else ((), ())
        return replace(first, uses=uses, grads=grads)

    def hidden_uses(self, recorder: Recorder, values: Tensor) -> bool:
        """Return whether code that no recorder sees consumed a parameter that is not left to the fallback."""
        return not frozenset(self.fallback).issuperset(hidden_consumers(values, parameter_nodes(recorder)).consumed)

    def recorder(self, network: Network, batch: int) -> Recorder:
        """Return a recorder for a batch of the same kind."""
        return Recorder(network.parameters, batch, iter(self.places), self.skipped)

    def learn(self, network: Network, samples: Samples, three: Sequence[int], tape: Tape) -> bool:
        """Try to trust another tape than the first probe's, from three samples that show it.

        For instance, a mask without padding takes a shortcut, and one with padding does not; neither moves any rows.
        """
        if self.opaque or len(self.trusted) >= _TAPES:
            return False
        few, more = record_probe(network, samples, three[:2], lambda _: three)
        small, large = few.recorder, more.recorder
        alike = small.tape.operations == large.tape.operations and large.tape == tape
        opaque = hidden_consumers(more.outputs, {}).found
        if not alike or opaque or large.flow.moves or large.decisions != self.places:
            return False
        self.trusted.append(tape)
        return True


def parameter_nodes(recorder: Recorder) -> dict[Any, tuple[str, ...]]:
    """Return the parameters behind the nodes of the graph that stand for tensors made of parameters alone."""
    found = {}
    for source in recorder.sources.values():
        with suppress(RuntimeError, AssertionError):  # no graph: a view that was made under no_grad()
            found[get_gradient_edge(source.tensor).node] = source.parameters
    return found
