"""The probe: two small forward passes that find out how a model uses its parameters, and check that this is right.

It runs two, then three samples, compares the two runs, and compares the gradients that the rules give for three
samples with plain automatic differentiation, parameter by parameter, with a weight of its own for every sample. A
parameter for which anything is unclear goes through the exact fallback; a model whose samples influence each other is
refused. Where a forward pass could place samples by their content (see :mod:`tangentlab.kernels._dataflow`), three
samples are not enough, and every batch is checked.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._layouts import parts_of
from tangentlab._sums import quick_inner, quick_norm
from tangentlab.kernels._dataflow import hidden_consumers
from tangentlab.kernels._findings import Findings, Probed, parameter_nodes
from tangentlab.kernels._gradients import output_gradients, parameter_gradients
from tangentlab.kernels._inputs import Samples
from tangentlab.kernels._network import Network
from tangentlab.kernels._probe_record import SIZES, ProbeRecorder, record_probe
from tangentlab.kernels._record import SeenUse
from tangentlab.kernels._side_effects import Undisturbed

_TOLERANCE = (1e-8, 1e-3, 5e-2)
"""Relative disagreement that is still rounding in double, single and half precision."""


def probe_numbers(parameters: dict[str, Tensor]) -> int:
    """Return how many numbers the check holds: all gradients, and one parameter's of three samples or all again."""
    sizes = [p.numel() for p in parameters.values()]
    return max(sum(sizes) + 3 * max(sizes), 2 * sum(sizes))


@torch.enable_grad()
def probe(network: Network, samples: Samples) -> Findings:
    """Find out how ``network`` uses its parameters on data like ``samples``.

    Raises:
        TangentError: The samples influence each other, the forward pass is random or changes the model.
    """
    last = len(samples) - 1
    spread = [0, last, last // 2]  # data sets are often sorted
    small, large, first, outputs = record_probe(network, samples, spread)
    network.notice(t for step in small.log for t in step.outputs)
    tolerance = network.tolerance(*_TOLERANCE)
    _refuse_influence(first, outputs[: SIZES[0]], tolerance, "a third joins the batch")
    with Undisturbed(network.model, network.device, values=False):
        single = network.outputs(samples.batch([last]), 1)
    fallback: dict[str, str] = {}
    if not _alike(first[1:], single, tolerance):
        with Undisturbed(network.model, network.device, values=False):
            unrecorded = network.outputs(samples.batch(spread[: SIZES[0]]), SIZES[0])
        _refuse_influence(unrecorded[1:], single, tolerance, "the other leaves the batch")
        fallback = dict.fromkeys(network.parameters, "recording changes the outputs")
    values = network.read(outputs, samples.batch(spread))
    if not values.requires_grad:
        raise _independent()
    opaque, consumed = hidden_consumers(outputs, parameter_nodes(large))
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
    if not large.tape.readings and not opaque and not large.flow.moves:
        undecided = frozenset[str]()
    else:  # where nothing is recorded, nothing shows that another sample uses what these three do not
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
        uses=[seen for seen in large.uses if not skipped.issuperset(seen.source.parameters)],
        trusted=[] if opaque or large.flow.moves else [large.tape],
        opaque=opaque,
        activation_bytes=_activation_bytes(large, SIZES[1]) + network.readout.working_bytes(outputs),
        probed=Probed(
            tuple(spread),
            *_weights(values.detach()),
            {name: quick_inner(g, g) for name, g in plain.items() if g is not None},
        ),
    )


def _independent() -> TangentError:
    return TangentError(
        "The outputs do not depend on the chosen parameters.",
        "Every gradient is zero.",
        "Look for a detach() or no_grad() in the forward pass, or choose other parameters.",
    )


def _used(name: str, uses: Sequence[SeenUse]) -> bool:
    return any(name in seen.source.parameters for seen in uses)


def _weights(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return fixed, unequal weights of samples and readouts, so that one backward pass checks all of them.

    A gradient that is given to the wrong sample gets the wrong weight and shows.
    """
    generator = torch.Generator().manual_seed(0)
    sample, readout = (0.5 + torch.rand(n, generator=generator, dtype=torch.float64) for n in values.shape)
    return sample.to(values), readout.to(values)


def _plain_gradients(values: Tensor, parameters: dict[str, Tensor]) -> dict[str, Tensor | None]:
    """Compute each parameter's gradient of the weighted sum of readouts by plain automatic differentiation."""
    sample, readout = _weights(values)
    try:
        found = torch.autograd.grad(
            sample @ values @ readout, list(parameters.values()), retain_graph=True, allow_unused=True
        )
    except (RuntimeError, AssertionError, TypeError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise TangentError(
            f"PyTorch cannot differentiate the model: {reason}",
            "The kernel is made of its gradients.",
            "Make sure that loss.backward() works on the same inputs.",
        ) from error
    return {
        name: g.to_dense() if g is not None and g.is_sparse else g for name, g in zip(parameters, found, strict=True)
    }


def _disagreeing(
    network: Network, values: Tensor, uses: list[SeenUse], names: list[str], plain: dict[str, Tensor | None]
) -> list[str]:
    """Return the parameters whose gradients by rule are not those by plain differentiation."""
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
            f"The outputs of samples change by {change:.1e} (relative) when {event}.",
            "Samples influence each other, so a kernel between two of them does not exist.",
            "Call model.eval(); replace normalization over the batch by GroupNorm or LayerNorm; do not reduce "
            "over the first axis.",
        )


def _activation_bytes(recorder: ProbeRecorder, batch: int) -> int:
    storages = {
        part.untyped_storage().data_ptr(): part.untyped_storage().nbytes()
        for step in recorder.log
        for tensor in step.outputs
        if tensor.requires_grad and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        for part in parts_of(tensor)
    }
    return sum(storages.values()) // batch
