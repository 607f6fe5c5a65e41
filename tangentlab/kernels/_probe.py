"""The probe: two small forward passes that find out how a model uses its parameters, and check that this is right.

It runs two, then three samples, compares the two runs, and compares the gradients that the rules give for three
samples with plain automatic differentiation, parameter by parameter, with a weight of its own for every sample. A
parameter for which anything is unclear goes through the exact fallback; a model whose samples influence each other is
refused. Where a forward pass could place samples by their content (see :mod:`tangentlab.kernels._trust`), three samples
are not enough, and every batch is checked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab.kernels import _layout as layout
from tangentlab.kernels._gradients import output_gradients, parameter_gradients
from tangentlab.kernels._inputs import Samples
from tangentlab.kernels._network import Network
from tangentlab.kernels._record import BATCH_FREE, Place, Recorder, SeenUse, Witness
from tangentlab.kernels._side_effects import Undisturbed
from tangentlab.kernels._trust import has_hidden_code

_TOLERANCE = (1e-8, 1e-3, 5e-2)
"""Relative disagreement that is still rounding in double, single and half precision."""


def probe_numbers(parameters: dict[str, Tensor]) -> int:
    """Numbers that checking takes: all gradients once and one parameter's for three samples, or all of them twice."""
    sizes = [p.numel() for p in parameters.values()]
    return max(sum(sizes) + 3 * max(sizes), 2 * sum(sizes))


@dataclass
class Findings:
    """What a probe found.

    Attributes:
        places: For each operation on parameters, in order, where its output has its samples.
        fallback: Parameters without a rule, each with the reason.
        unused: Parameters that the outputs do not depend on.
        uses: The uses that a recording keeps, as seen with three samples (their shapes serve the cost model).
        wary: Whether the place of a sample's rows may depend on the data, so that every batch needs a check.
        activation_bytes: Memory that the forward pass of one sample keeps.
    """

    places: list[tuple[str, Place]]
    fallback: dict[str, str]
    unused: frozenset[str]
    uses: list[SeenUse] = field(repr=False)
    wary: bool
    activation_bytes: int

    @property
    def skipped(self) -> frozenset[str]:
        """Parameters whose uses a recording leaves out."""
        return frozenset(self.fallback) | self.unused

    def recorder(self, network: Network, batch: int) -> Recorder:
        """A recorder for a batch of the same kind."""
        return Recorder(network.parameters, batch, iter(self.places), self.skipped)


@torch.enable_grad()
def probe(network: Network, samples: Samples) -> Findings:
    """Find out how ``network`` uses its parameters on data like ``samples``.

    Raises:
        TangentError: The samples influence each other, the forward pass is random or changes the model.
    """
    sizes = (2, 3)
    last = len(samples) - 1
    spread = [0, last, last // 2] if last > 1 else [0, last, 0]  # data sets are often sorted
    small = Witness(network.parameters, sizes[0])
    with Undisturbed(network.model, network.device):
        pair = samples.batch(spread[: sizes[0]])
        first = network.outputs(pair, sizes[0], small)
    network.notice(t for _, outputs in small.log for t in outputs)

    def locate(index: int, name: str, tensor: Tensor) -> Place:
        if index >= len(small.log) or small.log[index][0] != name:
            return None
        position = next(i for i, t in enumerate(large.log[index][1]) if t is tensor)
        before = small.log[index][1][position]
        if layout.batch_free(before.shape, tensor.shape):
            return BATCH_FREE
        return layout.choose(before, tensor, sizes)

    large = Witness(network.parameters, sizes[1], locate)
    with Undisturbed(network.model, network.device):
        outputs = network.outputs(samples.batch(spread), sizes[1], large)
    tolerance = network.tolerance(*_TOLERANCE)
    _refuse_influence(first, outputs[: sizes[0]], tolerance, "a third joins the batch")
    with Undisturbed(network.model, network.device):
        single = network.outputs(samples.batch([last]), 1)
    fallback: dict[str, str] = {}
    if not _alike(first[1:], single, tolerance):
        with Undisturbed(network.model, network.device):
            unrecorded = network.outputs(pair, sizes[0])
        _refuse_influence(unrecorded[1:], single, tolerance, "the other leaves the batch")
        fallback = dict.fromkeys(network.parameters, "recording changes the outputs")
    values = network.read(outputs)
    if not values.requires_grad:
        raise TangentError(
            "the outputs do not depend on the chosen parameters.",
            "every gradient is zero.",
            "look for a detach() or no_grad() in the forward pass, or choose other parameters.",
        )
    fallback = fallback or large.unruled
    if [name for name, _ in small.log] != [name for name, _ in large.log]:
        fallback = dict.fromkeys(network.parameters, "changing control flow")
    plain = _plain_gradients(values, network.parameters)
    unused = frozenset(n for n, gradient in plain.items() if gradient is None and not _used(n, large.uses))
    fallback = {name: reason for name, reason in fallback.items() if name not in unused}
    candidates = [n for n in network.parameters if n not in fallback and n not in unused]
    for name in _disagreeing(network, values, large.uses, candidates, plain):
        fallback[name] = "gradient check"
    skipped = unused.union(fallback)
    return Findings(
        places=large.decisions,
        fallback=fallback,
        unused=unused,
        uses=[seen for seen in large.uses if not skipped.issuperset(seen.source.parameters)],
        wary=large.wary or has_hidden_code(values),
        activation_bytes=_activation_bytes(large, sizes[1]),
    )


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
    except RuntimeError as error:
        raise TangentError(
            f"PyTorch cannot differentiate the model: {str(error).strip().splitlines()[0]}",
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
    scale = max((float(g.norm()) for g in plain.values() if g is not None), default=0.0)
    bad = []
    for name in names:  # one at a time, so that one parameter's gradients are all that is written out
        expected = plain[name]
        each = parameter_gradients([name], network.parameters, uses, grads).get(name)
        if (
            each is None
            or each.dtype != network.parameters[name].dtype
            or each.shape[2:] != network.parameters[name].shape
        ):
            wrong = True  # a use that was not seen, or gradients that are not the parameter's
        else:
            found = torch.tensordot(sample, each.detach().squeeze(1), 1)
            expected = torch.zeros_like(found) if expected is None else expected
            error = float((found - expected).norm())
            wrong = not error <= tolerance * float(expected.norm()) + 1e-3 * tolerance * scale
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
        for _, outputs in witness.log
        for tensor in outputs
        if tensor.requires_grad and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    }
    return sum(storages.values()) // batch
