"""Corrected gradients of normalizations that PyTorch gets wrong.

The gradient of batch and instance normalization on the CPU depends on the memory layout of the incoming gradient: where
an axis has length one (a batch of one sample, an image of one row), two layouts look alike, and PyTorch 2.13 takes one
for the other. A gradient of the usual layout is always right, so the incoming one is brought into it.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

_NORMALIZATIONS = {F.batch_norm, F.instance_norm, torch.batch_norm, torch.instance_norm}


def correct_gradient(func: Callable[..., Any], result: Any) -> bool:
    """Correct the gradient of a result if the operation is one of those, and return whether it is."""
    if func not in _NORMALIZATIONS:
        return False
    if isinstance(result, Tensor) and result.requires_grad:
        result.register_hook(_usual)
    return True


def _usual(gradient: Tensor) -> Tensor | None:
    return None if gradient.is_contiguous() else gradient.clone(memory_format=torch.contiguous_format)


class CorrectedNorms(TorchFunctionMode):
    """A context that corrects the gradients of normalizations called inside of it.

    Attributes:
        needed: Whether one was called.
    """

    def __init__(self) -> None:
        super().__init__()
        self.needed = False

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.needed |= correct_gradient(func, result)
        return result
