"""Forward passes that draw random numbers or change their model: found, undone, and refused where it matters."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab._state import Change, State
from tangentlab.kernels._random_draws import generators, same_generators


class Undisturbed:
    """A context that refuses a forward pass which draws random numbers or writes to tensors, and undoes both.

    Every pass by itself finds what it changes in the model by version counters, and undoes it (:func:`steadily`).

    Args:
        model: The model.
        device: Where it is.
        randomness: Returns, after the pass, whether random numbers matter if any were drawn.
        values: Whether the numbers of all tensors are kept meanwhile, one more copy of the model, so that what was
            written past the version counters is found and undone, too.
    """

    def __init__(
        self,
        model: nn.Module,
        device: torch.device,
        randomness: Callable[[], bool] = lambda: True,
        values: bool = True,
    ) -> None:
        self.model, self.device, self.randomness, self.values = model, device, randomness, values
        self.drawn = False
        """Whether random numbers were drawn."""

    def __enter__(self) -> "Undisturbed":
        self.generators = generators(self.device)
        self.state = State(self.model, values=True) if self.values else None
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.drawn = not same_generators(generators(self.device), self.generators)
        matters = self.drawn and kind is None and self.randomness()
        changes = self.state.changes() if self.state is not None and kind is None else []
        if self.state is not None and (changes or kind is not None):
            self.state.restore()
        torch.set_rng_state(self.generators[0])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(self.generators[1], self.device)
        if kind is not None:
            return
        if matters:
            raise TangentError(
                "The forward pass draws random numbers.",
                "The network is a different one at every call, so it has no kernel.",
                "Call model.eval(), or take dropout, stochastic depth and noise out of the forward pass (and out of "
                "the Dataset).",
            )
        refuse(changes, all_of_them=True)  # what a single call has not undone


def refuse(changes: list[Change], all_of_them: bool = False) -> None:
    """Refuse changes of parameters, buffers, modules, and of any tensor in place; or all changes."""
    for change in changes:
        if all_of_them or change.kind != "attribute":
            raise TangentError(
                f"The forward pass changes the {change.kind} {change.name}.",
                "The network would be a different one from batch to batch.",
                "Call model.eval(); create parameters, buffers and modules before (run a lazy model once), and do not "
                "write to them in the forward pass.",
            )


def steadily(
    model: nn.Module, call: Callable[[], Any], again: Callable[[], Any], tolerance: float, harmless: set[str]
) -> Any:
    """Call the model and undo every change of it.

    A forward pass may count and cache in attributes; that is undone, so that every batch finds the same model. If the
    outputs depend on it, there is no one network, and the model is refused.

    Args:
        model: The model.
        call: Calls it.
        again: Calls it once more on the same batch, to find out whether the change matters.
        tolerance: Relative difference of two outputs that is still rounding.
        harmless: Attributes known to change without an effect on the outputs; more are added here.
    """
    state = State(model)
    try:
        result = call()
        changes = state.changes()
        refuse(changes)
        fresh = {change.name for change in changes} - harmless
        if fresh and isinstance(result, Tensor):
            with torch.no_grad():
                other = again()
            if not (isinstance(other, Tensor) and _alike(result, other, tolerance)):
                raise TangentError(
                    f"The forward pass changes its attribute {min(fresh)}, and its outputs with it.",
                    "The network would be a different one from batch to batch.",
                    "Call model.eval(), or leave the attribute alone in the forward pass.",
                )
            harmless |= fresh
    finally:
        if not state.untouched:
            state.restore()
    return result


def _alike(one: Tensor, two: Tensor, tolerance: float) -> bool:
    if one.shape != two.shape:
        return False
    one, two = one.detach().double(), two.detach().double()
    return not float((one - two).norm()) > tolerance * float(two.norm())
