"""``linearize``: from a network to its linearized model."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab._copying import copy_model, memory_of, reachable
from tangentlab._errors import TangentError
from tangentlab._reading import Unreadable
from tangentlab._tensor_files import load_torch
from tangentlab.linearized._module import BasePoint, Linearized
from tangentlab.linearized._policy import BatchNormPolicy, check_network, freeze_statistics
from tangentlab.linearized._transformer import LinearizedTransformer, pretrained_model

Weights = Mapping[str, Any] | nn.Module | str | os.PathLike[str]


def linearize(
    model: nn.Module,
    at: Weights | None = None,
    bias: bool = True,
    *,
    theta0: Weights | None = None,
    batch_norm: BatchNormPolicy = "frozen",
) -> Linearized:
    """Expand a network to first order in its weights, as a module that trains like any other.

    Biased form, the default:       z(x) = f(x; theta*) + J(x; theta*) (theta - theta0)
    Unbiased form, ``bias=False``:  z(x) = J(x; theta*) (theta - theta0)

    ``theta*`` is the base point ``at``; ``theta`` are the parameters of the returned module, which start at
    ``theta0``. J has one row per output and one column per weight and is never formed.

    Cost: a training step takes one forward-mode and one reverse-mode pass, whatever the number of outputs: the
    operations of five forward passes, where a step of the network takes three. Memory: the weights twice, or three
    times if theta0 is not theta*.

    J is the Jacobian of backward passes, as for the kernel: ``no_grad``, ``detach``, hooks and custom autograd
    functions have the same effect. The first call compares forward mode with a backward pass on its inputs, and needs
    the memory of one; if the two may differ, J (theta - theta0) is computed by two backward passes. The first call
    refuses a network whose outputs or gradients are NaN or infinite. Every call refuses random numbers, unless they are
    drawn and not used, as by layer drop in evaluation mode.

    With the defaults this is the linearization at the current weights, f0(x) + J(x) (theta - theta0). The unbiased
    linearization at a solution (ortiz2021, figure 8), started at the initial weights that ``model`` holds::

        linearize(model, at="solution.pt", bias=False)

    Args:
        model: Any ``nn.Module``. It is copied and never changed. Modules other than BatchNorm keep their mode
            (training or evaluation).
        at: The base point theta*: a ``state_dict``, a network of the same structure, or a file with a state dict
            or a checkpoint of :func:`tangentlab.training.train`. By default the weights of ``model``.
        bias: Whether the output at the base point, f(x; theta*), is part of the model.
        theta0: The reference and starting point, in the same forms as ``at``. By default theta* if ``bias``, so
            that z is the Taylor expansion; otherwise the weights of ``model``.
        batch_norm: ``"frozen"``: BatchNorm always uses its running statistics at linearization (those of ``at``, if it
            has any), whatever is loaded later. ``"eval"``: it uses, as in evaluation mode, the running statistics that
            the module has when it is called, so that ``load_state_dict`` changes them. Neither uses a batch's
            statistics or updates the running ones. Layers with running statistics of
            other kinds (InstanceNorm with ``track_running_stats``) are treated the same.

    Returns:
        A module with the network's call signature, output structure, parameter names and ``state_dict``.
        Parameters that do not require gradients stay frozen and have no tangent, so that a subset (the last layers,
        biases, the adapters of peft) costs less; tied ones stay tied. Models of the transformers library compute the
        loss of the linearized logits if they are called with ``labels``, and train under ``Trainer``.

    Raises:
        TangentError: The network has active dropout, lazy parameters, BatchNorm without running statistics or
            compiled modules, or the base point does not fit it.

    Examples:
        >>> import torch
        >>> from tangentlab import linearize
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> lin = linearize(network)
        >>> torch.allclose(lin(x), network(x), atol=1e-6)
        True
        >>> optimizer = torch.optim.SGD(lin.parameters(), 0.1)
        >>> lin(x).square().mean().backward()
        >>> optimizer.step()

    See also:
        :func:`tangentlab.linearized.linearization_error`, :func:`tangentlab.training.compare`,
        :func:`tangentlab.ntk`.
    """
    if isinstance(model, Linearized):
        raise TangentError(
            "The model is already linearized.", remedy="Linearize the network, or copy.deepcopy the linearized model."
        )
    check_network(model, batch_norm)
    with torch.inference_mode(False):  # tensors of inference mode cannot be differentiated
        return _build(model, at, bias, theta0, batch_norm)


def _build(
    model: nn.Module, at: Weights | None, bias: bool, theta0: Weights | None, batch_norm: BatchNormPolicy
) -> Linearized:
    if at is not None:
        _refuse_views(model)
    network = copy_model(model)
    thawed = freeze_statistics(network)
    current = _tensors(network)
    base = current if at is None else _read(at, network, "at")
    names = [name for name, _ in network.named_parameters()]
    if theta0 is not None:
        start = _read(theta0, network, "theta0")
    else:
        start = base if bias else current
    reference = None
    if any(not torch.equal(start[name], base[name]) for name in names):
        reference = BasePoint({name: start[name] for name in names})
    point = BasePoint(base)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            parameter.copy_(start[name])
            parameter.grad = None
        for name, buffer in network.named_buffers():
            buffer.copy_(base[name])
    kind = Linearized if pretrained_model(network) is None else LinearizedTransformer
    return kind(network, point, reference, bias=bias, batch_norm=batch_norm, thawed=thawed)


def _refuse_views(network: nn.Module) -> None:
    """Refuse tensors in the memory of a parameter: their copies would not follow to another base point."""
    named = [*network.named_parameters(), *network.named_buffers()]
    memory = {memory_of(tensor): name for name, tensor in named}
    own = {id(tensor) for _, tensor in named}
    for thing, _ in reachable(network):
        if isinstance(thing, Tensor) and id(thing) not in own and (address := memory_of(thing)) in memory and address:
            raise TangentError(
                f"The network holds a tensor that shares the memory of {memory[address]!r}.",
                why="It changes with the parameter, and would not change to the base point given as at=.",
                remedy="Hold a clone(), or use the parameter itself in the forward pass.",
            )


def _tensors(network: nn.Module) -> dict[str, Tensor]:
    pairs = [*network.named_parameters(), *network.named_buffers()]
    return {name: tensor.detach().clone() for name, tensor in pairs}


def _read(source: Weights, network: nn.Module, what: str) -> dict[str, Tensor]:
    """Read weights and buffers in any of the accepted forms and check them against the network's names and shapes.

    Buffers that the source lacks (non-persistent ones, or all of them) keep the network's values.
    """
    state: Mapping[str, Any]
    if isinstance(source, nn.Module):
        state = _tensors(source)
    elif isinstance(source, Mapping):
        state = source
    elif isinstance(source, str | os.PathLike):
        state = _load(source, what)
    else:
        raise TangentError(
            f"The argument {what} is of type {type(source).__name__}, which has no weights.",
            remedy="Give a state_dict, a network or a file.",
        )
    result = _tensors(network)
    parameters = {name for name, _ in network.named_parameters()}
    missing = sorted(parameters - state.keys())
    known = {name for name, _ in network.named_parameters(remove_duplicate=False)}
    known |= {name for name, _ in network.named_buffers(remove_duplicate=False)}
    unknown = sorted(name for name in state if name not in known and isinstance(state[name], Tensor))
    shapes = [
        f"{name} {tuple(state[name].shape)} for {tuple(tensor.shape)}"
        for name, tensor in result.items()
        if name in state and state[name].shape != tensor.shape
    ]
    problems = [
        f"{label}: {', '.join(names[:5])}{' and more' if len(names) > 5 else ''}"
        for label, names in (("missing", missing), ("unknown", unknown), ("of another shape", shapes))
        if names
    ]
    if problems:
        raise TangentError(
            f"The weights given as {what} do not fit the network; {'; '.join(problems)}.",
            why="The base point must name every parameter of the network.",
            remedy="Give the state_dict of a network of the same architecture.",
        )
    for name, tensor in result.items():
        if name in state:
            tensor.copy_(state[name].detach())
    return result


def _load(path: str | os.PathLike[str], what: str) -> Mapping[str, Any]:
    try:
        loaded = load_torch(Path(path))
    except Unreadable as error:
        raise TangentError(
            f"The file {os.fspath(path)!r} given as {what} {error}.",
            remedy="Give a file written by torch.save(model.state_dict(), path) or a checkpoint of a training run.",
        ) from error
    if isinstance(loaded, Mapping) and isinstance(loaded.get("model"), Mapping):
        loaded = loaded["model"]
    if not isinstance(loaded, Mapping):
        raise TangentError(
            f"The file {os.fspath(path)!r} given as {what} holds {type(loaded).__name__}, not weights.",
            remedy="Save a state_dict.",
        )
    tensors = {name: value for name, value in loaded.items() if isinstance(name, str) and isinstance(value, Tensor)}
    for name, value in tensors.items():
        if value.is_floating_point() and bool(torch.isnan(value).any()):
            raise TangentError(
                f"The file {os.fspath(path)!r} given as {what} has NaN in {name}.",
                why="Every output would be NaN.",
                remedy="Give weights from before the training diverged.",
            )
    return tensors
