"""Values of a per-sample readout, without gradients."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tangentlab._errors import TangentError
from tangentlab.kernels.internal import Options, Problem

_BATCH = 512


def sample_values(model: nn.Module, x: Any, *, readout: Any, targets: Any = None, **options: Any) -> Tensor:
    """Compute the readout of each sample, (N,) float64.

    Args:
        model: As for :func:`tangentlab.ntk`, like all other arguments.

    Raises:
        TangentError: The readout has several numbers per sample, or cannot be computed.
    """
    problem = Problem.pose(model, x, options=Options(readout, targets=targets, **options), kind="diagonal")
    values = problem.network.values_on(problem.samples[0], _BATCH)
    if values.shape[1] != 1:
        raise TangentError(
            f"The readout {readout!r} has {values.shape[1]} numbers per sample.",
            "Attribution explains one number of each test sample.",
            "Choose one with readout=INDEX, or a function that returns one number.",
        )
    return values[:, 0].to("cpu", torch.float64)


def pair(data: Any) -> tuple[Any, Any]:
    """Return samples and targets of a data set as training takes them; targets are None where a Dataset has them."""
    if isinstance(data, TensorDataset):
        data = data.tensors
    if isinstance(data, tuple | list):
        if len(data) != 2:
            raise TangentError(f"The data are {len(data)} parts.", remedy="Pass (inputs, targets), or a Dataset.")
        return data[0], data[1]
    return data, None
