"""A network with fixed weights inside a Gaussian process."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from tangentlab._copying import copy_model
from tangentlab._errors import TangentError


class FixedNetwork:
    """A copy of a network in evaluation mode, hidden from GPyTorch.

    A module inside a GPyTorch module is registered with it, and the optimizer of the marginal likelihood would train
    its weights. A plain object that holds the module is not registered.

    Args:
        model: The network.
        input_shape: The shape of a sample; GPyTorch passes samples as rows (n, d).
    """

    def __init__(self, model: nn.Module, input_shape: Sequence[int] | None) -> None:
        self.module = copy_model(model).eval()
        self.input_shape = None if input_shape is None else tuple(input_shape)

    def samples(self, x: Tensor) -> Tensor:
        """Convert rows (n, d) to what the network takes."""
        if x.requires_grad:
            raise TangentError(
                "The inputs require gradients.",
                "The kernel is computed without a graph, so their gradient would be lost silently.",
                "Pass x.detach(); inputs cannot be optimized through this kernel.",
            )
        if self.input_shape is None:
            return x
        if torch.Size(self.input_shape).numel() != x.shape[-1]:
            raise TangentError(
                f"A row of {x.shape[-1]} numbers is not a sample of shape {self.input_shape}.",
                "",
                "Pass x.flatten(1) as the inputs, and input_shape= as the network takes them.",
            )
        return x.reshape(-1, *self.input_shape)
