"""The kernel of one model on fixed samples, again and again while its weights change."""

from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab._progress import silent
from tangentlab.kernels._blocks import kernel_blocks
from tangentlab.kernels._compute import refuse_infinite
from tangentlab.kernels._factorize import ControlFlowChanged
from tangentlab.kernels._options import Options
from tangentlab.kernels._parameters import select_parameters
from tangentlab.kernels._plan import Plan, make_plan, run
from tangentlab.kernels._problem import Problem


class RepeatedKernel:
    """The kernel of a model on fixed samples at its weights of the moment: equal to ``ntk(model, x)`` at every call.

    The first call probes the network and, unless ``check`` is off, compares the kernel with plain differentiation.
    Later ones only compute the kernel, by the same plan, as long as the model has the same modules in the same modes
    and the same tensors count as parameters. Every pass still compares the network's operations with those of the
    probe; if they are others, the network is probed and compared again. For few samples, the probe is the larger part
    of the cost.

    Args:
        x: The samples, as for :func:`tangentlab.ntk`.
        options: The options of :func:`tangentlab.ntk`.
    """

    def __init__(self, x: Any, options: Options) -> None:
        self._x, self._options = x, options
        self._plan: Plan | None = None
        self._form: Any = None
        self._modules: list[nn.Module] = []
        """Those of the last call; as long as they exist, no other one has their ids."""

    def __call__(self, model: nn.Module) -> Tensor:
        """Compute the kernel.

        Raises:
            TangentError: As for :func:`tangentlab.ntk`.
        """
        form, plan = self._form_of(model), self._plan
        kernels: dict[str, Tensor] | None = None
        known = form == self._form
        if known and plan is not None and plan.network.model is model:  # not a copy in another precision
            try:
                kernels = kernel_blocks(plan, silent)
            except (ControlFlowChanged, TangentError):
                known = False  # the network does something else now, which a new probe describes or refuses
        if kernels is None:
            options = replace(self._options, check=self._options.check and not known)
            plan = make_plan(Problem.pose(model, self._x, options=options, kind="gram"), ahead=True)
            kernels, plan = run(plan, lambda plan: kernel_blocks(plan, silent))
        assert plan is not None
        assert kernels is not None
        refuse_infinite(kernels)
        options = replace(plan.problem.options, check=False)
        self._plan = replace(plan, problem=replace(plan.problem, options=options))
        self._form, self._modules = form, list(model.modules())
        return kernels[""]

    def _form_of(self, model: nn.Module) -> Any:
        """Return what a plan depends on beside operations: the modules, their modes, the tensors that count."""
        chosen = select_parameters(model, self._options.parameters)
        tensors = [*model.named_parameters(), *model.named_buffers()]
        return (
            [(name, id(module), module.training) for name, module in model.named_modules()],
            {name: id(parameter) for name, parameter in chosen.items()},
            {name: (tensor.dtype, tensor.shape) for name, tensor in tensors},
        )
