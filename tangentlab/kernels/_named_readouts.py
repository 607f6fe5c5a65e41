r"""The named functions of a sample's outputs and its target.

With outputs z in R^C, class y and p = softmax(z), all are made of the log-odds of the class,

    m = log p_y / (1 - p_y) = z_y - log sum_{c != y} exp(z_c)

``"margin"`` is m (TRAK's), ``"loss"`` for classes is -log p_y = log(1 + exp(-m)), and ``"next_token"`` is the mean of
log p_y = -log(1 + exp(-m)) over tokens. In this form nothing cancels where p_y is close to 1: log p_y and its gradient,
whose entry at y is 1 - p_y, are right relative to themselves, and not only relative to 1. One output z stands for two
classes, p_1 = sigmoid(z), so that m is z for class 1 and -z for class 0.

``"label"`` is z_y. ``"loss"`` for floating-point targets t is |z - t|^2 / 2.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab.kernels._inputs import Batch
from tangentlab.kernels._next_tokens import next_tokens
from tangentlab.kernels._target_values import described_one
from tangentlab.kernels._targets import IGNORED

_PIECE = 1 << 22
"""Numbers of a piece of the outputs that is copied at a time."""


class _LogOdds(torch.autograd.Function):
    """m of logits (B, ..., C) and classes (B, ...): in memory of its own only the gradient, and one piece of a copy."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, classes: Tensor) -> Tensor:
        ctx.save_for_backward(logits, classes)
        own = logits.gather(-1, classes.unsqueeze(-1)).squeeze(-1)
        return own - torch.cat([_others(z, y).logsumexp(-1) for z, y in _pieces(logits, classes)])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """Return d m/d z: 1 at the class, and -softmax among the others."""
        logits, classes = ctx.saved_tensors
        slope, at = grads[0].unsqueeze(-1), classes.unsqueeze(-1)
        if torch.is_grad_enabled():  # to be differentiated again
            return -slope * _others(logits, classes).softmax(-1).scatter(-1, at, -1.0), None
        result = torch.empty_like(logits)
        rows = _rows(logits)
        for start, (z, y) in zip(range(0, len(logits), rows), _pieces(logits, classes), strict=True):
            part = result[start : start + rows]
            torch.softmax(_others(z, y), -1, out=part)
            part.mul_(-slope[start : start + rows]).scatter_(-1, at[start : start + rows], slope[start : start + rows])
        return result, None


def _rows(logits: Tensor) -> int:
    return max(1, _PIECE // logits[0].numel())


def _pieces(logits: Tensor, classes: Tensor) -> Any:
    rows = _rows(logits)
    return zip(logits.split(rows), classes.split(rows), strict=True)


def _others(logits: Tensor, classes: Tensor) -> Tensor:
    return logits.scatter(-1, classes.unsqueeze(-1), float("-inf"))


def log_odds(logits: Tensor, classes: Tensor) -> Tensor:
    """Compute log p / (1 - p) of classes, (B, ...), from logits (B, ..., C), in single precision at least."""
    return _LogOdds.apply(_precise(logits), classes)


def _precise(outputs: Tensor) -> Tensor:
    return outputs.float() if outputs.dtype.itemsize < 4 else outputs


def margin(outputs: Tensor, batch: Batch) -> Tensor:
    """Compute log p / (1 - p) of the correct class, (B,)."""
    classes = _classes("margin", outputs, batch.targets)
    if outputs.shape[1] == 1:
        return _precise(outputs[:, 0]) * (2 * classes - 1)
    return log_odds(outputs, classes)


def label(outputs: Tensor, batch: Batch) -> Tensor:
    """Compute the logit of the label, (B,)."""
    classes = _classes("label", outputs, batch.targets)
    if outputs.shape[1] == 1:
        raise TangentError(
            "The readout 'label' is for a model with one output per class, and the model has one output.",
            "There is no logit of class 0.",
            "Pass readout=0 for the output itself, or readout='margin'.",
        )
    return outputs.gather(1, classes.unsqueeze(1)).squeeze(1)


def loss(outputs: Tensor, batch: Batch) -> Tensor:
    """Compute the cross-entropy of classes (integers), or half the squared distance to floating-point targets, (B,)."""
    targets = batch.targets
    if not (isinstance(targets, Tensor) and targets.is_floating_point()):
        return -F.logsigmoid(margin(outputs, Batch(batch.inputs, _classes("loss", outputs, targets))))
    _refuse_other_shape(outputs.shape, targets)
    return (_precise(outputs) - targets.reshape(outputs.shape)).flatten(1).square().sum(1) / 2


def next_token(outputs: Tensor, batch: Batch) -> Tensor:
    """Compute the mean log-probability of the tokens that follow, (B,), from logits (B, T, V)."""
    following = next_tokens(batch, outputs)
    counts = following != IGNORED
    logs = F.logsigmoid(log_odds(outputs, following.where(counts, 0)))
    return (logs * counts).sum(1) / counts.sum(1)


NAMED: dict[str, Callable[[Tensor, Batch], Tensor]] = {
    "loss": loss,
    "margin": margin,
    "label": label,
    "next_token": next_token,
}


def refuse_targets(name: str, shape: torch.Size, targets: Any) -> None:
    """Refuse targets of all samples that a named readout of outputs (..., *shape) is not defined for."""
    count = len(targets)
    if name == "next_token":
        next_tokens(Batch(None, targets), torch.empty(1).expand(count, *shape), every=False)
    elif name == "loss" and isinstance(targets, Tensor) and targets.is_floating_point():
        _refuse_other_shape(torch.Size((count, *shape)), targets)
    else:
        _classes(name, torch.empty(1).expand(count, *shape), targets)


def missing(name: str) -> TangentError:
    """Return the refusal of samples without targets."""
    return TangentError(
        f"The readout {name!r} needs targets, and the samples came without.",
        "Targets are the second part of a Dataset's items, labels in dicts of tokens, or targets=. With input=, "
        "nothing of an item is a target.",
        "Pass targets=, one per sample; for two sets of samples, targets=(targets1, targets2).",
    )


def _classes(name: str, outputs: Tensor, targets: Any) -> Tensor:
    """Return the class of each sample, (B,), or refuse."""
    if targets is None:
        raise missing(name)
    if outputs.ndim != 2:
        raise TangentError(
            f"The outputs of a sample have the shape {tuple(outputs.shape[1:])}.",
            f"The readout {name!r} takes one output per class.",
            "Pass output= to choose or pool outputs, readout='next_token' for a language model, or a function of one "
            "sample's outputs and its target.",
        )
    kinds = isinstance(targets, Tensor) and not targets.is_floating_point() and not targets.is_complex()
    if not kinds or targets.shape not in ((len(outputs),), (len(outputs), 1)):
        whole = isinstance(targets, Tensor) and targets.shape[1:].numel() == 1
        raise TangentError(
            f"The target of a sample is {described_one(targets)}.",
            f"The readout {name!r} takes one class per sample, an integer.",
            "Pass targets.long() if they are class indices."
            if whole
            else "Pass class indices (targets.argmax(1) of one-hot targets), or a function of one sample's outputs and "
            "its target.",
        )
    classes = targets.reshape(-1).long()
    count = max(2, outputs.shape[1])
    least, largest = int(classes.min()), int(classes.max())
    if least < 0 or largest >= count:
        raise TangentError(
            f"The targets hold the class {least if least < 0 else largest}.",
            f"The model has {outputs.shape[1]} outputs, so classes are 0 to {count - 1}.",
            "Number the classes from 0 on, leave out samples without a class, or choose the outputs with output=.",
        )
    return classes


def _refuse_other_shape(outputs: torch.Size, targets: Tensor) -> None:
    if targets.numel() != outputs.numel() or targets.shape not in (outputs, outputs[:1]):
        raise TangentError(
            f"The target of a sample is {described_one(targets)}, and its outputs are {tuple(outputs[1:])}.",
            "Floating-point targets stand for the squared loss, with one number per output.",
            "Pass class indices as integers (targets.long()) for the cross-entropy, or targets in the shape of the "
            "outputs.",
        )
