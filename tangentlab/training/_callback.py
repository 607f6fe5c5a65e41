"""Functions to call with the model at chosen epochs."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Protocol

from torch import nn


class CallbackLike(Protocol):
    """What the loop needs of a callback; :class:`Callback` is one, ``finetune.KernelRecorder`` another."""

    @property
    def name(self) -> str:
        """The name of its values."""

    @property
    def function(self) -> Callable[[nn.Module, int], Any]:
        """The function to call with the model and the epoch."""

    def due(self, epoch: int, epochs: int) -> bool:
        """Return whether it is called after ``epoch`` of ``epochs`` epochs."""


@dataclass(frozen=True)
class Callback:
    """A function to call at chosen epochs, for example to compute the kernel of the network then.

        Callback("kernel", lambda model, epoch: tangentlab.ntk(model, x), epochs=(0, 50, 100))

    Attributes:
        name: Under which the values are found in ``result.values[name][epoch]``.
        function: Called with the model, in evaluation mode, and the epoch. What it does to PyTorch's random
            generator is undone. It must leave the weights alone. After a resumed run it may have been called twice
            for an epoch; the value is the one of the last call.
        epochs: After how many epochs; 0 is before training, -1 after the last. None for every epoch.
    """

    name: str
    function: Callable[[nn.Module, int], Any]
    epochs: Collection[int] | None = None

    def due(self, epoch: int, epochs: int) -> bool:
        """Return whether it is called after ``epoch`` of ``epochs`` epochs."""
        return self.epochs is None or epoch in self.epochs or (epoch == epochs and -1 in self.epochs)
