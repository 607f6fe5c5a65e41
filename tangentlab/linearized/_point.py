"""A network at a base point, and its expansion there."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from tangentlab._errors import TangentError
from tangentlab.linearized._rules import PassSettings
from tangentlab.linearized._slots import Slots

# The message that identifies activation checkpointing, which uses such hooks.
HOOKS = "The network uses saved tensor hooks."


@dataclass(frozen=True)
class Point:
    """The base point of an expansion and the displacement from it.

    Attributes:
        network: The network, for its structure; its own weights are not used.
        slots: The places of its tensors.
        weights: The base point theta*, by name.
        displacement: d by name, for the parameters that have one.
        buffers: The buffers of the evaluation, by name.
        settings: The memory format and mode that passes use.
        own: The names of the network's own tensors that are replaced during a call, by identity.
    """

    network: nn.Module
    slots: Slots
    weights: Mapping[str, Tensor]
    displacement: Mapping[str, Tensor]
    buffers: Mapping[str, Tensor]
    settings: PassSettings
    own: Mapping[int, str]

    def call(self, weights: Mapping[str, Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the network with ``weights`` in place of the base point's."""
        with self.installed(weights):
            return self.network(*args, **kwargs)

    def installed(self, weights: Mapping[str, Tensor]) -> AbstractContextManager[None]:
        """Install those weights for longer than a call."""
        return self.slots.installed({**self.weights, **self.buffers, **weights})

    def generators_kept(self) -> AbstractContextManager[Any]:
        """Restore the random number generators afterward."""
        return torch.random.fork_rng({w.device for w in self.weights.values() if w.device.type == "cuda"})

    def call_functionally(self, weights: Mapping[str, Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the network in a way that ``torch.compile`` supports."""
        return functional_call(self.network, {**self.weights, **self.buffers, **weights}, args, kwargs)


@dataclass
class Expansion:
    """The leaves of an output: f(x; theta*) and J d.

    Attributes:
        primal: f(x; theta*), with a graph that ends at ``weights`` if gradients were requested.
        tangent: J d, or None if an output does not depend on d.
        structure: The structure of the output.
        weights: The base weights with requested gradients, by name.
    """

    primal: list[Any]
    tangent: list[Tensor | None]
    structure: Any
    weights: dict[str, Tensor]

    def value(self, bias: bool) -> list[Any]:
        """Return f + J d, or J d alone, leaf by leaf. Leaves without a derivative stay as they are."""
        return [add(p, t, bias) for p, t in zip(self.primal, self.tangent, strict=True)]


def add(primal: Any, tangent: Tensor | None, bias: bool) -> Any:
    """Add one leaf of f and J d; return J d alone without ``bias``."""
    if not differentiable(primal):
        return primal
    if not bias:
        return torch.zeros_like(primal) if tangent is None else tangent
    return primal if tangent is None else primal + tangent


def differentiable(value: Any) -> bool:
    """Return whether a value is a tensor that can have a derivative."""
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def check_output(flat: list[Any]) -> None:
    """Refuse an output without a tensor that can have a derivative."""
    if not any(differentiable(leaf) for leaf in flat):
        kinds = ", ".join(sorted({type(leaf).__name__ for leaf in flat})) or "nothing"
        raise TangentError(
            f"The network returned no floating-point tensor, but {kinds}.",
            why="Only tensors, and tuples, lists and dictionaries of them, can be linearized.",
            remedy="Wrap the network in a module that returns its tensors, or register its output type with "
            "torch.utils._pytree.",
        )
