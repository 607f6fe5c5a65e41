"""What the network itself says at a checkpoint: outputs, losses, its linearization, anisotropy directions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tangentlab import analysis
from tangentlab._errors import TangentError
from tangentlab.explorer._labels import Labels
from tangentlab.kernels.internal import Network, Samples
from tangentlab.linearized import linearize

_BATCH = 256
DIRECTIONS = 8
"""Neural anisotropy directions that are shown."""
_DIMENSIONS = 4096
"""Inputs of more numbers than this have no directions shown: they would take long."""


@dataclass(frozen=True, eq=False)
class Outputs:
    """Outputs of a network on the samples.

    Attributes:
        values: (N, O), float64.
        predicted: Predicted classes, (N,); None where outputs do not fit the classes.
        loss: Cross-entropy, or half the squared distance to real targets, (N,); None where outputs do not fit.
    """

    values: Tensor
    predicted: Tensor | None
    loss: Tensor | None


def outputs_of(model: nn.Module, x: Any, labels: Labels | None, options: Mapping[str, Any]) -> Outputs:
    """Compute the outputs of a network."""
    return judge(values_of(model, x, options), labels)


def values_of(model: nn.Module, x: Any, options: Mapping[str, Any]) -> Tensor:
    """Compute f(x) of all samples, (N, O), float64."""
    known = {name: options[name] for name in ("output", "dtype", "device") if options.get(name) is not None}
    network = Network(model, "full", **known)
    samples = Samples(x, device=network.device, dtype=network.dtype, model=model, input=options.get("input"))
    return network.values_on(samples, _BATCH).detach().double().cpu()


def judge(values: Tensor, labels: Labels | None) -> Outputs:
    """Compare outputs with labels where they fit: one output per class, one for two classes, one per real target."""
    if labels is None:
        return Outputs(values, None, None)
    if labels.classes is None:
        if values.shape != labels.targets.shape:
            return Outputs(values, None, None)
        return Outputs(values, None, (values - labels.targets).square().sum(1) / 2)
    if values.shape[1] == len(labels.names) and values.shape[1] > 1:
        return Outputs(values, values.argmax(1), F.cross_entropy(values, labels.classes, reduction="none"))
    if values.shape[1] == 1 and len(labels.names) == 2:
        signs = 2.0 * labels.classes - 1
        return Outputs(values, (values[:, 0] > 0).long(), F.softplus(-signs * values[:, 0]))
    return Outputs(values, None, None)


def linear_outputs(start: nn.Module, moved: nn.Module, x: Any, options: Mapping[str, Any]) -> Tensor:
    """Compute f(x; theta_0) + J(x; theta_0) (theta - theta_0) of all samples, (N, O).

    Args:
        start: The network at theta_0.
        moved: The network at theta.
        x: The samples.
        options: Those of :func:`tangentlab.ntk`.
    """
    linear, weights = linearize(start), dict(moved.named_parameters())
    with torch.no_grad():
        for name, parameter in linear.named_parameters():
            parameter.copy_(weights[name])
    return values_of(linear.eval(), x, options)


def directions_of(model: nn.Module, shape: tuple[int, ...]) -> analysis.NADs | None:
    """Compute the leading anisotropy directions of a network of images; None where there are none or too many."""
    if len(shape) not in (2, 3) or torch.Size(shape).numel() > _DIMENSIONS:
        return None
    few = min(DIRECTIONS, torch.Size(shape).numel())
    try:
        return analysis.anisotropy_directions(model, input_shape=shape, k=few)
    except TangentError:  # at the origin, the second derivative of a ReLU network may vanish
        return None
