"""Operations that offer themselves to a recorder whole, and are made of operations with rules."""

import types
from collections.abc import Callable, Sequence
from typing import Any

import torch.nn.functional as F

from tangentlab.kernels._recurrent import unrolled


def parts(func: Callable[..., Any], args: Sequence[Any]) -> Callable[..., Any] | None:
    """Return a function that computes the same operation by operation; None for a single operation."""
    return _without_guard(func) if func is F.multi_head_attention_forward else unrolled(func, args)


def _without_guard(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return a copy of a Python function whose body runs under a mode instead of offering itself to it again."""
    assert isinstance(func, types.FunctionType)
    scope = {**func.__globals__, "has_torch_function": lambda *_: False}
    copy = types.FunctionType(func.__code__, scope, func.__name__, func.__defaults__, func.__closure__)
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy
