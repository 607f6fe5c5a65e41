"""Which parameters of a model count, and whether it has a kernel at all."""

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
            "the model has no trainable parameter." if named else "the model has no parameter.",
            "the tangent kernel is made of gradients with respect to parameters that require them.",
            "call requires_grad_(True) on those that should count.",
        )
    if chosen is None:
        return trainable
    if isinstance(chosen, nn.Module):
        chosen = list(chosen.parameters())
    if callable(chosen):
        result = {name: p for name, p in trainable.items() if chosen(name, p)}
        if result:
            return result
        raise TangentError("parameters= chooses none.", "a kernel needs at least one.", "widen the choice.")
    names: dict[str, None] = {}
    if not isinstance(chosen, Iterable):
        raise TangentError(
            f"parameters= is {chosen!r}.", "", "pass names, prefixes, patterns, parameters, a module or a function."
        )
    for item in [chosen] if isinstance(chosen, (str, nn.Parameter)) else chosen:
        if isinstance(item, str):
            hits = [n for n in named if n == item or n.startswith(item + ".") or fnmatch.fnmatch(n, item)]
        else:
            hits = [n for n, p in named.items() if p is item]
        if not hits:
            raise TangentError(
                f"no parameter is called {item!r}." if isinstance(item, str) else "a parameter is not the model's.",
                "parameters= takes names, prefixes, patterns or the model's own parameters.",
                f"the names are {', '.join(list(named)[:8])}{', ...' if len(named) > 8 else ''}.",
            )
        frozen = [n for n in hits if n not in trainable]
        if len(frozen) == len(hits):
            raise TangentError(
                f"{frozen[0]} is frozen.",
                "a parameter that requires no gradient has none.",
                "call requires_grad_(True) on it, or leave it out.",
            )
        names.update(dict.fromkeys(n for n in hits if n in trainable))
    if not names:
        raise TangentError("parameters= chooses none.", "a kernel needs at least one.", "widen the choice.")
    return {name: trainable[name] for name in trainable if name in names}


def refuse_unusable(model: nn.Module, chosen: dict[str, nn.Parameter]) -> None:
    """Refuse a model that has no kernel, or none in one precision on one device.

    Raises:
        TangentError: What is in the way, and the remedy.
    """
    devices = {p.device for p in model.parameters()}
    if len(devices) > 1 or any(d.type == "meta" for d in devices):
        raise TangentError(
            f"the model's parameters are on {', '.join(sorted(map(str, devices)))}.",
            "one kernel is computed on one real device.",
            "move the model with model.to(device); for a model on the meta device, load its weights first.",
        )
    dtypes = sorted({str(p.dtype).removeprefix("torch.") for p in chosen.values()})
    if len(dtypes) > 1:
        raise TangentError(
            f"the chosen parameters are {', '.join(dtypes)}.",
            "inner products of gradients would mix precisions.",
            "convert the model with model.to(dtype), or choose parameters of one dtype.",
        )
    for name, p in chosen.items():
        if isinstance(p, nn.UninitializedParameter):
            raise TangentError(
                f"{name} has no shape yet.", "the module is lazy.", "run the model once on a batch to set it."
            )
        if p.is_complex():
            raise TangentError(f"{name} is complex.", "complex gradients have two conventions.", "use real parameters.")
        if not all_finite(p.detach()):
            raise TangentError(f"{name} holds NaN or infinite values.", "so would the kernel.", "load finite weights.")
    for name, module in model.named_modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and (module.training or module.running_mean is None):
            raise TangentError(
                f"{name or 'the model'} ({type(module).__name__}) normalises by the statistics of the batch.",
                "samples influence each other, so a kernel between two of them does not exist.",
                "call model.eval()."
                if module.running_mean is not None
                else "build it with track_running_stats=True, or use GroupNorm.",
            )
        if isinstance(module, nn.Embedding) and module.max_norm is not None:
            raise TangentError(
                f"{name or 'the model'} renormalises its table at every call (max_norm).",
                "the forward pass would change the model.",
                "renormalise the table once and set max_norm to None.",
            )
        if module.training and isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0:
            raise TangentError(
                f"{name or 'the model'} ({type(module).__name__}) drops units at random.",
                "the network is another one at every call.",
                "call model.eval().",
            )
