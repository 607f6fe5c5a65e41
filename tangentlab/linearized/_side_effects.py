"""Side effects of a call: random numbers, writes to the base point, changed attributes."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from tangentlab._errors import TangentError
from tangentlab._state import State, version_of
from tangentlab.linearized._point import Point
from tangentlab.linearized._randomness import Randomness, alike
from tangentlab.linearized._slots import changed


@dataclass
class CallHistory:
    """The findings of earlier calls.

    Attributes:
        called: Whether a call has passed all checks.
        compared: Whether forward mode has been compared with a backward pass.
        harmless: Attributes that calls change without an effect on the outputs.
    """

    called: bool = False
    compared: bool = False
    harmless: set[str] = field(default_factory=set)


class SideEffects:
    """The side effects of a call: what differs from the state before it.

    Args:
        network: The network.
        base: The module that holds the base point, by ``names``.
        args: The inputs.
        kwargs: The keyword inputs.
        thorough: Whether to keep the numbers of all tensors, so that every write is found and undone.
    """

    def __init__(
        self, network: nn.Module, base: Any, args: tuple[Any, ...], kwargs: dict[str, Any], thorough: bool
    ) -> None:
        self._names = base.names
        self._args, self._kwargs = args, kwargs
        self._inputs = [(t, version_of(t)) for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        self._randomness = Randomness(network)
        self._parameters = {name for name, _ in network.named_parameters()}
        self._network, self._state, self._base = network, State(network, thorough), State(base, thorough)

    def restore(self) -> None:
        """Undo what the call has changed."""
        self._randomness.restore()
        self._state.restore()
        self._base.restore()

    def refuse_randomness(self, point: Point) -> None:
        """Refuse a network that has drawn random numbers and uses them."""
        self._randomness.refuse(lambda: point.call({}, self._args, self._kwargs))

    def check(self, harmless: Collection[str], point: Point) -> set[str]:
        """Refuse a network that becomes another function from call to call.

        Args:
            harmless: Attributes known to change without an effect on the outputs.
            point: The base point, to test whether other attributes have an effect.

        Returns:
            Attributes that have changed without an effect.
        """
        self.refuse_randomness(point)
        for change in self._base.changes():
            name = self._names[int(change.name)]
            raise changed(name, name in self._parameters)
        if any(version_of(tensor) != version for tensor, version in self._inputs):
            raise TangentError(
                "The network wrote to its inputs.",
                why="They may be needed again for gradients.",
                remedy="Begin the forward pass with x = x.clone().",
            )
        changes = self._state.changes()
        created = sorted({name for name, _ in self._network.named_parameters()} - self._parameters)
        if created:
            raise TangentError(
                f"The network created parameters during its first call: {', '.join(created)}.",
                why="They are not part of the linearization.",
                remedy="Call the network once on a batch, then linearize it.",
            )
        for change in changes:
            if change.kind != "attribute":
                raise TangentError(
                    f"The network changed its {change.kind} {change.name!r} while it was evaluated.",
                    why="A linearization is one function; the network would be another one in the next call.",
                    remedy="Call model.eval(), and do not change parameters, buffers and modules in the forward pass.",
                )
        fresh = {change.name for change in changes}.difference(harmless)
        if fresh:
            self._refuse_effects(point, min(fresh))
        return fresh

    def _refuse_effects(self, point: Point, name: str) -> None:
        """Compare the outputs from the changed state with those from the state before; refuse a difference."""
        with torch.no_grad():
            after = pytree.tree_leaves(point.call({}, self._args, self._kwargs))
            self.restore()
            before = pytree.tree_leaves(point.call({}, self._args, self._kwargs))
        if len(after) == len(before) and all(map(alike, after, before)):
            return
        raise TangentError(
            f"The network changes its attribute {name!r}, and its outputs with it.",
            why="A linearization is one function; the network is another one in every call.",
            remedy="Call model.eval(), or do not change the attribute in the forward pass.",
        )
