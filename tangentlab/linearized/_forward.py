"""f(x; theta*) and J(x; theta*) d in one pass."""

from collections.abc import Collection
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules import module
from torch.utils import _pytree as pytree

from tangentlab._copying import memory_of
from tangentlab._errors import TangentError
from tangentlab.linearized._adjoint import forward_matches_backward
from tangentlab.linearized._point import HOOKS, Expansion, Point, check_output, differentiable
from tangentlab.linearized._reverse import expand_by_reverse
from tangentlab.linearized._rules import Abandoned, TangentRules, restored
from tangentlab.linearized._tangent_mode import CompilableTangentMode, TangentMode, UnreliableForwardMode


def expand(point: Point, trained: Collection[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Expansion:
    """Compute primal and tangent, the latter with the Jacobian of backward passes.

    The primal outputs have a graph that ends at the base weights named in ``trained``; tangents have none. One pass in
    forward mode is used if it is reliable, otherwise :func:`expand_by_reverse`, which needs operations that can be
    differentiated twice; if some cannot, forward mode after a check on these inputs.
    """
    result = _expand(point, trained, args, kwargs)
    # An output may be a parameter itself, and the memory of its displacement is used again in the next call.
    used = {memory_of(d) for d in point.displacement.values()}
    result.tangent = [t.clone() if t is not None and memory_of(t) in used else t for t in result.tangent]
    return result


def _expand(point: Point, trained: Collection[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Expansion:
    distrust = point.settings.distrust
    if not distrust:
        try:
            return expand_eagerly(point, trained, args, kwargs)
        except UnreliableForwardMode as error:
            distrust = str(error)
            if not _modules_watched():  # the hooks of a tool are gone in the next call
                point.settings.distrust = distrust
    try:
        return expand_by_reverse(point, trained, args, kwargs, UnreliableForwardMode(distrust))
    except TangentError:
        if not forward_matches_backward(point, partial(expand_eagerly, lenient=True), args, kwargs):
            raise
        return expand_eagerly(point, trained, args, kwargs, lenient=True)


def _modules_watched() -> bool:
    """Return whether hooks on all modules are active, as inside of ``torch.utils.flop_counter.FlopCounterMode``."""
    return bool(module._global_forward_hooks or module._global_forward_pre_hooks)


def expand_eagerly(
    point: Point, trained: Collection[str], args: tuple[Any, ...], kwargs: dict[str, Any], *, lenient: bool = False
) -> Expansion:
    """Expand by forward mode, or by :func:`expand_by_reverse` if an operation has no forward-mode derivative.

    Raises:
        UnreliableForwardMode: Forward mode may give another Jacobian than backward passes; not raised if ``lenient``.
    """
    # Autocast changes types inside the operations that rules replace.
    rules = not torch.is_autocast_enabled("cpu") and not torch.is_autocast_enabled("cuda")
    taken = {name: point.settings.take(name, weight) if rules else weight for name, weight in point.weights.items()}
    channels_last = any(taken[name] is not weight for name, weight in point.weights.items())
    weights = {name: taken[name].detach().requires_grad_() for name in trained}
    try:
        with ExitStack() as stack:
            # Forward mode is off by default inside torch.autograd.Function.
            stack.enter_context(forward_ad._set_fwd_grad_enabled(True))
            stack.enter_context(forward_ad.dual_level())
            if not rules:  # fused attention kernels have no forward-mode derivative, the plain formula has
                stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            duals = {
                name: forward_ad.make_dual(weights.get(name, taken[name]), tangent)
                for name, tangent in point.displacement.items()
            }
            # The network runs with gradients, so that its own no_grad is distinguished from that of a caller.
            stack.enter_context(torch.enable_grad())
            mode = TangentRules(point.own, lenient, channels_last) if rules else TangentMode(point.own, lenient)
            placed = {**taken, **weights, **duals}
            mode.placed = frozenset(map(id, placed.values()))
            stack.enter_context(mode)
            flat, structure = pytree.tree_flatten(point.call(placed, args, kwargs))
            check_output(flat)
            pairs = [
                forward_ad.unpack_dual(leaf) if differentiable(leaf) else (leaf, None)
                for leaf in (restored(flat) if channels_last else flat)
            ]
    except (Abandoned, NotImplementedError, RuntimeError) as error:
        message = str(error)
        if "Nested forward mode AD" in message and forward_ad._current_level >= 0:
            raise TangentError(
                "The linearized model was called inside torch.autograd.forward_ad.dual_level().",
                why="It uses forward mode itself, and PyTorch does not nest dual levels.",
                remedy="Use torch.func.jvp, which nests.",
            ) from error
        # Under autocast, forward mode can give an operation a value of one type and a tangent of another.
        if _lacks_forward_mode(error) or (not rules and "dtype" in message):
            return expand_by_reverse(point, trained, args, kwargs, error)
        if not channels_last or HOOKS in message:
            raise
        point.settings.channels_last = False
        return expand_eagerly(point, trained, args, kwargs, lenient=lenient)
    primal = [pair[0] if trained or not isinstance(pair[0], Tensor) else pair[0].detach() for pair in pairs]
    tangent = [None if pair[1] is None else pair[1].detach() for pair in pairs]
    return Expansion(primal, tangent, structure, weights)


def expand_functionally(point: Point, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Expansion:
    """Expand by ``torch.func.jvp``: slower, but differentiable in the inputs and inside transforms."""
    structure: Any = None
    smooth: list[bool] = []

    def primal(weights: dict[str, Tensor]) -> tuple[list[Tensor], list[Any]]:
        nonlocal structure, smooth
        if isinstance(mode, TangentMode):
            mode.placed = frozenset(map(id, weights.values()))
        flat, structure = pytree.tree_flatten(point.call_functionally(weights, args, kwargs))
        check_output(flat)
        smooth = [differentiable(leaf) for leaf in flat]
        return [x for x, s in zip(flat, smooth, strict=True) if s], [
            x for x, s in zip(flat, smooth, strict=True) if not s
        ]

    base = {name: point.weights[name] for name in point.displacement}
    if point.settings.distrust:
        raise _backwards_only(point.settings.distrust)
    mode = CompilableTangentMode() if torch.compiler.is_compiling() else TangentMode(point.own)
    with sdpa_kernel(SDPBackend.MATH), mode:
        try:
            result: Any = torch.func.jvp(primal, (base,), (dict(point.displacement),), has_aux=True)
        except UnreliableForwardMode as error:
            raise _backwards_only(str(error)) from error
        except (NotImplementedError, RuntimeError) as error:
            if not _lacks_forward_mode(error):
                raise
            raise TangentError(
                f"The network has an operation without a forward-mode derivative: {str(error).splitlines()[0]}",
                why="Gradients with respect to inputs, torch.func and torch.compile use torch.func.jvp.",
                remedy="Call the linearized model directly with inputs that do not require gradients, or replace that "
                "operation.",
            ) from error
    values, tangents, rest = result
    some, others = iter(zip(values, tangents, strict=True)), iter(rest)
    pairs = [next(some) if s else (next(others), None) for s in smooth]
    return Expansion([p for p, _ in pairs], [t for _, t in pairs], structure, {})


def _lacks_forward_mode(error: Exception) -> bool:
    message = str(error)
    return any(words in message for words in _LACKS)


_LACKS = (
    "forward AD",
    "forward mode AD",
    "functorch transforms",
    "inference tensor",
    "view size is not compatible",
    "_efficientzerotensor",
)
"""PyTorch does not nest forward mode and has none in inference mode and for some sparse products; some derivatives need
one memory format."""


def _backwards_only(fact: str) -> TangentError:
    return TangentError(
        f"Only backward passes give the network's Jacobian: {fact}",
        why="Gradients with respect to inputs, torch.func and torch.compile use torch.func.jvp.",
        remedy="Call the linearized model directly with inputs that do not require gradients.",
    )
