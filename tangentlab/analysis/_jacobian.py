"""Products with the Jacobian of a network on many samples, by passes over them."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from tangentlab.kernels.internal import KeptJacobian, Network, ReadoutLike, Samples
from tangentlab.linearized import linearize


class NetworkJacobian:
    """J, (N R, P), at a network's weights: J u by forward mode, J^T v by backward passes; J is never formed.

    It has what :func:`tangentlab.linalg.least_squares` needs of a Jacobian. The cost of a product is about three
    forward passes over the samples, for each vector of a block; with kept factors, a few matrix products.

    Args:
        network: The network with its readout and the parameters that count.
        samples: N samples.
        pushed: The network's linearization at parameters of zero, see :func:`direction_of`.
        batch_size: Samples per pass.
        kept: The same Jacobian from kept factors, if they fit into memory.
    """

    def __init__(
        self, network: Network, samples: Samples, pushed: Network, batch_size: int, kept: KeptJacobian | None = None
    ) -> None:
        self.network, self.samples, self.batch_size = network, samples, batch_size
        self.dtype, self.device = network.dtype, network.device
        self._pushed, self._kept = pushed, kept

    def on(self, samples: Samples) -> "NetworkJacobian":
        """Return the Jacobian of the same network on other samples."""
        return NetworkJacobian(self.network, samples, self._pushed, self.batch_size)

    def keeping(self, kept: KeptJacobian | None) -> "NetworkJacobian":
        """Return the same Jacobian with its products from kept factors."""
        return NetworkJacobian(self.network, self.samples, self._pushed, self.batch_size, kept)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape (N R, P). The network has run before, so that R is known."""
        unknowns = sum(p.numel() for p in self.network.parameters.values())
        return len(self.samples) * self.network.readout.size, unknowns

    def values(self) -> Tensor:
        """Compute f on the samples, (N, R), float64."""
        return self.network.values_on(self.samples, self.batch_size).double()

    def by_name(self, vector: Tensor) -> dict[str, Tensor]:
        """Split (P,) into the parameters' shapes."""
        named = self.network.parameters
        parts = vector.split([p.numel() for p in named.values()])
        return {name: part.reshape(p.shape).to(p) for part, (name, p) in zip(parts, named.items(), strict=True)}

    def __matmul__(self, block: Tensor) -> Tensor:
        """Compute J u for (P, m), in float64."""
        if self._kept is not None:
            return (self._kept @ block).double()
        parameters = dict(self._pushed.model.named_parameters())
        columns = []
        for vector in block.unbind(1):
            with torch.no_grad():
                for name, part in self.by_name(vector).items():
                    parameters[name].copy_(part)
            columns.append(self._pushed.values_on(self.samples, self.batch_size).double().flatten())
        return torch.stack(columns, 1)

    def rmatmul(self, block: Tensor) -> Tensor:
        """Compute J^T v for (N R, m), in float64."""
        if self._kept is not None:
            return self._kept.rmatmul(block).double()
        weights = list(self.network.parameters.values())
        sums = [torch.zeros(p.numel(), block.shape[1], dtype=torch.float64, device=self.device) for p in weights]
        vectors = block.reshape(len(self.samples), -1, block.shape[1])
        for rows in self._batches():
            count = rows.stop - rows.start
            with torch.enable_grad():
                values = self.network.values(self.samples.batch(rows), count)
            for column in range(block.shape[1]):
                gradients = torch.autograd.grad(
                    values,
                    weights,
                    vectors[rows, :, column].to(values),
                    retain_graph=column + 1 < block.shape[1],
                    allow_unused=True,
                    materialize_grads=True,
                )
                for total, gradient in zip(sums, gradients, strict=True):
                    total[:, column] += gradient.flatten()
        return torch.cat(sums)

    def _batches(self) -> Iterator[slice]:
        for start in range(0, len(self.samples), self.batch_size):
            yield slice(start, min(start + self.batch_size, len(self.samples)))


def direction_of(network: Network, readout: ReadoutLike, output: Callable[[Any], Tensor] | None) -> Network:
    """Return the network whose outputs are J u, u its parameters: not weights plus u, which would round it."""
    nothing = {name: torch.zeros_like(p) for name, p in network.model.named_parameters()}
    return Network(linearize(network.model, bias=False, theta0=nothing), readout, output=output)
