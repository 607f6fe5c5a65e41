"""Conditions for a linearization: the network is one function of its weights, the same in every call."""

from typing import Literal

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parameter import is_lazy

from tangentlab._errors import TangentError

BatchNormPolicy = Literal["frozen", "eval"]


def check_network(network: nn.Module, batch_norm: str) -> None:
    """Refuse what cannot be linearized, by name.

    Raises:
        TangentError: The network has lazy or complex parameters, compiled or scripted modules, BatchNorm without
            running statistics or active dropout, or the policy is unknown.
    """
    if not isinstance(network, nn.Module):
        raise TangentError(
            f"{type(network).__name__} is not a torch.nn.Module.", remedy="Wrap the function in a module."
        )
    if batch_norm not in ("frozen", "eval"):
        raise TangentError(f"There is no BatchNorm policy {batch_norm!r}.", remedy="Use 'frozen' or 'eval'.")
    if type(network).__name__ in ("OptimizedModule", "RecursiveScriptModule", "TopLevelTracedModule"):
        raise TangentError(
            "The network is compiled.",
            why="Its operations cannot be traced.",
            remedy="Linearize the original network, then compile the linearized one.",
        )
    for name, tensor in [*network.named_parameters(), *network.named_buffers()]:
        if is_lazy(tensor):
            raise TangentError(
                f"Parameter {name!r} has not been created yet.",
                why="A lazy module chooses its shapes at the first call.",
                remedy="Call the network once on a batch, then linearize it.",
            )
    named = dict(network.named_parameters())
    if not named:
        raise TangentError(
            "The network has no parameters.", why="There is nothing to linearize in.", remedy="Use it as it is."
        )
    for name, parameter in named.items():
        if not parameter.is_floating_point():
            raise TangentError(
                f"Parameter {name!r} is {parameter.dtype}.",
                why="Only real floating-point parameters are supported.",
                remedy="Store real and imaginary part as two parameters, and integers as buffers.",
            )
    for name, module in network.named_modules():
        if isinstance(module, _NormBase) and _uses_batch(module):
            raise TangentError(
                f"{name or type(module).__name__!r} has no running statistics.",
                why="It normalizes with the statistics of the batch, which cannot be frozen.",
                remedy="Build it with track_running_stats=True.",
            )
        if module.training and randomness(module):
            raise TangentError(
                f"{name or type(module).__name__!r} ({type(module).__name__}) draws random numbers in training mode.",
                why="A linearization is one function; dropout changes it in every call.",
                remedy="Call model.eval() before linearizing, or set the dropout probability to 0.",
            )


def freeze_statistics(network: nn.Module) -> list[str]:
    """Put every normalization with running statistics into evaluation mode. Other modules keep their mode.

    Returns:
        The names of the modules that were in training mode.
    """
    thawed = []
    for name, module in network.named_modules():
        if isinstance(module, _NormBase) and module.track_running_stats and module.training:
            module.eval()
            thawed.append(name)
    return thawed


def watched(network: nn.Module) -> list[nn.Module]:
    """List the modules whose training mode would change the function."""
    return [m for m in network.modules() if randomness(m) or (isinstance(m, _NormBase) and m.track_running_stats)]


def check_modes(modules: list[nn.Module]) -> None:
    """Refuse a frozen module that has been put into training mode since."""
    for module in modules:
        if module.training:
            raise TangentError(
                f"A {type(module).__name__} of the linearized model has been put into training mode.",
                why="It was frozen when the network was linearized; train() of the linearized model leaves it so.",
                remedy="Call .eval() on that module.",
            )


def randomness(module: nn.Module) -> bool:
    """Return whether the module draws random numbers in training mode."""
    if isinstance(module, _DropoutNd):
        return module.p > 0
    if isinstance(module, nn.MultiheadAttention | nn.RNNBase):
        return module.dropout > 0
    return isinstance(module, nn.RReLU)


def _uses_batch(module: _NormBase) -> bool:
    instance = isinstance(module, nn.InstanceNorm1d | nn.InstanceNorm2d | nn.InstanceNorm3d)
    return module.running_mean is None and not instance
