"""Linearized models of one network on several tasks, which share the passes at the base weights."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp, vjp, vmap

from tangentlab._errors import TangentError
from tangentlab.linearized._linearize import linearize
from tangentlab.linearized._module import Linearized

_SAME = {torch.float64: 1e-8, torch.float32: 1e-3}
"""The relative difference between the passes of several tasks and of one that is still rounding."""


class LinearizedTasks(nn.Module):
    r"""The linearizations :math:`f(x; \theta_0) + J(x; \theta_0) u_t` of one network for T tasks, as one module.

    Its outputs are (B, T) for a network of one output, (B, T, O) for others. Each task has its own displacement u_t of
    the weights, which starts at zero. With a loss that is a sum over tasks, and an optimizer that updates each number
    separately (SGD, Adam), training it is training T models of :func:`tangentlab.linearize` on the same minibatches, up
    to rounding. The outputs at the base weights and the graph for the backward passes are computed once for all tasks,
    and the rest in products of T times the size. For 8 tasks on two cores, a step of an MLP is 2.9 times as fast as 8
    steps, and of a LeNet 1.5 times (``python -m benchmarks.cheaper_training``).

    Cost: a step takes the operations of about 4 T + 2 forward passes. Memory: (T + 4) P numbers for weights and
    displacements, and T P for gradients.

    Args:
        network: As for :func:`tangentlab.linearize`; it is copied. Outputs must be one tensor, one row per sample.
        tasks: T.

    Raises:
        TangentError: In the first call, if ``torch.func`` does not compute the network's Jacobian as ``linearize``.
    """

    def __init__(self, network: nn.Module, tasks: int) -> None:
        super().__init__()
        if tasks < 1:
            raise TangentError(f"There are no {tasks} tasks.", remedy="Give 1 or more.")
        # Not registered: its weights are constants. It also has the checks of networks that cannot be linearized.
        self._one: list[Linearized] = [linearize(network)]
        self._network: list[nn.Module] = [self._one[0].merge().eval()]
        named = {name: p.detach().clone() for name, p in self._network[0].named_parameters() if p.requires_grad}
        self.names = list(named)
        for i, weight in enumerate(named.values()):
            self.register_buffer(f"base_{i}", weight, persistent=False)
        self.displacements = nn.ParameterList([torch.zeros(tasks, *w.shape).to(w) for w in named.values()])
        self.tasks, self._compared = tasks, False

    def displacement(self, task: int) -> dict[str, Tensor]:
        """Return u of one task by the network's names, without gradients."""
        return {name: u.detach()[task] for name, u in zip(self.names, self.displacements, strict=True)}

    def base(self) -> dict[str, Tensor]:
        """Return the base weights by the network's names."""
        return {name: getattr(self, f"base_{i}") for i, name in enumerate(self.names)}

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute the outputs of all tasks."""
        if not self._compared:
            self._compare(inputs)
        outputs: Tensor = _Tasks.apply(self._call(inputs), tuple(self.base().values()), *self.displacements)
        outputs = outputs.movedim(0, 1)
        return outputs[..., 0] if outputs.ndim == 3 and outputs.shape[2] == 1 else outputs

    def _call(self, inputs: Tensor) -> Callable[[tuple[Tensor, ...]], Tensor]:
        network = self._network[0]
        return lambda weights: functional_call(network, dict(zip(self.names, weights, strict=True)), (inputs,))

    def _apply(self, fn: Any, recurse: bool = True) -> "LinearizedTasks":
        super()._apply(fn, recurse)
        for model in (*self._one, *self._network):
            model._apply(fn)
        return self

    def _compare(self, inputs: Tensor) -> None:
        """Compare outputs and gradients of a random displacement with those of :func:`linearize`, once."""
        generator = torch.Generator().manual_seed(0)
        one, base = self._one[0], tuple(self.base().values())
        drawn = [torch.randn(w.shape, generator=generator, dtype=torch.float64).to(w) for w in base]
        with torch.enable_grad():
            leaves = [u[None].clone().requires_grad_() for u in drawn]
            found = _Tasks.apply(self._call(inputs), base, *leaves)[0]
            back = torch.randn(found.shape, generator=generator, dtype=torch.float64).to(found)
            gradients = torch.autograd.grad(found, leaves, back)
            own = dict(one.named_parameters())
            with torch.no_grad():
                for name, weight, u in zip(self.names, base, drawn, strict=True):
                    own[name].copy_(weight + u)
            expected = one(inputs)
            expected_gradients = torch.autograd.grad(expected, [own[name] for name in self.names], back)
        limit = _SAME.get(found.dtype, 1e-1)
        pairs = [
            (found.detach(), expected.detach()),
            *((g[0], e) for g, e in zip(gradients, expected_gradients, strict=True)),
        ]
        largest = max(float(e.norm()) for _, e in pairs[1:])
        for a, b in pairs:
            if not float((a - b).norm()) <= limit * max(float(b.norm()), limit * largest):
                raise TangentError(
                    "torch.func does not compute the Jacobian of this network as its backward passes do.",
                    why="The network detaches tensors, has hooks or custom gradients, or changes its inputs.",
                    remedy="Train the tasks one by one with tangentlab.linearize(network).",
                )
        self._compared = True


class _Tasks(torch.autograd.Function):
    """f0 + J u_t for all tasks, (T, B, ...), whose gradient is J^T v_t."""

    @staticmethod
    def forward(
        ctx: Any, call: Callable[[tuple[Tensor, ...]], Tensor], base: tuple[Tensor, ...], *displacements: Tensor
    ) -> Tensor:
        values, ctx.pull = vjp(call, base)[:2]
        tangents: Tensor = vmap(lambda *u: jvp(call, (base,), (u,))[1])(*displacements)
        return values + tangents

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        (gradients,) = vmap(ctx.pull)(cotangents[0])
        return (None, None, *gradients)
