"""Running statistics of BatchNorm: estimated on data, or never touched."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from tangentlab._copying import copy_model
from tangentlab._errors import TangentError


def estimate_statistics(network: nn.Module, inputs: Any, *, batch_size: int = 256) -> nn.Module:
    """Copy a network and set the running statistics of its BatchNorm layers to those of data.

    An untrained network has mean 0 and variance 1 as statistics, with which it does not normalize at all; its
    linearization and kernel in evaluation mode are those of another function than the one that training starts from.
    The statistics are the plain means over batches, in one pass, each layer seeing the batch statistics of the layers
    before it. Dropout is off.

    Cost: a copy of the network, and one forward pass of all samples.

    Args:
        network: Any network. It is not changed.
        inputs: A tensor, a tuple or a dict of tensors, whose first axis counts samples; or an iterable of batches of
            these forms, such as a ``DataLoader`` of inputs. A batch that is a list is taken as inputs and targets.
        batch_size: Samples per batch, for tensors.

    Returns:
        The copy, each module in the mode that it had.

    Raises:
        TangentError: The network has no layer with running statistics, or there are no samples.

    Examples:
        >>> import torch
        >>> from tangentlab import linearized
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8)).eval()
        >>> network = linearized.estimate_statistics(network, torch.randn(20, 4))
        >>> network[1].running_var.shape
        torch.Size([8])

    See also:
        :func:`tangentlab.linearized.linearize`.
    """
    twin = copy_model(network)
    norms = [m for m in twin.modules() if isinstance(m, _NormBase) and m.track_running_stats]
    if not norms:
        raise TangentError(
            "The network has no BatchNorm with running statistics.", remedy="Linearize the network as it is."
        )
    set_statistics(twin, norms, _batches(inputs, batch_size))
    for mine, original in zip(twin.modules(), network.modules(), strict=True):
        mine.training = original.training
    return twin


def set_statistics(network: nn.Module, norms: Iterable[_NormBase], batches: Iterable[Any]) -> None:
    """Set running statistics to the means over batches, in place; the network is in evaluation mode afterward."""
    norms = list(norms)
    momenta = [norm.momentum for norm in norms]
    network.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the plain mean over batches
        norm.train()
    count = 0
    with torch.no_grad():
        for batch in batches:
            count += 1
            if isinstance(batch, Mapping):
                network(**batch)
            elif isinstance(batch, tuple):
                network(*batch)
            else:
                network(batch)
    if not count:
        raise TangentError("There are no samples.", why="Statistics are means over them.", remedy="Pass at least one.")
    network.eval()
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum


def untouched(network: nn.Module) -> list[str]:
    """List the normalization layers whose running statistics are those of a new layer, mean 0 and variance 1."""
    return [
        name
        for name, m in network.named_modules()
        if isinstance(m, _NormBase)
        and m.running_mean is not None
        and m.running_var is not None
        and not bool(m.running_mean.any())
        and bool((m.running_var == 1).all())
    ]


def _batches(inputs: Any, size: int) -> Iterator[Any]:
    if isinstance(inputs, Tensor):
        yield from inputs.split(size)
    elif isinstance(inputs, tuple):
        yield from zip(*(part.split(size) for part in inputs), strict=True)
    elif isinstance(inputs, Mapping):
        parts = zip(*(part.split(size) for part in inputs.values()), strict=True)
        yield from (dict(zip(inputs, part, strict=True)) for part in parts)
    else:
        for batch in inputs:
            yield batch[0] if isinstance(batch, list) else batch
