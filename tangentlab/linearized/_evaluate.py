"""One evaluation of z = f(x; theta*) + J(x; theta*) d, connected to the parameters.

The gradient of a loss of z with respect to the displacement d is J^T dL/dz: a plain backward pass of the *network*
at its base point. Nothing is differentiated through the tangent. One forward pass therefore computes primal values with
a graph and tangents without one, and the backward pass uses only the primal graph.

Cost, with F one forward pass of the network: F for the primal values, 2F for the tangents (W dx and dW x), 2F for
the backward pass; the network's own step costs 3F. The number of outputs does not matter. The usual construction,
``torch.func.jvp`` differentiated by autograd, needs the same arithmetic but also records, keeps and traverses the graph
of the tangents.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import disable_saved_tensors_hooks
from torch.utils import _pytree as pytree

from tangentlab.linearized._backward import Pull, by_recomputation, over_graph
from tangentlab.linearized._forward import expand
from tangentlab.linearized._point import HOOKS, Point, differentiable


class _Pullback(torch.autograd.Function):
    """A function whose backward pass is a backward pass of the network at its base point."""

    @staticmethod
    def forward(ctx: Any, values: list[Tensor], pull: Pull, *theta: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.pull = pull
        return tuple(values)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        if ctx.pull is None:
            raise RuntimeError(
                "Trying to backward through the graph of a linearized model a second time. "
                "Specify retain_graph=True if you need to."
            )
        again = torch.is_grad_enabled()  # create_graph: J^T v is linear in v
        keep = again or torch._C._autograd._get_current_graph_task_keep_graph()
        grads = ctx.pull(cotangents, again, keep)
        if not keep:
            ctx.pull = None
        return (None, None, *grads)


def evaluate(
    point: Point, theta: Mapping[str, Tensor], bias: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Compute the linearized output, connected to the parameters ``theta`` that require gradients."""
    trained = {name: value for name, value in theta.items() if value.requires_grad and torch.is_grad_enabled()}
    if not trained:
        with torch.no_grad():
            expansion = expand(point, (), args, kwargs)
            return pytree.tree_unflatten(expansion.value(bias), expansion.structure)
    try:
        # Activation checkpointing uses such hooks.
        with disable_saved_tensors_hooks(HOOKS):
            expansion = expand(point, trained, args, kwargs)
        pull = over_graph(point, expansion, args, kwargs)
    except RuntimeError as error:
        if HOOKS not in str(error):
            raise
        with torch.no_grad():
            expansion = expand(point, (), args, kwargs)
        pull = by_recomputation(point, trained, args, kwargs)
    with torch.no_grad():
        flat = expansion.value(bias)
    which = [i for i, leaf in enumerate(flat) if differentiable(leaf)]
    connected = _Pullback.apply([flat[i].detach() for i in which], pull, *trained.values())
    for i, leaf in zip(which, connected, strict=True):
        flat[i] = leaf
    return pytree.tree_unflatten(flat, expansion.structure)
