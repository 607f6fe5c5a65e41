"""The probe: two small forward passes that find out how a model uses its parameters, and check that this is right.

It runs two, then three samples, compares the two runs, and compares the gradients that the rules give for three
samples with plain automatic differentiation, parameter by parameter, with a weight of its own for every sample. A
parameter for which anything is unclear goes through the exact fallback; a model whose samples influence each other is
refused. Where a forward pass could place samples by their content (see :mod:`tangentlab.kernels._trust`), three samples
are not enough, and every batch is checked.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from tangentlab._errors import TangentError
from tangentlab._sums import quick_inner, quick_norm
from tangentlab.kernels import _layout as layout
from tangentlab.kernels._chance import generators, same_generators
from tangentlab.kernels._gradients import output_gradients, parameter_gradients
from tangentlab.kernels._inputs import Samples
from tangentlab.kernels._network import Network
from tangentlab.kernels._record import Place, Recorder, SeenUse, Witness
from tangentlab.kernels._side_effects import Undisturbed
from tangentlab.kernels._trust import Conduct, hidden_consumers

_TOLERANCE = (1e-8, 1e-3, 5e-2)
"""Relative disagreement that is still rounding in double, single and half precision."""
_CONDUCTS = 8
"""Conducts of a model that are told apart; one that reads another value off every batch is compared every time."""


def probe_numbers(parameters: dict[str, Tensor]) -> int:
    """Numbers that checking takes: all gradients once and one parameter's for three samples, or all of them twice."""
    sizes = [p.numel() for p in parameters.values()]
    return max(sum(sizes) + 3 * max(sizes), 2 * sum(sizes))


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
class Findings:
    """What a probe found.

    Attributes:
        places: For each operation on parameters, in order, where its output has its samples.
        fallback: Parameters without a rule, each with the reason.
        unused: Parameters that the outputs do not depend on.
        uses: The uses that a recording keeps, as seen with three samples (their shapes serve the cost model).
        trusted: What forward passes do in which the place of a row cannot depend on the data: a memo that grows as
            batches are looked at more closely.
        opaque: Whether the graph has code that no recorder sees.
        activation_bytes: Memory that the forward pass of one sample keeps.
        probed: The samples that were probed, and what they say about the kernel.
    """

    places: list[tuple[str, Place]]
    fallback: dict[str, str]
    unused: frozenset[str]
    uses: list[SeenUse] = field(repr=False)
    trusted: list[Conduct]
    opaque: bool
    activation_bytes: int
    probed: "Probed"

    @property
    def skipped(self) -> frozenset[str]:
        """Parameters whose uses a recording leaves out."""
        return frozenset(self.fallback) | self.unused

    def without(self, fallback: dict[str, str], unused: frozenset[str]) -> "Findings":
        """Return the findings with another choice of parameters that go through the fallback or are not used."""
        skipped = unused.union(fallback)
        uses = [seen for seen in self.uses if not skipped.issuperset(seen.source.parameters)]
        return replace(self, fallback=fallback, unused=unused, uses=uses)

    def hidden_uses(self, recorder: Recorder, values: Tensor) -> bool:
        """Whether code that no recorder sees consumed a parameter that is not left to the fallback."""
        return not frozenset(self.fallback).issuperset(hidden_consumers(values, _nodes(recorder))[1])

    def recorder(self, network: Network, batch: int) -> Recorder:
        """A recorder for a batch of the same kind."""
        return Recorder(network.parameters, batch, iter(self.places), self.skipped)

    def learn(self, network: Network, samples: Samples, three: Sequence[int], conduct: Conduct) -> bool:
        """Try to trust another conduct than the first probe's, from three samples that show it.

        A mask without padding takes a shortcut, say, and one with padding does not: neither moves any rows.
        """
        if self.opaque or len(self.trusted) >= _CONDUCTS:
            return False
        small, large, _, outputs = _witness(network, samples, three)
        alike = small.conduct.operations == large.conduct.operations and large.conduct == conduct
        opaque = hidden_consumers(outputs, {})[0]
        if not alike or opaque or large.content.moves or large.decisions != self.places:
            return False
        self.trusted.append(conduct)
        return True


_SIZES = (2, 3)
"""Samples in the two passes of a probe."""


def _witness(network: Network, samples: Samples, three: Sequence[int]) -> tuple[Witness, Witness, Tensor, Tensor]:
    """Two and then three samples, every operation seen: both recordings and both outputs."""

    def locate(before: Tensor, now: Tensor) -> Place:
        return now.shape if layout.batch_free(before.shape, now.shape) else layout.choose(before, now, _SIZES)

    found: list[tuple[Witness, Tensor]] = []
    network.draws = drawn = False  # so that each pass shows what it draws
    for size in _SIZES:
        before = found[0][0] if found else None
        witness = Witness(network.parameters, size, network.device, before, locate)
        # What a forward pass writes past the version counters shows in the first; copying the model takes time.
        values = before is None
        with Undisturbed(network.model, network.device, witness.chance_matters, values) as calm, torch.enable_grad():
            if drawn:  # other numbers than before, so that a use out of sight shows in the outputs
                torch.manual_seed(len(samples))
            batch = _steady_batch(samples, three[:size], network.device)
            found.append((witness, network.outputs(batch, size, witness)))
        drawn |= calm.drawn
        network.normalizes = bool(network.normalizes) or witness.normalizes
    network.draws = drawn
    return found[0][0], found[1][0], found[0][1], found[1][1]


def _steady_batch(samples: Samples, indices: Sequence[int], device: torch.device) -> Any:
    """Some samples, refused if reading them draws random numbers."""
    before = generators(device)
    batch = samples.batch(indices)
    if not same_generators(before, generators(device)):
        raise TangentError(
            "reading the samples draws random numbers.",
            "a sample is another one at every reading, so it has no kernel.",
            "leave random transformations out of the Dataset, or read it once into tensors.",
        )
    return batch


@torch.enable_grad()
def probe(network: Network, samples: Samples) -> Findings:
    """Find out how ``network`` uses its parameters on data like ``samples``.

    Raises:
        TangentError: The samples influence each other, the forward pass is random or changes the model.
    """
    last = len(samples) - 1
    spread = [0, last, last // 2] if last > 1 else [0, last, 0]  # data sets are often sorted
    small, large, first, outputs = _witness(network, samples, spread)
    network.notice(t for step in small.log for t in step.outputs)
    tolerance = network.tolerance(*_TOLERANCE)
    _refuse_influence(first, outputs[: _SIZES[0]], tolerance, "a third joins the batch")
    with Undisturbed(network.model, network.device, values=False):
        single = network.outputs(samples.batch([last]), 1)
    fallback: dict[str, str] = {}
    if not _alike(first[1:], single, tolerance):
        with Undisturbed(network.model, network.device, values=False):
            unrecorded = network.outputs(samples.batch(spread[: _SIZES[0]]), _SIZES[0])
        _refuse_influence(unrecorded[1:], single, tolerance, "the other leaves the batch")
        fallback = dict.fromkeys(network.parameters, "recording changes the outputs")
    values = network.read(outputs)
    if not values.requires_grad:
        raise TangentError(
            "the outputs do not depend on the chosen parameters.",
            "every gradient is zero.",
            "look for a detach() or no_grad() in the forward pass, or choose other parameters.",
        )
    opaque, consumed = hidden_consumers(values, _nodes(large))
    fallback = fallback or {**large.unruled, **dict.fromkeys(consumed, "hidden code")}
    if [step.name for step in small.log] != [step.name for step in large.log]:
        fallback = dict.fromkeys(network.parameters, "changing control flow")
    plain = _plain_gradients(values, network.parameters)
    silent = (name for name, gradient in plain.items() if gradient is None and name not in consumed)
    unused = frozenset(name for name in silent if not _used(name, large.uses))
    fallback = {name: reason for name, reason in fallback.items() if name not in unused}
    candidates = [n for n in network.parameters if n not in fallback and n not in unused]
    for name in _disagreeing(network, values, large.uses, candidates, plain):
        fallback[name] = "gradient check"
    if not large.conduct.readings and not opaque and not large.content.moves:
        undecided = frozenset[str]()
    else:  # where nothing is recorded, nothing shows that another sample uses what these three do not
        undecided = unused if unused.union(fallback).issuperset(network.parameters) else frozenset()
    unused -= undecided
    fallback.update(dict.fromkeys(undecided, "not used by the probed samples"))
    skipped = unused.union(fallback)
    return Findings(
        places=large.decisions,
        fallback=fallback,
        unused=unused,
        uses=[seen for seen in large.uses if not skipped.issuperset(seen.source.parameters)],
        trusted=[] if opaque or large.content.moves else [large.conduct],
        opaque=opaque,
        activation_bytes=_activation_bytes(large, _SIZES[1]),
        probed=Probed(
            tuple(spread),
            *_weights(values.detach()),
            {name: quick_inner(g, g) for name, g in plain.items() if g is not None},
        ),
    )


def _nodes(recorder: Recorder) -> dict[Any, tuple[str, ...]]:
    """The parameters behind the nodes of the graph that stand for tensors made of parameters alone."""
    found = {}
    for source in recorder.sources.values():
        with suppress(RuntimeError, AssertionError):  # no graph: a view that was made under no_grad()
            found[get_gradient_edge(source.tensor).node] = source.parameters
    return found


def _used(name: str, uses: Sequence[SeenUse]) -> bool:
    return any(name in seen.source.parameters for seen in uses)


def _weights(values: Tensor) -> tuple[Tensor, Tensor]:
    """Fixed, unequal weights of samples and readouts, so that one backward pass checks all of them.

    A gradient that is given to the wrong sample gets the wrong weight and shows.
    """
    generator = torch.Generator().manual_seed(0)
    sample, readout = (0.5 + torch.rand(n, generator=generator, dtype=torch.float64) for n in values.shape)
    return sample.to(values), readout.to(values)


def _plain_gradients(values: Tensor, parameters: dict[str, Tensor]) -> dict[str, Tensor | None]:
    """For each parameter the gradient of the weighted sum of readouts by plain automatic differentiation."""
    sample, readout = _weights(values)
    try:
        found = torch.autograd.grad(
            sample @ values @ readout, list(parameters.values()), retain_graph=True, allow_unused=True
        )
    except (RuntimeError, AssertionError, TypeError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise TangentError(
            f"PyTorch cannot differentiate the model: {reason}",
            "the kernel is made of its gradients.",
            "make sure that loss.backward() works on the same inputs.",
        ) from error
    return {
        name: g.to_dense() if g is not None and g.is_sparse else g for name, g in zip(parameters, found, strict=True)
    }


def _disagreeing(
    network: Network, values: Tensor, uses: list[SeenUse], names: list[str], plain: dict[str, Tensor | None]
) -> list[str]:
    """The parameters whose gradients by rule are not those by plain differentiation."""
    sample, readout = _weights(values)
    grads = output_gradients((values @ readout).unsqueeze(1), uses, len(values))
    tolerance = network.tolerance(*_TOLERANCE)
    scale = max((quick_norm(g) for g in plain.values() if g is not None), default=0.0)
    bad = []
    for name in names:  # one at a time, so that one parameter's gradients are all that is written out
        expected = plain[name]
        found = parameter_gradients([name], network.parameters, uses, grads, sample).get(name)
        if found is None or found.dtype != network.parameters[name].dtype:
            wrong = True  # a use that was not seen, or gradients that are not the parameter's
        elif found.shape[2:] != network.parameters[name].shape:
            wrong = True
        else:
            found = found.detach()[0, 0]
            error = quick_norm(found if expected is None else found - expected)
            size = 0.0 if expected is None else quick_norm(expected)
            wrong = not error <= tolerance * size + 1e-3 * tolerance * scale
        if wrong:
            bad.append(name)
    return bad


def _alike(one: Tensor, two: Tensor, tolerance: float) -> bool:
    one, two = one.detach().double(), two.detach().double()
    return float((one - two).norm()) <= tolerance * float(two.norm())


def _refuse_influence(one: Tensor, two: Tensor, tolerance: float, event: str) -> None:
    if not _alike(one, two, tolerance):
        change = float((one - two).detach().norm()) / max(float(two.detach().norm()), 1e-300)
        raise TangentError(
            f"the outputs of samples change by {change:.1e} (relative) when {event}.",
            "samples influence each other, so a kernel between two of them does not exist.",
            "call model.eval(); replace normalisation over the batch by GroupNorm or LayerNorm; do not reduce "
            "over the first axis.",
        )


def _activation_bytes(witness: Witness, batch: int) -> int:
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for step in witness.log
        for tensor in step.outputs
        if tensor.requires_grad and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    }
    return sum(storages.values()) // batch
