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
IGNORED = -100
"""The target of a token that does not count, as losses of PyTorch have it."""
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class Splitter:
    """Tells inputs from targets, in the items of a Dataset, the batches of a DataLoader and the arguments of a call.

    Args:
        model: Whose inputs they are, if that is known.
        name: What errors call the data.
    """

    def __init__(self, model: nn.Module | None, name: str) -> None:
        self._model, self._name = model, name
        self._roles: dict[str, Role] = {}

    def __call__(self, item: Any, axes: int) -> tuple[Any, Any]:
        """Return the input and the target (None if there is none) of an item or a batch.

        Args:
            item: A pair is an input and its target. The labels of a dict are its target, unless the model needs them.
            axes: Axes of a target that is one number per sample: 0 of an item, 1 of a batch.

        Raises:
            TangentError: It could be either.
        """
        if isinstance(item, Mapping):
            for key in _LABELS:
                if key in item and self._role(key, item) == "either":
                    raise TangentError(
                        f"The items of {self._name} hold {key!r}, which the model may take or not.",
                        "It could be an input, or a target that is to be dropped.",
                        "Pass input=dict to pass everything on, or input=lambda item: "
                        f"{{k: v for k, v in item.items() if k != {key!r}}} for an input and its target.",
                    )
            return self.arguments(item)
        if not (isinstance(item, (tuple, list)) and len(item) == 2):
            return item, None
        second = item[1]
        if isinstance(second, Tensor) and second.ndim > axes and len(argument_names(self._model)) > 1:
            raise TangentError(
                f"The items of {self._name} are pairs, and the model takes a second input.",
                "Their second part could be that input, or a target that is to be dropped.",
                "Pass input=tuple for two inputs, or input=lambda item: item[0] for an input and its target.",
            )
        return item[0], second

    def arguments(self, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        """Return the arguments of ``model(**x)`` without labels that it takes for a loss or not at all, and those."""
        targets = [key for key in _LABELS if key in arguments and self._role(key, arguments) == "target"]
        inputs = {key: value for key, value in arguments.items() if key not in targets}
        return inputs, arguments[targets[0]] if targets else None

    def _role(self, label: str, beside: Mapping[str, Any]) -> "Role":
        if label not in self._roles:
            self._roles[label] = "target" if self._model is None else role(self._model, label, beside)
        return self._roles[label]


Role = Literal["input", "target", "either"]


def role(model: nn.Module, label: str, beside: Mapping[str, Any]) -> Role:
    """Return what a model takes a label for.

    An argument that it needs is an input. One that it does not have is a target, and so is what a model of
    ``transformers`` takes for its loss, unless its decoder may read it. Any other argument that may be left out could
    be either.

    Args:
        model: The model.
        label: The name of the label.
        beside: What it comes with.
    """
    parameters = _parameters(model)
    own = parameters.get(label)
    if own is not None and own.default is Parameter.empty:
        return "input"
    if own is None and not any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values()):
        return "target"
    if own is not None and label == "label":  # what a loss is computed from is called "labels"
        return "either"
    inside = [m for m in model.modules() if hasattr(m, "base_model_prefix") and hasattr(m, "config")]
    decodes = "decoder_input_ids" not in beside and any(_makes_texts_from_texts(module) for module in inside)
    return "target" if inside and not decodes else "either"


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


def _parameters(model: nn.Module) -> Mapping[str, Parameter]:
    try:
        return inspect.signature(model.forward).parameters
    except (TypeError, ValueError):  # no signature, as of scripted modules: it may take anything
        return {"arguments": Parameter("arguments", Parameter.VAR_KEYWORD)}


def _makes_texts_from_texts(module: Any) -> bool:
    """Return whether a model of ``transformers`` has a decoder that reads its labels where it gets no other tokens."""
    generates = getattr(module, "can_generate", None)
    return bool(getattr(module.config, "is_encoder_decoder", False)) and callable(generates) and bool(generates())
