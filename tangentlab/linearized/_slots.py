"""The places of a network's tensors, and their temporary replacement by others."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn

from tangentlab._copying import same_values
from tangentlab._errors import TangentError

# One thread at a time: PyTorch has one level of forward-mode differentiation for all threads, and the other threads
# would find a tensor that one thread has installed.
LOCK = threading.RLock()


class Slots:
    """The places of a network's parameters and buffers. A tied tensor has several, under its first name.

    :meth:`installed` does what ``torch.func.functional_call`` does, at a tenth of its cost, because the places are
    looked up once and not in every call. This matters if a training step takes ten milliseconds.
    """

    def __init__(self, network: nn.Module) -> None:
        first: dict[int, str] = {}
        self._places: list[tuple[str, nn.Module, str, bool]] = []
        for kind, named in (
            (True, network.named_parameters(remove_duplicate=False)),
            (False, network.named_buffers(remove_duplicate=False)),
        ):
            for name, tensor in named:
                prefix, _, attribute = name.rpartition(".")
                shared = first.setdefault(id(tensor), name)
                self._places.append((shared, network.get_submodule(prefix), attribute, kind))
        self._network = network
        self._modules = [(module, len(module._parameters), len(module._buffers)) for module in network.modules()]
        self.parameters = [name for name, _ in network.named_parameters()]
        self.buffers = [name for name, _ in network.named_buffers()]

    def complete(self) -> bool:
        """Return whether the network still has the same modules with as many tensors as when the places were found."""
        present = list(self._network.modules())
        return len(present) == len(self._modules) and all(
            module is known and len(module._parameters) == parameters and len(module._buffers) == buffers
            for module, (known, parameters, buffers) in zip(present, self._modules, strict=True)
        )

    def theta(self) -> dict[str, Tensor]:
        """Return the current parameters, each once."""
        found: dict[str, Tensor] = {}
        for name, module, attribute, kind in self._places:
            if kind and name not in found:
                found[name] = getattr(module, attribute)
        return found

    @contextmanager
    def installed(self, values: Mapping[str, Tensor]) -> Iterator[None]:
        """Install tensors in their places, by first names, and restore the former ones at the end.

        Raises:
            TangentError: The network replaced one of the tensors in the meantime.
        """
        former = []
        taken = None
        with LOCK:
            try:
                for name, module, attribute, kind in self._places:
                    if name in values:
                        place = module._parameters if kind else module._buffers
                        former.append((place, attribute, place[attribute], name, kind))
                        place[attribute] = values[name]  # type: ignore[assignment]
                yield
            finally:
                for place, attribute, tensor, name, kind in reversed(former):
                    found = place[attribute] if attribute in place else None  # noqa: SIM401, scripted modules have no get
                    if found is not values[name] and (kind or found is None or not same_values(found, values[name])):
                        taken = name, kind
                    place[attribute] = tensor  # type: ignore[assignment]
        if taken is not None:
            raise changed(*taken)


def changed(name: str, parameter: bool) -> TangentError:
    """Build the refusal of a network that writes to its own tensors."""
    return TangentError(
        f"The network changed its {'parameter' if parameter else 'buffer'} {name!r} while it was evaluated.",
        why="The base point must not change.",
        remedy="Call model.eval(), do not change parameters and buffers in the forward pass, and linearize again.",
    )
