"""The last check: the kernel of a few samples against plain automatic differentiation."""

from typing import Any

import torch
from torch import Tensor

from tangentlab._sums import inner
from tangentlab.kernels._factorize import ControlFlowChanged
from tangentlab.kernels._fallback import gradient
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
    network = plan.network
    weights = torch.linspace(0.5, 1.5, one.readouts, dtype=network.dtype, device=network.device)
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
                lefts.get(layer, one)[p : p + 1].add_gram(rights.get(layer, two)[q : q + 1], block)
                found = (weights.double() @ block.double() @ weights.double()).item()
                if not abs(found - _inner(own, plain, other)) <= bound:
                    raise ControlFlowChanged
        smallest = smallest or network.rounding * bound / tolerance


def _inner(names: list[str], one: dict[str, Tensor], two: dict[str, Tensor]) -> float:
    return sum(float(inner(one[name], two[name])) for name in names)
