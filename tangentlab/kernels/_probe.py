"""The probe: two forward passes that find out how a model uses its parameters, and check that this is right.

It runs two samples, and then these two with others, and compares the two runs. Then it runs one sample alone, without
recording, and compares its outputs and, parameter by parameter, the gradients that the rules give for it in the second
run with plain automatic differentiation; where there are many samples, up to three of them. A parameter for which
anything is unclear goes through the exact fallback; a model whose samples influence each other is refused. Where a
forward pass could place samples by their content (see :mod:`tangentlab.kernels._dataflow`), a few samples are not
enough, and every batch is checked.

Where the factors of all samples are wanted, the second run is their first batch, and nothing of it is computed again.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab.kernels._agreement import Agreement
from tangentlab.kernels._dataflow import hidden_consumers
from tangentlab.kernels._findings import Findings, FirstBatch, parameter_nodes
from tangentlab.kernels._gradients import output_gradients
from tangentlab.kernels._inputs import Batch, Samples
from tangentlab.kernels._kinks import disagreeing_in_double
from tangentlab.kernels._network import Network
from tangentlab.kernels._probe_record import Recorded, record_probe
from tangentlab.kernels._record import SeenUse
from tangentlab.kernels._side_effects import Undisturbed

_TOLERANCE = (1e-8, 1e-3, 5e-2)
"""Relative disagreement that is still rounding in double, single and half precision."""
_LEAST = 3
"""Samples in the second pass, at least."""


@torch.enable_grad()
def probe(network: Network, samples: Samples, room: Callable[[int], int] = lambda _: 0) -> Findings:
    """Find out how ``network`` uses its parameters on data like ``samples``.

    Args:
        network: The network.
        samples: The samples.
        room: Returns, from the memory that the forward pass of one sample keeps, how many samples a batch may have;
            less than three if no factors of all samples are wanted.

    Raises:
        TangentError: The samples influence each other, the forward pass is random or changes the model.
    """
    last = len(samples) - 1
    ahead = False

    def second(first: Recorded) -> Sequence[int]:
        """Return the samples of the second pass: those of a batch, or the first, the last and one in the middle."""
        nonlocal ahead
        network.read(first.outputs, first.batch)
        activations = first.recorder.kept_bytes // len(first.samples) + network.readout.working_bytes(first.outputs)
        size = min(room(activations), max(_LEAST, len(samples)))
        ahead = size >= _LEAST
        if not ahead or len(samples) < _LEAST:
            return [0, last // 2, last]  # data sets are often sorted
        return [*range(size - 1), last]

    few, more = record_probe(network, samples, [0, last], second)
    small, large = few.recorder, more.recorder
    network.notice(t for step in small.log for t in step.outputs)
    tolerance = network.tolerance(*_TOLERANCE)
    places = [list(more.samples).index(sample) for sample in few.samples]
    same_steps = [step.name for step in small.log] == [step.name for step in large.log]
    for recorder in (small, large):
        recorder.log.clear()  # which holds every intermediate result; a backward pass needs fewer
    if len(more.samples) > _LEAST and not (same_steps and _alike(few.outputs, more.outputs[places], tolerance)):
        # Some sample among many may be an exception, whose batch is for the comparison of single samples to judge.
        del few, more, small, large
        return probe(network, samples)
    _refuse_influence(few.outputs, more.outputs[places], tolerance, "a third joins the batch")
    single, batch = _alone(network, samples, last)
    fallback: dict[str, str] = {}
    if not _alike(few.outputs[1:], single, tolerance):
        with Undisturbed(network.model, network.device, values=False):
            unrecorded = network.outputs(samples.batch(few.samples), len(few.samples))
        _refuse_influence(unrecorded[1:], single, tolerance, "the other leaves the batch")
        fallback = dict.fromkeys(network.parameters, "recording changes the outputs")
    del few, small, recorder
    values = network.read(more.outputs, more.batch)
    if not values.requires_grad:
        raise _independent()
    hidden = hidden_consumers(more.outputs, parameter_nodes(large))
    fallback = fallback or {**large.unruled, **dict.fromkeys(hidden.consumed, "hidden code")}
    if not same_steps:
        fallback = dict.fromkeys(network.parameters, "changing control flow")
    agreement = Agreement(network, len(samples), tolerance)
    agreement.add_plain(last, network.read(single, batch))
    reached = {n for n, p in network.parameters.items() if id(p) in hidden.leaves or agreement.plain[n] is not None}
    silent = [name for name in network.parameters if name not in reached | hidden.consumed]
    unused = frozenset(name for name in silent if not _used(name, large.uses))
    fallback = {name: reason for name, reason in fallback.items() if name not in unused}
    candidates = [n for n in network.parameters if n not in fallback and n not in unused]
    wary = hidden.found or large.flow.moves
    ahead = ahead and not wary and bool(candidates)
    uses = large.uses if candidates else []
    first = FirstBatch(more.samples, uses, output_gradients(agreement.weighted(values, ahead), uses, len(values)))
    for name in agreement.disagreeing(
        candidates,
        first,
        lambda n: network.read(*_alone(network, samples, n)),
        lambda doubts: disagreeing_in_double(network, samples, doubts, large),
    ):
        fallback[name] = "gradient check"
    if not large.tape.readings and not wary:
        undecided = frozenset[str]()
    else:  # where nothing is recorded, nothing shows that another sample uses what these do not
        undecided = unused if unused.union(fallback).issuperset(network.parameters) else frozenset()
    unused -= undecided
    if unused.issuperset(network.parameters):
        raise _independent()
    fallback.update(dict.fromkeys(undecided, "not used by the probed samples"))
    skipped = unused.union(fallback)
    return Findings(
        places=large.decisions,
        fallback=fallback,
        unused=unused,
        uses=[seen.outline() for seen in large.uses if not skipped.issuperset(seen.source.parameters)],
        trusted=[] if wary else [large.tape],
        opaque=hidden.found,
        activation_bytes=large.kept_bytes // len(more.samples) + network.readout.working_bytes(more.outputs),
        probed=agreement.probed(bool(fallback)),
        first=[first] if ahead else [],
    )


def _independent() -> TangentError:
    return TangentError(
        "The outputs do not depend on the chosen parameters.",
        "Every gradient is zero.",
        "Look for a detach() or no_grad() in the forward pass, or choose other parameters.",
    )


def _used(name: str, uses: Sequence[SeenUse]) -> bool:
    return any(name in seen.source.parameters for seen in uses)


def _alone(network: Network, samples: Samples, number: int) -> tuple[Tensor, Batch]:
    """Return the outputs of one sample alone, (1, ...), by a pass that is not recorded, and its batch."""
    with Undisturbed(network.model, network.device, values=False):
        batch = samples.batch([number])
        return network.outputs(batch, 1), batch


def _alike(one: Tensor, two: Tensor, tolerance: float) -> bool:
    one, two = one.detach().double(), two.detach().double()
    return float((one - two).norm()) <= tolerance * float(two.norm())


def _refuse_influence(one: Tensor, two: Tensor, tolerance: float, event: str) -> None:
    if not _alike(one, two, tolerance):
        change = float((one - two).detach().norm()) / max(float(two.detach().norm()), 1e-300)
        raise TangentError(
            f"The outputs of samples change by {change:.1e} (relative) when {event}.",
            "Samples influence each other, so a kernel between two of them does not exist.",
            "Call model.eval(); replace normalization over the batch by GroupNorm or LayerNorm; do not reduce "
            "over the first axis.",
        )
