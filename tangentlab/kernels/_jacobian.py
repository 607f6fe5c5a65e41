"""The Jacobian of a network on samples whose factors are kept in memory."""

from typing import Any

import torch
from torch import Tensor, nn

from tangentlab._memory import available
from tangentlab.kernels._groups import Group
from tangentlab.kernels._options import Options
from tangentlab.kernels._plan import Plan, Side, make_plan, run
from tangentlab.kernels._problem import Problem
from tangentlab.kernels._products import Products, prepare
from tangentlab.kernels.factors import Key

_SHARE = 0.25
"""Share of the free memory that kept factors may take: a solver needs the rest."""


class KeptJacobian:
    """J, (N R, P), the parameters' entries one after the other; J u and J^T v come from kept factors.

    Cost: 2 N R P m operations for a product with m vectors where gradients are written out, and for a dense layer
    2 N (d_in + R) d_out m. The network does not run again, so a product of a small network takes a few hundredths of
    the time of passes over its samples.
    """

    def __init__(self, products: Products) -> None:
        self._products = products
        network = products.plan.network
        self.dtype, self.device = network.kernel_dtype, network.device
        self._numbers = {key: numbers.to(self.device) for key, numbers in _numbers(products.plan).items()}
        unknowns = sum(p.numel() for p in network.parameters.values())
        self.shape = (len(products.plan.left.samples) * network.readout.size, unknowns)

    def __matmul__(self, u: Tensor) -> Tensor:
        """Compute J u for (P, m)."""
        u = u.to(self.dtype)
        return self._products.push({key: u[numbers].T.contiguous() for key, numbers in self._numbers.items()}, 0)

    def rmatmul(self, v: Tensor) -> Tensor:
        """Compute J^T v for (N R, m)."""
        found = v.new_zeros(self.shape[1], v.shape[1], dtype=self.dtype)
        for key, part in self._products.pull(v.to(self.dtype), 0).items():
            found[self._numbers[key]] = part.T
        return found


def keep_jacobian(model: nn.Module, x: Any, options: Options) -> KeptJacobian | None:
    """Compute the factors of all samples; None where they do not fit, or have parameters in another order.

    Cost: the factors of a kernel, and their comparison with plain differentiation.
    """
    plan = make_plan(Problem.pose(model, x, None, options, kind="operator"))
    size = plan.sample_bytes(plan.left) * len(plan.left.samples)
    if size > _SHARE * min(plan.memory, available(plan.network.device)) or not _in_order(plan.left):
        return None
    products, _ = run(plan, prepare)
    return KeptJacobian(products) if products.kept else None


def _in_order(side: Side) -> bool:
    """Return whether gradients are those of parameters, not of other tensors with the same entries."""
    names = {name for group in side.groups if group.plain for name in group.parameters}
    return all(len(use.source.key) == 1 for use in side.findings.uses if not names.isdisjoint(use.source.parameters))


def _numbers(plan: Plan) -> dict[Key, Tensor]:
    """Return which of the P entries each entry of a factor's gradient is."""
    starts, start = {}, 0
    for name, parameter in plan.network.parameters.items():
        starts[name] = start
        start += parameter.numel()

    def own(group: Group) -> Tensor:
        weight, *bias = group.parameters
        use = group.weight_use if group.form == "compact" else None
        numbers = torch.arange(group.size) if use is None else use.numbering()
        return torch.cat(
            [starts[weight] + numbers, *(starts[b] + torch.arange(group.size - len(numbers)) for b in bias)]
        )

    layout = plan.factorizer(plan.left, plan.budget(0)).layout()
    return {key: torch.cat([own(group) for group in groups]) for key, groups in layout.items()}
