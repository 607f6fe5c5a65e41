"""Products J^T v: a backward pass of the network at its base point."""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from tangentlab._errors import TangentError
from tangentlab.linearized._point import Expansion, Point, differentiable

# (v per output, whether the result must be differentiable, whether the graph will be used again) -> J^T v.
Pull = Callable[[Sequence[Tensor | None], bool, bool], Sequence[Tensor | None]]


def over_graph(point: Point, expansion: Expansion, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Pull:
    """Make J^T v a backward pass over the graph that the forward pass recorded. Costs 2F.

    A result that must be differentiable is computed over a graph of its own, because differentiating it traverses and
    frees that graph down to the base weights.
    """
    primal = [leaf for leaf in expansion.primal if differentiable(leaf)]
    leaves = expansion.weights

    def pull(cotangents: Sequence[Tensor | None], again: bool, keep: bool) -> Sequence[Tensor | None]:
        if not again:
            return _pull(primal, cotangents, list(leaves.values()), create_graph=False, retain_graph=keep)
        fresh = {name: leaf.detach().requires_grad_() for name, leaf in leaves.items()}
        with point.generators_kept():
            output = [leaf for leaf in pytree.tree_leaves(point.call(fresh, args, kwargs)) if differentiable(leaf)]
        return _pull(output, cotangents, list(fresh.values()), create_graph=True, retain_graph=True)

    return pull


def by_recomputation(point: Point, trained: Collection[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Pull:
    """Make J^T v a forward and a backward pass of its own, for networks with activation checkpointing.

    A checkpointed block runs again during the backward pass, when the base weights must be in place. Costs 3F, plus the
    cost of the block.
    """

    def pull(cotangents: Sequence[Tensor | None], again: bool, keep: bool) -> Sequence[Tensor | None]:
        if again:
            raise TangentError(
                "A gradient of a gradient was requested from a network with activation checkpointing.",
                why="Its blocks would run again when the base weights are no longer in place.",
                remedy="Switch checkpointing off in the network.",
            )
        leaves = {name: point.weights[name].detach().requires_grad_() for name in trained}
        with torch.enable_grad(), point.installed(leaves), point.generators_kept():
            output = pytree.tree_leaves(point.network(*args, **kwargs))
            primal = [leaf for leaf in output if differentiable(leaf)]
            return _pull(primal, cotangents, list(leaves.values()), create_graph=False, retain_graph=False)

    return pull


def _pull(
    primal: list[Tensor], cotangents: Sequence[Tensor | None], leaves: list[Tensor], **options: bool
) -> Sequence[Tensor | None]:
    pairs = [(p, v) for p, v in zip(primal, cotangents, strict=True) if v is not None and p.requires_grad]
    if not pairs:
        return (None,) * len(leaves)
    outputs, vectors = [p for p, _ in pairs], [v for _, v in pairs]
    return torch.autograd.grad(outputs, leaves, vectors, allow_unused=True, **options)
