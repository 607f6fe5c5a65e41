"""Products J d by reverse passes only, for operations without a forward-mode derivative."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import disable_saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from tangentlab._errors import TangentError
from tangentlab.linearized._adjoint import adjoint_identity_holds, normal_noise
from tangentlab.linearized._point import HOOKS, Expansion, Point, check_output, differentiable
from tangentlab.linearized._tangent_mode import TangentMode


def expand_by_reverse(
    point: Point, trained: Collection[str], args: tuple[Any, ...], kwargs: dict[str, Any], reason: Exception
) -> Expansion:
    """Compute J d by two reverse passes: u -> J^T u is linear, and its derivative applied to d is J d.

    Costs 4F (forward mode: 2F), and keeps the graphs of both passes in memory.

    Args:
        point: Base point and displacement.
        trained: The base weights to which the primal outputs are connected.
        args: The network's inputs.
        kwargs: The network's keyword inputs.
        reason: Why forward mode failed.

    Raises:
        TangentError: An operation cannot be differentiated twice either.
    """
    weights = {name: point.weights[name].detach().requires_grad_() for name in {*trained, *point.displacement}}
    try:
        mode = TangentMode(point.own, lenient=True)
        mode.placed = frozenset(map(id, weights.values()))
        # Fused attention kernels have no second derivative, the plain formula has.
        with torch.enable_grad(), disable_saved_tensors_hooks(HOOKS), sdpa_kernel(SDPBackend.MATH), mode:
            flat, structure = pytree.tree_flatten(point.call(weights, args, kwargs))
            check_output(flat)
            which = [i for i, leaf in enumerate(flat) if differentiable(leaf) and leaf.requires_grad]
            outputs, leaves = [flat[i] for i in which], [weights[n] for n in point.displacement]
            columns = _push(outputs, leaves, point.displacement, point.settings.rounding)
    except (NotImplementedError, RuntimeError) as second:
        if HOOKS in str(second) and trained:
            raise  # the caller knows another way
        raise TangentError(
            "The network has an operation that can be differentiated neither forwards nor twice backwards: "
            f"{str(reason).splitlines()[0]}",
            why="J(x)(theta - theta0) is a forward-mode derivative, or the derivative of a backward pass. "
            f"Backwards: {str(second).splitlines()[0]}",
            remedy="Replace that operation, or give your torch.autograd.Function a jvp.",
        ) from reason
    tangent: list[Tensor | None] = [None] * len(flat)
    for i, column in zip(which, columns, strict=True):
        tangent[i] = column
    if not trained:
        flat = [leaf.detach() if differentiable(leaf) else leaf for leaf in flat]
    return Expansion(flat, tangent, structure, {name: weights[name] for name in trained})


def _push(
    outputs: list[Tensor], weights: list[Tensor], displacement: Mapping[str, Tensor], rounding: float
) -> Sequence[Tensor | None]:
    """Compute J d for each output, as the derivative of u -> J^T u at a random u = v.

    A ``once_differentiable`` function does not refuse to be differentiated twice but is silently left out, and a hook
    that clips gradients is not linear. The adjoint identity <v, J d> = <J^T v, d> is therefore checked, at no cost.
    """
    if not outputs:
        return []
    probes = [probe.requires_grad_() for probe in normal_noise(outputs, 0)]
    pulled = torch.autograd.grad(outputs, weights, probes, create_graph=True, allow_unused=True)
    pairs = [(g, d) for g, d in zip(pulled, displacement.values(), strict=True) if g is not None]
    linked = [(g, d) for g, d in pairs if g.requires_grad]
    columns: Sequence[Tensor | None] = [None] * len(probes)
    if linked:
        columns = torch.autograd.grad(
            [g for g, _ in linked], probes, [d for _, d in linked], retain_graph=True, allow_unused=True
        )
    forwards = [(v, c) for v, c in zip(probes, columns, strict=True) if c is not None]
    if not adjoint_identity_holds(forwards, pairs, rounding):
        raise RuntimeError("A backward pass that is not linear, or can be differentiated only once, takes part.")
    return columns
