"""The choice of parameters, and refusals of models without a kernel."""

import fnmatch
from collections.abc import Callable, Iterable

from torch import nn

from tangentlab._errors import TangentError
from tangentlab.kernels._inputs import all_finite

ParametersLike = str | Iterable[str | nn.Parameter] | Callable[[str, nn.Parameter], bool] | None


def select_parameters(model: nn.Module, chosen: ParametersLike) -> dict[str, nn.Parameter]:
    """Return the parameters that count, by name; a tied parameter appears once, under its first name."""
    named = dict(model.named_parameters())
    trainable = {name: p for name, p in named.items() if p.requires_grad}
    if not trainable:
        raise TangentError(
            "The model has no trainable parameter." if named else "The model has no parameter.",
            "The tangent kernel is made of gradients with respect to parameters that require them.",
            "Call requires_grad_(True) on those that should count.",
        )
    if chosen is None:
        return trainable
    if isinstance(chosen, nn.Module):
        chosen = list(chosen.parameters())
    if callable(chosen):
        result = {name: p for name, p in trainable.items() if chosen(name, p)}
        if result:
            return result
        raise TangentError("parameters= chooses none.", "A kernel needs at least one.", "Widen the choice.")
    names: dict[str, None] = {}
    if not isinstance(chosen, Iterable):
        raise TangentError(
            f"parameters= is {chosen!r}.", "", "Pass names, prefixes, patterns, parameters, a module or a function."
        )
    for item in [chosen] if isinstance(chosen, (str, nn.Parameter)) else chosen:
        if isinstance(item, str):
            hits = [n for n in named if n == item or n.startswith(item + ".") or fnmatch.fnmatch(n, item)]
        else:
            hits = [n for n, p in named.items() if p is item]
        if not hits:
            raise TangentError(
                f"No parameter is called {item!r}." if isinstance(item, str) else "A parameter is not the model's.",
                "parameters= takes names, prefixes, patterns or the model's own parameters.",
                f"The names are {', '.join(list(named)[:8])}{', ...' if len(named) > 8 else ''}.",
            )
        frozen = [n for n in hits if n not in trainable]
        if len(frozen) == len(hits):
            raise TangentError(
                f"{frozen[0]} is frozen.",
                "A parameter that requires no gradient has none.",
                "Call requires_grad_(True) on it, or leave it out.",
            )
        names.update(dict.fromkeys(n for n in hits if n in trainable))
    if not names:
        raise TangentError("parameters= chooses none.", "A kernel needs at least one.", "Widen the choice.")
    return {name: trainable[name] for name in trainable if name in names}


def refuse_unusable(model: nn.Module, chosen: dict[str, nn.Parameter]) -> None:
    """Refuse a model that has no kernel, or none in one precision on one device.

    Raises:
        TangentError: The model has no such kernel.
    """
    devices = {p.device for p in model.parameters()}
    if len(devices) > 1 or any(d.type == "meta" for d in devices):
        raise TangentError(
            f"The model's parameters are on {', '.join(sorted(map(str, devices)))}.",
            "One kernel is computed on one real device.",
            "Move the model with model.to(device); for a model on the meta device, load its weights first.",
        )
    dtypes = sorted({str(p.dtype).removeprefix("torch.") for p in chosen.values()})
    if len(dtypes) > 1:
        raise TangentError(
            f"The chosen parameters are {', '.join(dtypes)}.",
            "Inner products of gradients would mix precisions.",
            "Convert the model with model.to(dtype), or choose parameters of one dtype.",
        )
    for name, p in chosen.items():
        if isinstance(p, nn.UninitializedParameter):
            raise TangentError(
                f"{name} has no shape yet.", "The module is lazy.", "Run the model once on a batch to set it."
            )
        if p.is_complex():
            raise TangentError(f"{name} is complex.", "Complex gradients have two conventions.", "Use real parameters.")
        if not all_finite(p.detach()):
            raise TangentError(
                f"{name} holds NaN or infinite values.", "The kernel would hold them, too.", "Load finite weights."
            )
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and (module.training or module.running_mean is None):
            raise TangentError(
                f"{name or 'The model'} ({type(module).__name__}) normalizes by the statistics of the batch.",
                "Samples influence each other, so a kernel between two of them does not exist.",
                "Call model.eval()."
                if module.running_mean is not None
                else "Build it with track_running_stats=True, or use GroupNorm.",
            )
        if isinstance(module, nn.Embedding) and module.max_norm is not None:
            raise TangentError(
                f"{name or 'The model'} renormalizes its table at every call (max_norm).",
                "The forward pass would change the model.",
                "Renormalize the table once and set max_norm to None.",
            )
        if module.training and isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0:
            raise TangentError(
                f"{name or 'The model'} ({type(module).__name__}) drops units at random.",
                "The network is a different one at every call.",
                "Call model.eval().",
            )
