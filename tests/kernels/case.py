"""A random network as a case for properties: its samples, its kernel by definition, and what counts as the same."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

import tangentlab
from tangentlab import TangentError
from tests.kernels.architectures import Architecture, build

DOUBLE = 1e-9


class Case:
    """A network, its samples, and the kernel by definition."""

    def __init__(self, architecture: Architecture) -> None:
        self.architecture = architecture
        self.model, self.x = build(architecture)
        self.count = architecture.samples

    @cached_property
    def expected(self) -> Tensor:
        """The full kernel (N, O, N, O) by plain automatic differentiation, one sample at a time."""
        return tangentlab.reference.ntk(self.model, self.x)

    def check(self, holds: "Callable[[Case], None]") -> None:
        """One property, and that it leaves the model as it was, also if it is refused."""
        _ = self.expected  # before the state is noted: the network's own code may do what it likes
        before = state(self.model)
        try:
            holds(self)
        except TangentError:
            if holds.__name__ == "definition":  # others run the network's own code first
                self.unchanged(before)
            raise
        self.unchanged(before)

    def unchanged(self, before: dict[str, Any]) -> None:
        """The model is what it was."""
        after = state(self.model)
        assert before.keys() == after.keys(), "the model has other parameters, buffers or gradients than before"
        changed = [part for part in before if not same(before[part], after[part])]
        assert not changed, f"the model was changed: {changed[0]}"

    @cached_property
    def lengths(self) -> Tensor:
        """|J_n|, (N,); those of nearly nothing count as a thousandth of the largest."""
        squares = torch.einsum("nono->n", self.expected).clamp(min=0)
        return squares.sqrt().clamp(min=1e-3 * float(squares.max().sqrt()) + 1e-30)

    def error(self, found: Tensor) -> float:
        """The largest error of a full kernel, relative to |J_n| |J_m|."""
        scale = (self.lengths[:, None] * self.lengths[None, :])[:, None, :, None]
        return float(((found.double() - self.expected).abs() / scale).max())

    def agree(
        self, what: str, found: Tensor, expected: Tensor, left: Any = ..., right: Any = ..., tolerance: float = DOUBLE
    ) -> None:
        """Two kernels (N, O, M, P), (N, M) or (O, N, M) of the samples ``left`` and ``right`` are the same."""
        scale = self.lengths[left][:, None] * self.lengths[right][None, :]
        shaped = {4: scale[:, None, :, None], 2: scale, 3: scale[None]}[expected.ndim]
        assert found.shape == expected.shape, f"{what}: shape {tuple(found.shape)}, not {tuple(expected.shape)}"
        error = float(((found.double() - expected.double()).abs() / shaped).max())
        assert error <= tolerance, f"{what}: off by {error:.1e} of |J_n| |J_m|, allowed {tolerance:.0e}"


def state(model: nn.Module) -> dict[str, Any]:
    """Everything of a model that no computation may change."""
    found: dict[str, Any] = {"random numbers": torch.get_rng_state()}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        found[name] = tensor.detach().clone()
        found[f"gradient of {name}"] = tensor.grad
        found[f"flag of {name}"] = tensor.requires_grad
    found |= {f"tensor of {name}": id(parameter) for name, parameter in model.named_parameters()}
    found |= {f"mode of {name}": module.training for name, module in model.named_modules()}
    return found


def same(one: Any, two: Any) -> bool:
    return torch.equal(one, two) if isinstance(one, Tensor) and isinstance(two, Tensor) else one is two or one == two
