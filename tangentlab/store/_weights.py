"""Weights that a store keeps in addition to its kernel, for networks whose weights are stored nowhere else."""

import tempfile
from pathlib import Path
from typing import IO

import torch
from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab._reading import Unreadable
from tangentlab._tensor_files import load_torch
from tangentlab.store._place import Folder, Place

NAME = "weights.pt"


def named_weights(model: nn.Module) -> dict[str, Tensor]:
    """List all parameters and buffers by name, also those outside the state dict, as the manifest's hash does."""
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return {name: tensor.detach() for name, tensor in named}


def write_weights(model: nn.Module, file: IO[bytes]) -> None:
    """Write the weights of a model into a file."""
    torch.save({name: tensor.cpu() for name, tensor in named_weights(model).items()}, file)


def kept_weights(place: Place, key: str) -> dict[str, Tensor] | None:
    """Read the weights that a store keeps, or return None.

    Args:
        place: The store.
        key: The key of its manifest.

    Raises:
        TangentError: The weights are damaged.
    """
    name = place.weights_name(key)
    if place.stat(name) is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        if isinstance(place, Folder):
            file = place.where / name
        else:
            file = Path(folder) / NAME
            file.write_bytes(place.read(name))
        try:
            found = load_torch(file)
        except Unreadable as error:
            raise _damaged(place, f"it {error}.") from error
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise _damaged(place, "it does not hold tensors by name.")
    return found


def restore_weights(place: object, model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Load kept weights into a model, in place.

    Raises:
        TangentError: The weights are those of another model.
    """
    own = named_weights(model)
    if {n: t.shape for n, t in own.items()} != {n: t.shape for n, t in weights.items()}:
        raise _damaged(place, f"its names or shapes are not those of {type(model).__name__}.")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(weights[name])


def same_weights(model: nn.Module, weights: dict[str, Tensor]) -> bool:
    """Return whether a model has these weights, bit for bit."""
    own = named_weights(model)
    return own.keys() == weights.keys() and all(
        tensor.dtype == weights[name].dtype and torch.equal(tensor.cpu(), weights[name]) for name, tensor in own.items()
    )


def _damaged(place: object, why: str) -> TangentError:
    return TangentError(
        f"{place}/{NAME} cannot be used.",
        why,
        "Restore it from a copy, or remove it if the model can be made again with the same weights.",
    )
