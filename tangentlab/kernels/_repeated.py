"""The kernel of one model on fixed samples, again and again while its weights change."""

from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from tangentlab.kernels._blocks import kernel_blocks
from tangentlab.kernels._compute import refuse_infinite
from tangentlab.kernels._options import Options
from tangentlab.kernels._parameters import select_parameters
from tangentlab.kernels._plan import Plan, make_plan, run
from tangentlab.kernels._problem import Problem


class RepeatedKernel:
    """The kernel of a model on fixed samples at its weights of the moment: equal to ``ntk(model, x)`` at every call.

    The first call probes the network and, unless ``check`` is off, compares the kernel with plain differentiation.
    Later ones only compute the kernel, by the same plan, as long as the same tensors count as parameters. Every pass
    still compares the network's operations with those of the probe. For few samples, the probe is the larger part of
    the cost.

    Args:
        x: The samples, as for :func:`tangentlab.ntk`.
        options: The options of :func:`tangentlab.ntk`.
    """

    def __init__(self, x: Any, options: Options) -> None:
        self._x, self._options = x, options
        self._plan: Plan | None = None

    def __call__(self, model: nn.Module) -> Tensor:
        """Compute the kernel.

        Raises:
            TangentError: As for :func:`tangentlab.ntk`.
        """
        plan = self._plan
        if plan is None or not self._describes(plan, model):
            checked = plan is None and self._options.check
            problem = Problem.pose(model, self._x, options=replace(self._options, check=checked), kind="gram")
            plan = make_plan(problem, ahead=True)
        kernels, plan = run(plan, lambda plan: kernel_blocks(plan, lambda *_: None))
        refuse_infinite(kernels)
        options = replace(plan.problem.options, check=False)
        self._plan = replace(plan, problem=replace(plan.problem, options=options))
        return kernels[""]

    def _describes(self, plan: Plan, model: nn.Module) -> bool:
        """Return whether the plan is for the model itself, not for a copy, and for the parameters that count now."""
        chosen, known = select_parameters(model, self._options.parameters), plan.network.parameters
        return plan.network.model is model and {n: id(p) for n, p in chosen.items()} == {
            n: id(p) for n, p in known.items()
        }
