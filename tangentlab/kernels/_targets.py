"""Labels among the inputs: what of an item or a batch is the model's input, and what is its target."""

import inspect
from collections.abc import Mapping
from inspect import Parameter
from typing import Any, Literal

from torch import Tensor, nn
from torch.utils.data import default_collate

from tangentlab._errors import TangentError

_LABELS = ("labels", "label_ids", "label")
"""What dicts of tokens call their targets; the first one found is the target."""
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


def split_target(item: Any, model: nn.Module | None, name: str, axes: int) -> tuple[Any, Any]:
    """Return the input and the target (None if there is none) of an item of a Dataset or a batch of a DataLoader.

    Args:
        item: A pair is an input and its target. The labels of a dict are its target, unless the model needs them.
        model: Whose input it is, if that is known.
        name: What errors call the data.
        axes: Axes of a target that is one number per sample: 0 of an item, 1 of a batch.

    Raises:
        TangentError: It could be either.
    """
    if isinstance(item, Mapping):
        return _split_labels(item, model, name)
    if not (isinstance(item, (tuple, list)) and len(item) == 2):
        return item, None
    second = item[1]
    if isinstance(second, Tensor) and second.ndim > axes and _takes_two(model):
        raise TangentError(
            f"the items of {name} are pairs, and the model takes a second input.",
            "their second part could be that input, or a target that is to be dropped.",
            "pass input=tuple for two inputs, or input=lambda item: item[0] for an input and its target.",
        )
    return item[0], second


def _split_labels(item: Mapping[str, Any], model: nn.Module | None, name: str) -> tuple[Any, Any]:
    roles = {key: "target" if model is None else role(model, key) for key in _LABELS if key in item}
    for key, found in roles.items():
        if found == "either":
            raise TangentError(
                f"the items of {name} hold {key!r}, which the model may take or not.",
                "it could be an input, or a target that is to be dropped.",
                "pass input=dict to pass everything on, or input=lambda item: "
                f"{{k: v for k, v in item.items() if k != {key!r}}} for an input and its target.",
            )
    targets = [key for key, found in roles.items() if found == "target"]
    inputs = {key: value for key, value in item.items() if key not in targets}
    return inputs, item[targets[0]] if targets else None


def split_arguments(arguments: Mapping[str, Any], model: nn.Module | None) -> tuple[Any, Any]:
    """Return the arguments of a call, ``model(**x)``, without labels that a model takes for a loss or not at all."""
    if model is None or not any(key in arguments and role(model, key) == "target" for key in _LABELS):
        return arguments, None
    sure = {key: value for key, value in arguments.items() if key not in _LABELS or role(model, key) == "target"}
    inputs, target = _split_labels(sure, model, "x")
    return {key: arguments[key] for key in arguments if key in inputs or key not in sure}, target


def role(model: nn.Module, label: str) -> Literal["input", "target", "either"]:
    """Return what a model takes a label for.

    An argument that it needs is an input. One that it does not have is a target, and so is what a model of
    ``transformers`` takes for its loss. Any other argument that may be left out could be either.
    """
    parameters = _parameters(model)
    own = parameters.get(label)
    if own is not None and own.default is Parameter.empty:
        return "input"
    if own is None and not any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values()):
        return "target"
    if own is not None and label == "label":  # what a loss is computed from is called "labels"
        return "either"
    return "target" if any(_of_transformers(module) for module in model.modules()) else "either"


def join_items(targets: list[Any]) -> Any:
    """Return the targets of single samples as a tensor, or a list where they do not make one; None without any."""
    if all(target is None for target in targets):
        return None
    try:
        return default_collate(targets)
    except (RuntimeError, TypeError):  # of different shapes or kinds
        return targets


def argument_names(model: nn.Module | None) -> list[str]:
    """Return what the positional arguments of a model are called, as far as is known."""
    return [] if model is None else [name for name, p in _parameters(model).items() if p.kind in _POSITIONAL]


def _takes_two(model: nn.Module | None) -> bool:
    return len(argument_names(model)) > 1


def _parameters(model: nn.Module) -> Mapping[str, Parameter]:
    try:
        return inspect.signature(model.forward).parameters
    except (TypeError, ValueError):  # no signature, as of scripted modules: it may take anything
        return {"arguments": Parameter("arguments", Parameter.VAR_KEYWORD)}


def _of_transformers(module: nn.Module) -> bool:
    return hasattr(module, "base_model_prefix") and hasattr(module, "config")
