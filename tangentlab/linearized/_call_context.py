"""The context of a call: inference mode, transforms of ``torch.func``, torch function modes."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import _pop_mode_temporarily
from torch.utils import _pytree as pytree


@contextmanager
def without_function_modes() -> Iterator[None]:
    """Switch off the torch function modes that are active outside."""
    with ExitStack() as stack:
        while torch._C._len_torch_function_stack():
            stack.enter_context(_pop_mode_temporarily())
        yield


@contextmanager
def outside_inference_mode() -> Iterator[None]:
    """Replace inference mode, which silently switches off forward-mode differentiation, by ``no_grad``."""
    if torch.is_inference_mode_enabled():
        with torch.inference_mode(False), torch.no_grad():
            yield
    else:
        yield


def inside_transform() -> bool:
    """Return whether a transform of ``torch.func`` is active."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def has_wrapped_tensor(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether an input is a tensor inside a transform of ``torch.func``."""
    leaves = pytree.tree_leaves((args, kwargs))
    return any(isinstance(leaf, Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(leaf) for leaf in leaves)


def input_gradient_wanted(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether an input requires a gradient."""
    return torch.is_grad_enabled() and any(
        isinstance(leaf, Tensor) and leaf.requires_grad for leaf in pytree.tree_leaves((args, kwargs))
    )
