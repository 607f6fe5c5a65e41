"""A network's outputs as a GPyTorch mean."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from gpytorch.means import Mean
from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab.gp._network import FixedNetwork
from tangentlab.kernels.internal import Batch, Network


class NetworkMean(Mean):
    """The prior mean f0 of :class:`NTKKernel`: the network's outputs at fixed weights.

    Cost: one forward pass of the n samples as one batch, without gradients.

    Args:
        model: The network; it is copied and is not a hyperparameter.
        readout: ``"pntk"``, the sum of logits / sqrt(O), or one logit.
        input_shape: The shape of a sample if it is not a vector.
        output: A function that takes the output tensor from what the model returns.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        readout: str | int = "pntk",
        input_shape: Sequence[int] | None = None,
        output: Callable[[Any], Tensor] | None = None,
    ) -> None:
        super().__init__()
        if isinstance(readout, bool) or not (isinstance(readout, int) or readout == "pntk"):
            raise TangentError(
                f"The readout is {readout!r}.", "A mean is one number per sample.", "Use 'pntk' or an int."
            )
        self._network = FixedNetwork(model, input_shape)
        self._readout, self._output = readout, output

    def forward(self, x: Tensor) -> Tensor:
        """Compute (..., n) for rows (..., n, d)."""
        network = Network(self._network.module, self._readout, output=self._output)
        with torch.no_grad():
            samples = self._network.samples(x.reshape(-1, x.shape[-1]))
            values = network.values(Batch(samples), len(samples))
        return values.reshape(x.shape[:-1]).to(x.dtype)
