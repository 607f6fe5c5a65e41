"""Torch function modes that make forward mode agree with backward passes, or detect where it cannot.

The Jacobian of a network is that of its backward passes: ``no_grad`` and ``detach`` cut it, hooks and functions with
their own ``backward`` change it. Forward mode ignores ``no_grad`` and hooks, and has its own derivatives for such
functions.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from tangentlab._errors import TangentError
from tangentlab.linearized._embedding import embedding, embedding_bag

_T: Any = torch.Tensor
_FLAGS = {_T.requires_grad_, _T.requires_grad.__set__}
_HOOKS = {_T.register_hook, _T.grad_fn.__get__, _T._grad_fn.__get__, _T.detach_}
"""Functions with which a network changes gradients, and which forward mode ignores."""


class UnreliableForwardMode(Exception):
    """The error of a pass whose forward mode may differ from its backward passes."""


class TangentMode(TorchFunctionMode):
    """A mode in which operations under ``no_grad`` have no tangent, and other differences are refused.

    Args:
        own: The names of the tensors that are replaced during the call, by identity; the network must not use them.
        lenient: Whether to allow custom autograd functions, hooks and writes.

    Attributes:
        placed: The tensors that replace them, by identity.

    Raises:
        UnreliableForwardMode: The network has a hook, a custom autograd function, or a write under ``no_grad`` to a
            tensor with a tangent.
        TangentError: The network uses one of its ``own`` tensors, or switches gradients of its parameters.
    """

    def __init__(self, own: Mapping[int, str], lenient: bool = False) -> None:
        super().__init__()
        self.own, self.lenient = own, lenient
        self.placed: frozenset[int] = frozenset()

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        for tensor in _tensors((args, kwargs)):
            if id(tensor) in self.own:
                _refuse(self.own[id(tensor)])
        if func in _FLAGS and id(args[0]) in self.placed:
            raise TangentError(
                "The network sets requires_grad of a parameter while it is evaluated.",
                why="A linearization is one function; the network would be another one in the next call.",
                remedy="Freeze parameters before linearizing.",
            )
        if func in _HOOKS and not self.lenient:
            raise UnreliableForwardMode("The network registers hooks that may change its gradients.")
        enabled = torch.is_grad_enabled()
        if not torch._C._is_fwd_grad_enabled() and not torch.is_inference_mode_enabled():
            # The state in which the forward and the jvp of a custom autograd function run.
            if not self.lenient:
                raise UnreliableForwardMode("The network has a custom autograd function.")
            return self.run(func, args, kwargs)
        if enabled:
            return self.run(func, args, kwargs)
        if not self.lenient and writes(func, kwargs) and any(map(_moving, _tensors((args, kwargs)))):
            raise UnreliableForwardMode("The network writes to its activations under torch.no_grad().")
        result = self.run(func, args, kwargs)
        given = {id(tensor) for tensor in _tensors((args, kwargs))}
        return pytree.tree_map_only(Tensor, lambda t: t if id(t) in given else t.detach(), result)

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the operation."""
        return _apply(func, args, kwargs)


def _apply(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation in a form whose forward mode exists and matches its backward pass."""
    if func is F.group_norm and args:
        return func(args[0].contiguous(), *args[1:], **kwargs)
    if func is F.embedding:
        return embedding(*args, **kwargs)
    if func is F.embedding_bag:
        return embedding_bag(*args, **kwargs)
    return func(*args, **kwargs)


class CompilableTangentMode(TorchFunctionMode):
    """The part of :class:`TangentMode` that compiles: results of operations under ``no_grad`` have no tangent."""

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = _apply(func, args, kwargs or {})
        if torch.is_grad_enabled() or not isinstance(result, Tensor):
            return result
        return result.detach()


def writes(function: Any, kwargs: dict[str, Any]) -> bool:
    """Return whether the function writes to an argument."""
    name = getattr(function, "__name__", "")
    operator = name.startswith("__i") and name not in ("__int__", "__index__", "__invert__", "__iter__")
    in_place = name.endswith("_") and not name.endswith("__") and name != "requires_grad_"
    return in_place or operator or name == "__setitem__" or bool(kwargs.get("inplace")) or "out" in kwargs


def _moving(tensor: Tensor) -> bool:
    """Return whether a tensor may have a tangent: inside ``torch.func``, any tensor may."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return True
    return forward_ad.unpack_dual(tensor).tangent is not None


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from _tensors(part)


def _refuse(name: str) -> None:
    raise TangentError(
        f"The network uses {name} from another place than its module.",
        why="A linearized model replaces the parameters of its modules by the base point; a parameter held in a list, "
        "a partial or another attribute is not replaced.",
        remedy="Read the parameter from its module in the forward pass.",
    )
