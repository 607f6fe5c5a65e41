"""Weights that a store keeps in addition to its kernel, for networks whose weights are stored nowhere else."""

from pathlib import Path

import torch
from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab._files import written_whole
from tangentlab._reading import Unreadable
from tangentlab._tensor_files import load_torch

NAME = "weights.pt"


def named_weights(model: nn.Module) -> dict[str, Tensor]:
    """List all parameters and buffers by name, also those outside the state dict, as the manifest's hash does."""
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return {name: tensor.detach() for name, tensor in named}


def keep_weights(store: Path, model: nn.Module) -> None:
    """Write the weights of a model into the folder of a store."""
    with written_whole(store / NAME) as file:
        torch.save({name: tensor.cpu() for name, tensor in named_weights(model).items()}, file)


def kept_weights(store: Path) -> dict[str, Tensor] | None:
    """Read the weights that are kept in the folder of a store, or return None.

    Raises:
        TangentError: The weights are damaged.
    """
    if not (store / NAME).is_file():
        return None
    try:
        found = load_torch(store / NAME)
    except Unreadable as error:
        raise _damaged(store, f"it {error}.") from error
    if not isinstance(found, dict) or not all(isinstance(value, Tensor) for value in found.values()):
        raise _damaged(store, "it does not hold tensors by name.")
    return found


def restore_weights(store: Path, model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Load kept weights into a model, in place.

    Raises:
        TangentError: The weights are those of another model.
    """
    own = named_weights(model)
    if {n: t.shape for n, t in own.items()} != {n: t.shape for n, t in weights.items()}:
        raise _damaged(store, f"its names or shapes are not those of {type(model).__name__}.")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(weights[name])


def same_weights(model: nn.Module, weights: dict[str, Tensor]) -> bool:
    """Return whether a model has these weights, bit for bit."""
    own = named_weights(model)
    return own.keys() == weights.keys() and all(
        tensor.dtype == weights[name].dtype and torch.equal(tensor.cpu(), weights[name]) for name, tensor in own.items()
    )


def _damaged(store: Path, why: str) -> TangentError:
    return TangentError(
        f"{store / NAME} cannot be used.",
        why,
        "Restore it from a copy, or remove it if the model can be made again with the same weights.",
    )
