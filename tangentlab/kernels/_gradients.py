"""Per-sample gradients from a recorded forward pass: backward passes, also through tensors made of parameters."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from tangentlab.kernels._record import ParameterSource, SeenUse


@torch.enable_grad()
def output_gradients(values: Tensor, uses: Sequence[SeenUse], batch: int) -> list[Tensor]:
    """Return the gradients of the readouts with respect to the output of each use, split by sample.

    Since samples do not influence each other, the gradient of a sum over the batch holds every sample's own. No
    gradients of parameters are requested, so a backward pass computes those of activations alone.

    Args:
        values: The readouts, (B, R), with their graph.
        uses: The uses.
        batch: B.

    Returns:
        For each use (B, R, *shape of the output for one sample). R backward passes.
    """
    edges: dict[tuple[Any, int], GradientEdge] = {}
    for seen in uses:
        if seen.edge is not None:
            edges.setdefault(_identity(seen.edge), seen.edge)
    if not edges:
        return []
    readouts = values.shape[1]
    rows = [
        torch.autograd.grad(values[:, r].sum(), list(edges.values()), retain_graph=True, allow_unused=True)
        for r in range(readouts)
    ]
    columns = dict(zip(edges, zip(*rows, strict=True), strict=True))
    split: dict[Any, Tensor] = {}
    for seen in uses:
        key = (_identity(seen.edge), seen.layout)
        if key not in split:
            parts = [
                seen.layout.split(values.new_zeros(seen.output_shape) if g is None else g, batch)
                for g in columns[key[0]]
            ]
            split[key] = parts[0].unsqueeze(1) if readouts == 1 else torch.stack(parts, 1)
    return [split[_identity(seen.edge), seen.layout] for seen in uses]


def _identity(edge: GradientEdge | None) -> tuple[Any, int]:
    assert edge is not None
    return edge.node, edge.output_nr


@torch.enable_grad()
def parameter_gradients(
    names: Sequence[str],
    parameters: dict[str, Tensor],
    uses: Sequence[SeenUse],
    grads: Sequence[Tensor],
) -> dict[str, Tensor]:
    """Return per-sample gradients (B, R, *shape) of some parameters, all their uses added up.

    Args:
        names: Which parameters; ones without a use are left out.
        parameters: All tracked parameters by name.
        uses: The uses of the pass.
        grads: Their output gradients.
    """
    wanted = set(names)
    total: dict[str, Tensor] = {}
    derived: dict[int, tuple[ParameterSource, Tensor]] = {}

    def add(name: str, gradient: Tensor) -> None:
        total[name] = total[name] + gradient if name in total else gradient

    for seen, g in zip(uses, grads, strict=True):
        if wanted.isdisjoint(seen.source.parameters):
            continue
        gradient = seen.use.gradient(g)
        if len(seen.source.key) == 1:
            add(seen.source.parameters[0], gradient)
        else:
            _, before = derived.get(id(seen.source.tensor), (None, None))
            derived[id(seen.source.tensor)] = (seen.source, gradient if before is None else before + gradient)
    for source, gradient in derived.values():
        targets = [name for name in source.parameters if name in wanted]
        for name, part in zip(targets, _pull_back(source, gradient, [parameters[t] for t in targets]), strict=True):
            if part is not None:
                add(name, part)
    return total


def _pull_back(source: ParameterSource, gradient: Tensor, targets: list[Tensor]) -> list[Tensor | None]:
    """Return gradients with respect to parameters from those with respect to a tensor derived from them."""
    rows = gradient.flatten(0, 1)
    pulled: Sequence[Tensor | None]
    try:
        pulled = torch.autograd.grad(
            source.tensor, targets, rows, retain_graph=True, allow_unused=True, is_grads_batched=True
        )
    except RuntimeError:  # no batching rule for an operation on the way: one row at a time
        parts = [torch.autograd.grad(source.tensor, targets, row, retain_graph=True, allow_unused=True) for row in rows]
        columns = ([g for g in column if g is not None] for column in zip(*parts, strict=True))
        pulled = [torch.stack(column) if column else None for column in columns]
    return [None if p is None else p.unflatten(0, gradient.shape[:2]) for p in pulled]
