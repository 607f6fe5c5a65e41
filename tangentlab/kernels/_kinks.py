"""Disagreements that are rounding: samples compared once more in double precision.

A ReLU whose input is zero up to rounding is on in one forward pass and off in another, because products of other shapes
round differently; a gradient then changes by the share of that unit. In single precision, one sample in a few of a
large convolutional network has such a unit. A wrong rule, or a sample that is influenced by others, is as wrong in
double precision, where such units are 1e9 times as rare.
"""

import copy

import torch

from tangentlab._errors import TangentError
from tangentlab.kernels._agreement import Agreement
from tangentlab.kernels._findings import FirstBatch
from tangentlab.kernels._gradients import output_gradients
from tangentlab.kernels._inputs import Samples
from tangentlab.kernels._network import Network
from tangentlab.kernels._probe_record import ProbeRecorder
from tangentlab.kernels._record import Recorder

_TOLERANCE = 1e-8
"""Relative disagreement that is still rounding in double precision."""


@torch.enable_grad()
def disagreeing_in_double(
    network: Network, samples: Samples, doubts: dict[int, list[str]], seen: ProbeRecorder
) -> set[str]:
    """Return the parameters whose gradients by rule are not those of plain differentiation in double precision, either.

    These are all of them if the model does something else in that precision than it did before.

    Args:
        network: The network.
        samples: The samples.
        doubts: For each sample that is compared, alone and in a batch with others, which parameters are in doubt.
        seen: The recorded pass in single precision.
    """
    names = {name for chosen in doubts.values() for name in chosen}
    if network.dtype != torch.float32 or len(samples) < 2:
        return names
    same = copy.copy(samples)
    same.dtype = torch.float64
    # At least two in a batch, so that a sample is not alone.
    chosen = list(dict.fromkeys([*doubts, 0, len(samples) - 1]))[: max(2, len(doubts))]
    try:
        double = network.converted(torch.float64)
        recorder = Recorder(double.parameters, len(chosen), iter(seen.decisions))
        values = double.values(same.batch(chosen), len(chosen), recorder)
        if recorder.diverged or recorder.tape != seen.tape or len(recorder.uses) != len(seen.uses):
            return names
        agreement = Agreement(double, 1, _TOLERANCE)
        grads = output_gradients(agreement.weighted(values, False), recorder.uses, len(values))
        batch = FirstBatch(chosen, recorder.uses, grads)
        bad: set[str] = set()
        for sample, own in doubts.items():
            agreement.add_plain(sample, double.values(same.batch([sample]), 1))
            bad.update(agreement.compared(own, batch, sample))
    except TangentError:  # a model that fixes its precision inside
        return names
    return bad
