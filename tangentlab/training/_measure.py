"""Measurements of a model: loss and accuracy on samples, distance of the weights from the start."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab.training._losses import Loss
from tangentlab.training._samples import IndexedSamples


@dataclass(frozen=True)
class Score:
    """Mean loss and fraction classified correctly."""

    loss: float
    accuracy: float


def place(model: nn.Module, inputs: Any) -> Any:
    """Return inputs on the model's device, floating-point ones in its precision."""
    if not isinstance(inputs, Tensor):
        return inputs
    like = next(model.parameters())
    return inputs.to(like.device, like.dtype) if inputs.is_floating_point() else inputs.to(like.device)


def answer(model: nn.Module, inputs: Any) -> Tensor:
    """Compute the model's outputs.

    Raises:
        TangentError: If they are not one tensor with one row per sample.
    """
    outputs = model(place(model, inputs))
    if not isinstance(outputs, Tensor) or outputs.ndim == 0:
        found = f"a {type(outputs).__name__}" if not isinstance(outputs, Tensor) else "a number"
        raise TangentError(
            f"The model gives {found}.",
            why="Losses take one tensor with one row per sample.",
            remedy="Wrap the model in a module that returns the tensor to train on.",
        )
    return outputs


def evaluate(
    model: nn.Module, data: Any, loss: Loss, *, batch_size: int = 512, count: int | None = None, check: bool = True
) -> Score:
    """Compute loss and accuracy of a model in evaluation mode, without gradients; its mode is restored afterwards.

    Cost: one forward pass per sample.

    Args:
        model: Any model with one tensor of outputs.
        data: In any form that :func:`train` takes.
        loss: Decides both numbers.
        batch_size: Samples at a time.
        count: Number of samples to use, the first ones.
        check: Whether outputs and targets are checked to fit the loss.

    Examples:
        >>> import torch
        >>> from tangentlab import training
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> score = training.evaluate(network, (x, y), training.SoftmaxCrossEntropy())
        >>> score.accuracy <= 1
        True

    See also:
        :func:`tangentlab.training.train`.
    """
    samples = IndexedSamples(data)
    modes = [(module, module.training) for module in model.modules()]
    total, right, seen = 0.0, 0, 0
    model.eval()
    try:
        with torch.no_grad():
            for inputs, targets in samples.batches(batch_size, count):
                outputs = answer(model, inputs)
                targets = targets.to(outputs.device)
                if check:
                    loss.check(outputs, targets)
                total += float(loss.per_sample(outputs, targets).double().sum())
                right += int(loss.correct(outputs, targets).sum())
                seen += len(outputs)
    finally:
        for module, mode in modes:
            module.training = mode
    return Score(total / seen, right / seen)


def outputs_on(model: nn.Module, inputs: Tensor) -> Tensor:
    """Compute (n, ...) outputs in evaluation mode, without gradients, on the CPU."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            return answer(model, inputs).detach().cpu().clone()
    finally:
        for module, mode in modes:
            module.training = mode


def distances(weights: Sequence[Tensor], start: Sequence[Tensor]) -> tuple[float, float]:
    """Compute the l2 distance ||theta - theta0|| and the cosine distance 1 - <theta, theta0> / (||theta||
    ||theta0||)."""
    squared = inner = norm = norm0 = 0.0
    for theta, theta0 in zip(weights, start, strict=True):
        theta, theta0 = theta.detach().double(), theta0.double()
        squared += float((theta - theta0).square().sum())
        inner += float((theta * theta0).sum())
        norm += float(theta.square().sum())
        norm0 += float(theta0.square().sum())
    product = math.sqrt(norm * norm0)
    return math.sqrt(squared), 1 - inner / product if product else float("nan")
