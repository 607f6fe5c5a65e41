"""Linearized models of the transformers library, which compute a loss from labels and train under its ``Trainer``."""

import functools
import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab.linearized._module import Linearized

_LABELS_AND_CONFIG = ("ForSequenceClassification", "ForImageClassification", "ForTokenClassification")
_VOCABULARY = ("ForCausalLM", "ForMaskedLM")


def pretrained_model(network: nn.Module) -> Any:
    """Return the model of the transformers library that a network is or, as an adapter of peft, wraps; else None."""
    library = sys.modules.get("transformers")
    if library is None:
        return None
    wrapped: Any = network
    inner = wrapped.get_base_model() if hasattr(network, "get_base_model") else network
    return inner if isinstance(inner, library.PreTrainedModel) else None


class _Forward:
    """A forward method with the signature of the network's: ``Trainer`` reads from it which inputs a model takes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self._function
        bound = functools.partial(self._function, instance)
        bound.__signature__ = inspect.signature(instance._pretrained().forward)  # type: ignore[attr-defined]
        return bound


class LinearizedTransformer(Linearized):
    """The linearization of a model of the transformers library, or of its adapters by peft.

    With ``labels``, the loss is the library's loss of the linearized logits, not the linearization of the loss. Calls
    return the network's output type, without caches of keys and values. Cost: as for :class:`Linearized`.
    """

    @property
    def accepts_loss_kwargs(self) -> bool:
        """Whether the loss takes ``num_items_in_batch``, for ``Trainer``'s accumulation of gradients."""
        return self._loss_type() in _VOCABULARY

    def _pretrained(self) -> Any:
        return pretrained_model(self._network)

    def _loss_type(self) -> str | None:
        model = self._pretrained()
        kind: str | None = getattr(model, "loss_type", None)
        # The library has no type for GPT2LMHeadModel and its like, and uses that of causal language models.
        return "ForCausalLM" if kind is None and "LMHead" in type(model).__name__ else kind

    def _forward(self, *args: Any, labels: Tensor | None = None, **kwargs: Any) -> Any:
        """Compute the linearized output; with ``labels``, the loss of the linearized logits is its first part."""
        accepted = inspect.signature(self._pretrained().forward).parameters
        if "use_cache" in accepted:
            kwargs.setdefault("use_cache", False)
        if labels is None:
            return super().forward(*args, **kwargs)
        extra: dict[str, Any] = {
            name: kwargs.pop(name) for name in ("num_items_in_batch", "shift_labels") if name in kwargs
        }
        as_tuple = kwargs.pop("return_dict", None) is False
        output = super().forward(*args, **kwargs)
        loss = self._loss(output["logits"], labels, extra)
        output = type(output)(**{**output, "loss": loss})
        return output.to_tuple() if as_tuple else output

    forward = _Forward(_forward)

    def _loss(self, logits: Tensor, labels: Tensor, extra: dict[str, Any]) -> Tensor:
        model, kind = self._pretrained(), self._loss_type()
        if kind in _VOCABULARY:
            loss: Tensor = model.loss_function(
                logits=logits, labels=labels, vocab_size=model.config.get_text_config().vocab_size, **extra
            )
        elif kind == "ForTokenClassification":
            loss = model.loss_function(logits=logits, labels=labels, config=model.config)
        elif kind in _LABELS_AND_CONFIG:
            loss = model.loss_function(labels=labels, pooled_logits=logits, config=model.config)
        else:
            raise TangentError(
                f"The loss of {type(model).__name__} is not known.",
                why="The loss of a linearized model is computed from its linearized outputs.",
                remedy="Call it without labels and compute the loss yourself; for Trainer, pass compute_loss_func.",
            )
        return loss

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the network's state dict. Tied weights are copied, because ``.safetensors`` files share no memory."""
        state = super().state_dict(*args, **kwargs)
        seen: set[int] = set()
        if not kwargs.get("keep_vars"):
            for name, tensor in state.items():
                if isinstance(tensor, Tensor) and tensor.numel():
                    address = tensor.untyped_storage().data_ptr()
                    if address in seen:
                        with torch.no_grad():
                            state[name] = tensor.clone()
                    seen.add(address)
        return state
