"""The memory format of a network with convolutions: chosen by a short measurement."""

import copy
import time
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab.linearized import Linearized
from tangentlab.training._losses import Loss
from tangentlab.training._measure import answer

MemoryFormat = Literal["contiguous", "channels_last", "fastest"]
LONG = 1000
"""Updates from which on a run is long enough for a measurement."""
_GAIN = 1.1
"""channels_last must be so many times faster; less may be noise."""
_ROUNDS = 7


def check_format(name: str) -> None:
    """Refuse a name that is not one of the memory formats."""
    if name not in ("contiguous", "channels_last", "fastest"):
        raise TangentError(
            f"There is no memory format {name!r}.", remedy='Use "contiguous", "channels_last" or "fastest".'
        )


def lay_out(model: nn.Module, name: str) -> None:
    """Put the weights of convolutions into a memory format, in place; activations follow them."""
    layout = torch.channels_last if name == "channels_last" else torch.contiguous_format
    model.to(memory_format=layout)  # type: ignore[call-overload]


def fastest(model: nn.Module, inputs: Any, targets: Tensor, loss: Loss) -> str:
    """Measure a few passes of a copy of the network in each format on one minibatch; return the faster one's name.

    Networks without two-dimensional convolutions have one format. Linearized models stay contiguous: their passes gain
    little. The model and the random number generators are not changed.
    """
    if isinstance(model, Linearized) or not any(p.ndim == 4 for p in model.parameters()):
        return "contiguous"
    with torch.random.fork_rng([p.device.index or 0 for p in list(model.parameters())[:1] if p.is_cuda]):
        copies = {name: copy.deepcopy(model).train() for name in ("contiguous", "channels_last")}
        times: dict[str, float] = dict.fromkeys(copies, float("inf"))
        for name, own in copies.items():
            lay_out(own, name)
        for _ in range(_ROUNDS):
            for name, own in copies.items():
                begin = time.perf_counter()
                outputs = answer(own, inputs)
                loss.per_sample(outputs, targets.to(outputs.device)).mean().backward()
                if outputs.is_cuda:
                    torch.cuda.synchronize(outputs.device)
                times[name] = min(times[name], time.perf_counter() - begin)
    return "channels_last" if times["contiguous"] > _GAIN * times["channels_last"] else "contiguous"
