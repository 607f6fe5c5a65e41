"""Random numbers in a forward pass: whether any that are drawn are used."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tangentlab.kernels._dataflow import ESCAPES, READINGS, full_name, plain_name
from tangentlab.kernels._row_moves import memory, tensors


class RandomDraws:
    """The random numbers of a forward pass, and whether any of them are used.

    Layer drop draws a number for every layer and, in evaluation mode, looks at none of them.

    Args:
        device: Where the model is.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.state = generators(device)
        self.drawn: list[Tensor] = []
        self.matters = False
        """Whether a random number was used, or drawn by code that is not seen."""

    def follow(self, func: Callable[..., Any], given: Sequence[Tensor], call: Callable[[], Any]) -> Any:
        """Make one call and record whether it draws or uses random numbers."""
        self.matters |= not same_generators(self.state, generators(self.device))  # drawn in between
        result = call()
        outputs = list(tensors(result))
        name = plain_name(full_name(func))
        if outputs or name in READINGS | ESCAPES:
            random = {id(t) for t in self.drawn} | {memory(t) for t in self.drawn}
            self.matters |= any(id(t) in random or memory(t) in random for t in given)
        state = generators(self.device)
        if not same_generators(self.state, state):
            self.drawn += outputs
            self.matters |= bool(given)  # numbers drawn into or for a tensor at hand: dropout, noise
            self.state = state
        return result

    def among(self, outputs: Sequence[Any]) -> bool:
        """Return whether what the model returns holds random numbers themselves."""
        random = {memory(t) for t in self.drawn}
        return any(memory(t) in random for t in tensors(outputs))

    def end(self) -> bool:
        """Return whether random numbers matter, after the last operation."""
        return self.matters or not same_generators(self.state, generators(self.device))


def generators(device: torch.device) -> list[Tensor]:
    """Return the states of the random number generators that a model on a device draws from."""
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


def same_generators(one: Sequence[Tensor], two: Sequence[Tensor]) -> bool:
    """Return whether nothing was drawn between two states."""
    return all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
