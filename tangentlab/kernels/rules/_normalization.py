"""Rules for normalizations: y = w * xhat + b with xhat independent of w and b."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tangentlab._signatures import BatchNormCall
from tangentlab.kernels.rules._broadcast import Broadcast
from tangentlab.kernels.rules._registry import rule
from tangentlab.kernels.rules._use import Call, Uses


@rule(F.batch_norm, example="nn.BatchNorm1d/2d/3d in evaluation mode", form="gradient")
def batch_norm(call: Call, *args: Any, **kwargs: Any) -> Uses:
    """xhat = (x - running mean) / sqrt(running variance + eps)."""
    input, running_mean, running_var, weight, bias, training, _, eps = BatchNormCall(*args, **kwargs)
    if training or running_mean is None or running_var is None:
        return []
    return _affine(call, input, lambda x: F.batch_norm(x, running_mean, running_var, eps=eps), weight, bias, (1,))


@rule(F.layer_norm, example="nn.LayerNorm", form="gradient")
def layer_norm(
    call: Call,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Uses:
    """xhat = (x - mean) / sqrt(variance + eps) over the last axes."""
    axes = tuple(range(input.ndim - len(normalized_shape), input.ndim))
    return _affine(call, input, lambda x: F.layer_norm(x, normalized_shape, eps=eps), weight, bias, axes)


@rule(F.rms_norm, example="nn.RMSNorm", form="gradient")
def rms_norm(
    call: Call,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Uses:
    """xhat = x / sqrt(mean square + eps) over the last axes."""
    axes = tuple(range(input.ndim - len(normalized_shape), input.ndim))
    return _affine(call, input, lambda x: F.rms_norm(x, list(normalized_shape), eps=eps), weight, None, axes)


@rule(F.group_norm, example="nn.GroupNorm", form="gradient")
def group_norm(
    call: Call,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Uses:
    """xhat = (x - mean) / sqrt(variance + eps) over the channels of a group and all positions."""
    return _affine(call, input, lambda x: F.group_norm(x, num_groups, eps=eps), weight, bias, (1,))


@rule(F.instance_norm, example="nn.InstanceNorm1d/2d/3d", form="gradient")
def instance_norm(
    call: Call,
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Uses:
    """xhat = (x - mean) / sqrt(variance + eps) over the positions of a channel, or by running statistics."""

    def normalized(x: Tensor) -> Tensor:
        # Without the running statistics where they are not read, since passing them would update them.
        read = not use_input_stats
        return F.instance_norm(
            x,
            running_mean if read else None,
            running_var if read else None,
            use_input_stats=use_input_stats,
            eps=eps,
        )

    return _affine(call, input, normalized, weight, bias, (1,))


def _affine(
    call: Call,
    input: Tensor,
    normalized: Callable[[Tensor], Tensor],
    weight: Tensor | None,
    bias: Tensor | None,
    axes: tuple[int, ...],
) -> Uses:
    def xhat(rows: slice) -> Tensor:
        with torch.no_grad():
            if call.layout.axis:  # channels of several samples may be normalized by their number
                return call.split(normalized(input))[rows]
            return call.layout.of_rows(normalized, input, call.batch, rows)

    uses: Uses = []
    if weight is not None:
        uses.append((weight, Broadcast(weight.shape, axes, xhat)))
    if bias is not None:
        uses.append((bias, Broadcast(bias.shape, axes)))
    return uses
