"""Channels-last memory format inside one pass, invisible from outside.

On CPUs in float32, oneDNN convolves images of many channels up to 20 % faster if the channels are last in memory. A
pass therefore uses the weights of wide convolutions in that format; images are converted at the first of them and stay
in it, because converting them back and forth would cost as much as is gained.

The memory format does not matter, except to code that depends on memory: ``view``, ``as_strided``, ``stride``, writing
in place through a view. In such a pass, functions that are not on the list below therefore get contiguous copies. If
something is written in place once such copies exist, or if anything fails, the pass is abandoned and repeated in the
contiguous format, which the model then keeps.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils import _pytree as pytree

from tangentlab._state import version_of

# Convolutions with at least this many terms per output are wide, for example 3 x 3 over 64 channels.
_WIDE = 512
# The displacement of parameters with at least this many entries stays in memory between calls.
_LARGE = 2**18


class Abandoned(Exception):
    """The error of a pass that cannot continue in channels-last format."""


@dataclass
class PassSettings:
    """The memory format that passes of one model use, and whether they may use forward mode.

    Attributes:
        channels_last: Whether passes may use channels-last format; False after one had to be abandoned.
        distrust: Why forward mode may not have the Jacobian of backward passes; empty if no reason is known.
        rounding: The coarsest relative rounding error of results that depend on the weights, as far as known.
    """

    channels_last: bool = True
    distrust: str = ""
    rounding: float = 0.0
    _kept: dict[str, tuple[Tensor, int, Tensor]] = field(default_factory=dict)
    _room: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)

    def take(self, name: str, weight: Tensor) -> Tensor:
        """Return a weight of the base point in the memory format of the pass; the copy is made once and kept."""
        if not (self.channels_last and _wide(weight)):
            return weight
        source, version, copy = self._kept.get(name, (None, -1, weight))
        if source is not weight or version != version_of(weight):
            copy = weight.contiguous(memory_format=torch.channels_last)
            self._kept[name] = (weight, version_of(weight), copy)
        return copy

    def difference(self, value: Tensor, reference: Tensor) -> Tensor:
        """Compute value - reference in the memory format of the weight, which saves another copy."""
        if self.channels_last and _wide(reference):
            return torch.sub(value, reference, out=torch.empty_like(reference, memory_format=torch.channels_last))
        if value.numel() < _LARGE:
            return value - reference
        # In the same memory in every call: new memory for hundreds of millions of numbers costs more than they do.
        known, out = self._room.get(id(reference), (None, value))
        if known is not reference or out.dtype != value.dtype or out.device != value.device:
            out = torch.empty_like(value, requires_grad=False)
            self._room[id(reference)] = (reference, out)
        return torch.sub(value, reference, out=out)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_kept": {}, "_room": {}}


def _wide(weight: Tensor) -> bool:
    wide = weight.ndim == 4 and weight[0].numel() >= _WIDE and min(weight.shape[:2]) > 1
    return wide and weight.is_contiguous() and onednn(weight)


def onednn(tensor: Tensor) -> bool:
    """Return whether oneDNN convolves a tensor."""
    return (
        tensor.device.type == "cpu"
        and tensor.dtype == torch.float32
        and torch.backends.mkldnn.is_available()
        and bool(torch.backends.mkldnn.enabled)
    )


def is_channels_last(tensor: Tensor) -> bool:
    """Return whether a tensor has four dimensions in channels-last format and is not contiguous otherwise."""
    return tensor.ndim == 4 and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last)


_T: Any = torch.Tensor
# Functions of values and shapes alone, whose results never share memory with an image they were given.
AGNOSTIC: set[Any] = {
    *(F.relu, torch.relu, _T.relu, F.gelu, F.silu, torch.sigmoid, _T.sigmoid, torch.tanh, _T.tanh, F.leaky_relu),
    *(F.elu, F.softplus, F.relu6, F.hardswish, F.batch_norm, F.interpolate, F.pad),
    *(torch.add, _T.add, _T.__add__, _T.__radd__, torch.sub, _T.sub, _T.__sub__, _T.__rsub__),
    *(torch.mul, _T.mul, _T.__mul__, _T.__rmul__, torch.div, _T.div, _T.__truediv__, torch.cat),
    *(torch.mean, _T.mean, torch.sum, _T.sum, torch.amax, _T.amax),
    *(F.conv2d, F.conv_transpose2d, F.avg_pool2d, F.max_pool2d, F.adaptive_avg_pool2d, F.adaptive_max_pool2d),
    *(_T.size, _T.dim, _T.numel, _T.__len__, _T.is_floating_point, _T.shape.__get__, _T.dtype.__get__),
    *(_T.device.__get__, _T.ndim.__get__, _T.requires_grad.__get__, _T.grad_fn.__get__, _T.is_cuda.__get__),
}


def ordinary(arguments: Any) -> tuple[Any, bool]:
    """Copy channels-last tensors among the arguments; return them and whether there were any."""
    flat, structure = pytree.tree_flatten(arguments)
    found = [isinstance(leaf, Tensor) and is_channels_last(leaf) for leaf in flat]
    if not any(found):
        return arguments, False
    return pytree.tree_unflatten(restored(flat), structure), True


def restored(leaves: Iterable[Any]) -> list[Any]:
    """Copy channels-last tensors to the contiguous format; other values stay as they are."""
    return [leaf.contiguous() if isinstance(leaf, Tensor) and is_channels_last(leaf) else leaf for leaf in leaves]
