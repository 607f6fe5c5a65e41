"""Half precision: whether it keeps enough digits of this network's gradients.

float16 has no numbers beyond 65,504 and none below 6e-8, so that gradients overflow or vanish, in every computation
alike; no comparison within float16 shows it. bfloat16 has the range of float32 with two to three digits. So the
gradient that the probe took in half precision is compared with the same one in single precision, once for each kernel.
"""

import copy

import torch

from tangentlab._errors import TangentError
from tangentlab.kernels._findings import Probed
from tangentlab.kernels._inputs import Samples
from tangentlab.kernels._network import Network

_LARGEST = 0.1
"""The relative error of w^T K w of the probed samples that is accepted. Rounding alone makes up to a few percent."""


def refuse_lost_digits(network: Network, samples: Samples, probed: Probed) -> None:
    """Refuse a network in half precision whose kernel of the probed samples is not the one in single precision.

    Raises:
        TangentError: They differ by more than a tenth, or gradients are not finite.
    """
    if network.dtype.itemsize >= 4:
        return
    same = copy.copy(samples)
    same.dtype = torch.float32
    try:
        single = network.converted(torch.float32)
        with torch.enable_grad():
            values = single.values(same.batch(list(probed.samples)), len(probed.samples))
    except TangentError:  # a model that fixes its precision inside has no other to be compared with
        return
    names = list(probed.squares)
    with torch.enable_grad():
        total = probed.weights.to(values) @ values @ probed.readouts.to(values)
        gradients = torch.autograd.grad(total, [single.parameters[name] for name in names], allow_unused=True)
    expected = sum(float(g.double().square().sum()) for g in gradients if g is not None)
    found = sum(probed.squares.values())
    if abs(found - expected) <= _LARGEST * expected:
        return
    name = str(network.dtype).removeprefix("torch.")
    raise TangentError(
        f"In {name} the kernel of a few samples is {found:.3g}, in float32 {expected:.3g}.",
        "Gradients overflow, vanish or lose their digits in that precision.",
        "Pass dtype=torch.float32, or torch.bfloat16 instead of float16, whose range is smaller.",
    )
