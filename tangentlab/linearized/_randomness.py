"""Random numbers that a call draws: generators are restored, and outputs that depend on them are refused."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from tangentlab._errors import TangentError
from tangentlab.kernels.internal import RandomDraws, generators, same_generators, tensors
from tangentlab.linearized._point import differentiable


class Randomness:
    """The states of the random number generators before a call.

    Args:
        network: The network.
    """

    def __init__(self, network: nn.Module) -> None:
        self._devices = list(dict.fromkeys(p.device for p in network.parameters())) or [torch.device("cpu")]
        self._states = [generators(device) for device in self._devices]
        self._unused = False

    def refuse(self, call: Callable[[], Any]) -> None:
        """Refuse a network that has drawn random numbers and uses them.

        Layer drop draws numbers in evaluation mode too, without using them. If numbers were drawn, the network runs
        twice more: once with every operation traced, and once with other numbers, since some operations cannot be
        traced.

        Args:
            call: A function that calls the network on the same inputs.

        Raises:
            TangentError: The outputs depend on random numbers, or may do so.
        """
        if self._unused or self._untouched():
            return
        self.restore()
        if len(self._devices) == 1 and self._without_effect(call):
            self._unused = True
            return
        raise TangentError(
            "The network drew random numbers.",
            why="A linearization is one function; dropout or noise changes it in every call.",
            remedy="Call model.eval() before linearizing, and switch off what stays random in that mode.",
        )

    def restore(self) -> None:
        """Restore the generators."""
        if self._untouched():
            return
        for device, (state, *cuda) in zip(self._devices, self._states, strict=True):
            torch.set_rng_state(state)
            if cuda:
                torch.cuda.set_rng_state(cuda[0], device)

    def _untouched(self) -> bool:
        now = [generators(device) for device in self._devices]
        return all(map(same_generators, self._states, now))

    def _without_effect(self, call: Callable[[], Any]) -> bool:
        draws = RandomDraws(self._devices[0])
        with torch.enable_grad():  # some modules branch on whether gradients are on
            with _Follow(draws):
                outputs = pytree.tree_leaves(call())
            if draws.end() or draws.among(outputs):
                return False
            torch.manual_seed(int(self._states[0][0].long().sum()))
            others = pytree.tree_leaves(call())
        self.restore()
        return len(outputs) == len(others) and all(map(alike, outputs, others))


class _Follow(TorchFunctionMode):
    """A torch function mode that records which results depend on random numbers."""

    def __init__(self, draws: RandomDraws) -> None:
        super().__init__()
        self.draws = draws

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        return self.draws.follow(func, list(tensors((args, kwargs))), lambda: func(*args, **kwargs))


def alike(one: Any, two: Any) -> bool:
    """Return whether two outputs of one network are equal up to rounding."""
    if not differentiable(one) or not differentiable(two):
        return True
    one, two = one.detach(), two.detach()
    tolerance = 100 * torch.finfo(one.dtype).eps
    return one.shape == two.shape and not bool((one - two).abs().norm() > tolerance * two.norm())
