"""The last check: the kernel of a few samples against plain automatic differentiation."""

from typing import Any

import torch
from torch import Tensor

from tangentlab._sums import inner
from tangentlab.kernels._contract import contract
from tangentlab.kernels._factorize import ControlFlowChanged
from tangentlab.kernels._fallback import gradient
from tangentlab.kernels._findings import Probed
from tangentlab.kernels._inputs import Samples
from tangentlab.kernels._plan import Plan
from tangentlab.kernels.factors import Factors

_CHECK = (1e-8, 2e-3, 0.1)
"""Relative disagreement with plain differentiation that is still rounding in double, single and half precision."""


def verify(plan: Plan, one: Factors, rows: range, two: Factors, columns: range) -> None:
    """Compare the kernel of a few samples with plain automatic differentiation.

    Args:
        plan: The plan.
        one: Factors of some samples of x1.
        rows: Which.
        two: Factors of some samples of x2, or of x1 again.
        columns: Which.

    Raises:
        ControlFlowChanged: They differ by more than rounding; ``run`` then takes the fallback.
    """
    if all(group.form == "fallback" for group in plan.left.groups):
        return
    probed = plan.left.findings.probed
    if one is two and all(sample in rows for sample in probed.samples):
        _verify_probed(plan, probed, one, [rows.index(sample) for sample in probed.samples])
    else:
        _verify_ends(plan, one, rows, two, columns)


def verify_kernels(plan: Plan, kernels: dict[str, Tensor]) -> None:
    """Compare a few entries of finished kernels, of each layer or of all, with plain automatic differentiation.

    Raises:
        ControlFlowChanged: They differ by more than rounding; ``run`` then takes the fallback.
    """
    if all(group.form == "fallback" for group in plan.left.groups):
        return
    samples = list(plan.left.findings.probed.samples)
    blocks = {}
    for layer, kernel in kernels.items():
        size = plan.network.readout.size
        matrix = kernel.view(plan.work.rows, size, plan.work.rows, size)
        blocks[layer] = matrix[samples][:, :, samples].double()
    whole = {"": torch.stack(list(blocks.values())).sum(0)}
    _compare(plan, plan.left.findings.probed, whole | blocks if plan.work.by_layer else whole)


def _verify_probed(plan: Plan, probed: Probed, factors: Factors, places: list[int]) -> None:
    """Compare the kernel of the samples of the probe, from their factors."""
    network, chosen = plan.network, factors.take(places)
    blocks = {}
    for layer, own in [("", chosen), *(chosen.layers().items() if plan.work.by_layer else ())]:
        count, size = own.count, own.readouts
        kernel = torch.zeros(count * size, count * size, dtype=network.kernel_dtype, device=network.device)
        own = own.cast(network.kernel_dtype)
        contract(own, own, kernel, True, lambda *_: None)
        blocks[layer] = kernel.double().view(count, size, count, size)
    _compare(plan, probed, blocks)


def _compare(plan: Plan, probed: Probed, blocks: dict[str, Tensor]) -> None:
    """Compare w^T K w of the samples of the probe with |J^T w|^2, which the probe computed.

    All weights are positive, and so is the bound, the sum of w_n w_m sqrt(K_nn K_mm) over all pairs.

    Args:
        plan: The plan.
        probed: What the probe computed.
        blocks: The kernel of these samples, (n, R, n, R), of all layers under "" first, and of single layers.
    """
    network = plan.network
    names = {name: group.layer for group in plan.left.groups for name in group.parameters}
    weights, readouts = probed.weights.double(), probed.readouts.double()
    tolerance, smallest = network.tolerance(*_CHECK), 0.0
    for layer, block in blocks.items():
        matrix = torch.einsum("nrms,r,s->nm", block, readouts, readouts)
        bound = float((weights * matrix.diagonal().clamp(min=0).sqrt()).sum()) ** 2
        expected = sum(probed.squares.get(name, 0.0) for name in names if layer in ("", names[name]))
        if not abs(float(weights @ matrix @ weights) - expected) <= tolerance * bound + smallest:
            raise ControlFlowChanged
        smallest = smallest or network.rounding * bound  # the whole comes first: layers are held to its size


def _verify_ends(plan: Plan, one: Factors, rows: range, two: Factors, columns: range) -> None:
    """Compare the kernel of the first and last samples, each alone."""
    network = plan.network
    weights = torch.linspace(0.5, 1.5, one.readouts, dtype=network.kernel_dtype, device=network.device)
    names = {name: group.layer for group in plan.left.groups for name in group.parameters}
    parameters = [network.parameters[name] for name in names]

    def weighted(sample: Any) -> Tensor:
        values = network.values(sample, 1)
        return values @ weights.to(values)

    def some(samples: Samples, chosen: range) -> dict[int, dict[str, Tensor]]:
        ends = sorted({0, len(chosen) - 1})
        with torch.enable_grad():
            found = {e: gradient(weighted(samples.batch([chosen[e]])).squeeze(), parameters) for e in ends}
        return {end: dict(zip(names, gradients, strict=True)) for end, gradients in found.items()}

    left = some(plan.left.samples, rows)
    right = left if one is two else some(plan.right.samples, columns)
    lefts, rights = (side.layers() if plan.work.by_layer else {"": side} for side in (one, two))
    tolerance, smallest = network.tolerance(*_CHECK), 0.0
    for layer in ["", *lefts] if plan.work.by_layer else [""]:  # the whole first: its size is what a layer's is held to
        own = [name for name in names if layer in ("", names[name])]
        sizes = [max(_inner(own, j, j) for j in side.values()) for side in (left, right)]
        bound = tolerance * (sizes[0] * sizes[1]) ** 0.5 + smallest
        for p, plain in left.items():
            for q, other in right.items():
                block = weights.new_zeros(one.readouts, two.readouts)
                row, column = lefts.get(layer, one)[p : p + 1], rights.get(layer, two)[q : q + 1]
                row.cast(block.dtype).add_gram(column.cast(block.dtype), block)
                found = (weights.double() @ block.double() @ weights.double()).item()
                if not abs(found - _inner(own, plain, other)) <= bound:
                    raise ControlFlowChanged
        smallest = smallest or network.rounding * bound / tolerance


def _inner(names: list[str], one: dict[str, Tensor], two: dict[str, Tensor]) -> float:
    return sum(float(inner(one[name], two[name])) for name in names)
