r"""Whether each sample's rows lie where the probe says, for a batch that could have placed them by their content.

The factors of a batch rest on two facts: every sample gives in the batch what it gives alone, and the rows that a
parameter is combined with in a sample's place concern that sample's readouts and no others. Both are checked for each
sample by itself, so that one misplaced sample among thousands is found as surely as many:

- outputs in the batch against outputs alone: one more forward pass, a sample at a time;
- with a weight w_b for each sample, the gradients of sum_b w_b f_b against those of the batch. If rows in place b
  belong to sample b, they are just w_b times as large,

      d/dy_b sum_c w_c f_c = w_b d f_b/dy_b        for every operation's output y, every sample b

  and for weights that are all different, only then: one more backward pass without parameter gradients.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from tangentlab.kernels._dataflow import Tape
from tangentlab.kernels._findings import Findings
from tangentlab.kernels._gradients import output_gradients
from tangentlab.kernels._inputs import Samples
from tangentlab.kernels._network import Network
from tangentlab.kernels._record import Recorder, SeenUse

_ROUNDING = (1e-8, 2e-4, 0.1)
"""Relative disagreement that is still rounding in double, single and half precision."""
_DISTINCT = (1 << 20, 4096, 16)
"""How many weights can be told apart in double, single and half precision; the last are powers of two."""
_OCTAVES = 8


class Misplaced(Exception):
    """The rules do not describe what the model does with these samples."""


def compare(
    network: Network,
    findings: Findings,
    samples: Samples,
    rows: Sequence[int],
    values: Tensor,
    tape: Tape,
    uses: Sequence[SeenUse],
    grads: Sequence[Tensor],
) -> None:
    """Compare a batch with its samples alone, unless its tape can be trusted after a probe of three of them.

    Args:
        network: The network.
        findings: What the probe found; it learns.
        samples: The samples.
        rows: Which make up the batch.
        values: Their readouts, (B, R), with their graph.
        tape: What the forward pass did.
        uses: Uses of parameters.
        grads: Gradients of the readouts with respect to each use's output, (B, R, *).

    Raises:
        Misplaced: Some sample's outputs depend on the others, or some rows belong to another sample.
    """
    if len(rows) == 1:
        return
    tapes = [Recorder(network.parameters, 1, iter(())) for _ in rows]
    with torch.enable_grad():  # some modules take another way where gradients are off
        parts = [network.values(samples.batch([n]), 1, r).detach() for n, r in zip(rows, tapes, strict=True)]
    _compare_outputs(network, torch.cat(parts), values)
    same = [n for n, r in zip(rows, tapes, strict=True) if r.tape == tape][:1]
    others = [n for n in (rows[0], rows[-1], rows[len(rows) // 2]) if n not in same]
    if same and len(others) > 1 and findings.learn(network, samples, [*same, *others[:2]], tape):
        return
    _compare_owners(network, values, uses, grads)


def _compare_outputs(network: Network, alone: Tensor, values: Tensor) -> None:
    alone, together = alone.double(), values.detach().double()
    scale = alone.norm(dim=1)
    error = (together - alone).norm(dim=1)
    tolerance = network.tolerance(*_ROUNDING)
    # Readouts that nearly cancel (a sum of normalized outputs) are rounding of the typical size.
    if not bool((error <= tolerance * (scale + scale.square().mean().sqrt())).all()):
        raise Misplaced


def _compare_owners(network: Network, values: Tensor, uses: Sequence[SeenUse], grads: Sequence[Tensor]) -> None:
    count, readouts = values.shape
    tolerance, epsilon = network.tolerance(*_ROUNDING), 32 * network.rounding
    mix = torch.linspace(0.5, 1.5, readouts, dtype=values.dtype, device=values.device)
    for weights in _weightings(count, int(network.tolerance(*_DISTINCT))):
        w = weights.to(values)
        with torch.enable_grad():
            weighted = (w * (values @ mix)).unsqueeze(1) if readouts > 1 else w.unsqueeze(1) * values
        seen: set[int] = set()
        for found, g in zip(output_gradients(weighted, uses, count), grads, strict=True):
            if id(g) in seen:  # several parameters of one operation
                continue
            seen.add(id(g))
            rows = g.flatten(2)
            own = torch.einsum("brk,r->bk", rows, mix.to(rows)) if readouts > 1 else rows[:, 0]
            size = own.norm(dim=1) * w.abs()
            error = (found.flatten(1) - own * w.unsqueeze(1)).norm(dim=1)
            if not bool((error <= tolerance * size + epsilon * size.max()).all()):
                raise Misplaced


def _weightings(count: int, distinct: int) -> Iterator[Tensor]:
    """Yield weights of B samples, no two samples with the same weight in every one of them.

    A sample's number is written in digits of base ``distinct``, one digit per weighting. The weight of a digit is a
    power of two between 1/16 and 16, with either sign.
    """
    number, step = torch.arange(count), 1
    distinct = max(2, min(distinct, count))
    while step < count or step == 1:
        digit = number // step % distinct
        exponent = (digit // 2) * (_OCTAVES / max(1, (distinct + 1) // 2)) - _OCTAVES / 2
        yield torch.where(digit % 2 == 0, 1.0, -1.0).double() * torch.exp2(exponent.double())
        step *= distinct
