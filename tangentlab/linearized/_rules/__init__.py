"""Tangents of operations for which PyTorch's forward mode is slow or missing.

Forward-mode differentiation in PyTorch is correct for every operation that it supports. A rule computes the primal
output with a graph and the tangent without one (the gradient of a linearized model does not need it, see
:mod:`tangentlab.linearized._evaluate`), and shares work between the two. Operations without a rule use forward mode.

Notation: ``x, w, b`` are primal tensors, ``dx, dw, db`` their tangents or None for zero, ``y, dy`` the result.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor

from tangentlab._state import version_of
from tangentlab.linearized._rules._attention import attention, multi_head_attention
from tangentlab.linearized._rules._batch_norm import batch_norm, weight_norm
from tangentlab.linearized._rules._convolution import convolution
from tangentlab.linearized._rules._dense import addmm, gelu, layer_norm, linear, silu
from tangentlab.linearized._rules._embedding import embedding_bag
from tangentlab.linearized._rules._memory_format import (
    AGNOSTIC,
    Abandoned,
    PassSettings,
    is_channels_last,
    ordinary,
    restored,
)
from tangentlab.linearized._rules._pooling import average_pool
from tangentlab.linearized._tangent_mode import TangentMode, writes

__all__ = ["RULES", "Abandoned", "PassSettings", "TangentRules", "restored", "version_of"]

RULES: dict[Any, Callable[..., Any]] = {
    F.conv1d: convolution,
    F.conv2d: convolution,
    F.conv3d: convolution,
    F.batch_norm: batch_norm,
    torch._weight_norm: weight_norm,
    F.avg_pool2d: average_pool,
    F.embedding_bag: embedding_bag,
    F.scaled_dot_product_attention: attention,
    F.multi_head_attention_forward: multi_head_attention,
    F.linear: linear,
    torch.addmm: addmm,
    F.layer_norm: layer_norm,
    F.gelu: gelu,
    F.silu: silu,
}


class TangentRules(TangentMode):
    """A mode in which operations that have a rule use it, and memory formats are kept consistent.

    Args:
        own: As for :class:`TangentMode`.
        lenient: As for :class:`TangentMode`.
        channels_last: Whether the weights of the pass are in channels-last format.
    """

    def __init__(self, own: Mapping[int, str], lenient: bool, channels_last: bool) -> None:
        super().__init__(own, lenient)
        self.channels_last = channels_last
        self._copied = False

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the operation, by its rule if it has one."""
        if self.channels_last:
            args, kwargs = self._arrange(func, args, kwargs)
        rule = RULES.get(func)
        # Rules take dual tensors apart, which PyTorch cannot do inside of vmap and other transforms.
        if rule is None or any(map(is_functorch_wrapped_tensor, (t for t in args if isinstance(t, Tensor)))):
            return super().run(func, args, kwargs)
        return rule(func, *args, **kwargs)

    def _arrange(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        if func is F.conv2d and len(args) > 1 and is_channels_last(args[1]) and args[0].is_contiguous():
            # Once for all uses of the image; otherwise each convolution would convert it.
            return (args[0].contiguous(memory_format=torch.channels_last), *args[1:]), kwargs
        written = writes(func, kwargs)
        if written and self._copied:
            raise Abandoned
        if func in AGNOSTIC:
            return args, kwargs
        (args, kwargs), copied = ordinary((args, kwargs))
        if written and copied:  # the copy would be written to, and the network would continue with the original
            raise Abandoned
        self._copied |= copied
        return args, kwargs
