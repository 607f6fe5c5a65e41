"""The mixed derivative of a network in its inputs and weights, by products (ortiz2021, Theorem 1)."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab._sums import inner_columns
from tangentlab.kernels.internal import Network, ParametersLike, ReadoutLike, Samples, takes_targets


class MixedDerivative:
    r"""The operator M = E_x grad^2_{theta,x} f(x), (P, d), never formed: products by double backward passes.

    A product of M or M^T with one vector costs about three passes through the network per input of the expectation.

    Args:
        model: The module; it is not changed.
        x: The inputs (N, ...) of the expectation.
        readout: The scalar function that is differentiated: an int, "pntk", or an (O, 1) tensor.
        parameters: As for :func:`tangentlab.ntk`.
        dtype: The precision; None for the model's.
        device: The device; None for the model's.
        batch_size: Inputs per pass.
    """

    def __init__(
        self,
        model: nn.Module,
        x: Tensor,
        *,
        readout: ReadoutLike = "pntk",
        parameters: ParametersLike = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        batch_size: int = 64,
    ) -> None:
        if not isinstance(x, Tensor) or not x.is_floating_point() or x.ndim < 2 or x[0].numel() == 0:
            raise TangentError(
                "The inputs are not a floating-point tensor (N, ...).",
                why="The network is differentiated with respect to them.",
                remedy="Give a tensor with one row per input.",
            )
        if takes_targets(readout):
            raise TangentError(
                f"The readout {readout!r} is a function of targets.",
                why="Anisotropy directions belong to a function of the inputs.",
                remedy='Choose one output with readout=k, or their sum with readout="pntk".',
            )
        self.network = Network(model, readout, parameters=parameters, dtype=dtype, device=device)
        self.samples = Samples(x, device=self.network.device, dtype=self.network.dtype, name="inputs")
        self.batch_size = batch_size
        self.input_shape = tuple(x.shape[1:])
        self.shape = sum(p.numel() for p in self.network.parameters.values()), math.prod(self.input_shape)
        self.dtype, self.device = self.network.dtype, self.network.device
        first = self.network.values(self.samples.batch(slice(0, 1)), 1)
        if first.shape[1] != 1:
            raise TangentError(
                f"The readout gives {first.shape[1]} functions.",
                why="Anisotropy directions belong to one function.",
                remedy='Choose one output with readout=k, or their sum with readout="pntk".',
            )

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Iterate over inputs that require gradients, with the batch's share of the mean of f."""
        count = len(self.samples)
        for start in range(0, count, self.batch_size):
            batch = self.samples.batch(slice(start, start + self.batch_size))
            x = batch.inputs.clone().requires_grad_()
            with torch.enable_grad():
                yield x, self.network.values(batch._replace(inputs=x), len(x)).sum() / count

    def product(self, v: Tensor) -> Tensor:
        """Compute M v: (d, m) to (P, m)."""
        directions = v.to(self.network.dtype).T.reshape(-1, *self.input_shape)
        weights = list(self.network.parameters.values())
        total = v.new_zeros(self.shape[0], v.shape[1], dtype=torch.float64)  # many batches are added
        for x, mean in self._batches():
            slopes = _gradients(mean, [x])[0].sum(0)
            columns = _batched(slopes, weights, directions)
            total += torch.cat([c.flatten(1) for c in columns], 1).T
        return total.to(self.dtype)

    def transposed_product(self, u: Tensor) -> Tensor:
        """Compute M^T u: (P, m) to (d, m)."""
        weights = list(self.network.parameters.values())
        parts = u.to(self.network.dtype).T.split([p.numel() for p in weights], 1)
        total = u.new_zeros(self.shape[1], u.shape[1], dtype=torch.float64)
        for x, mean in self._batches():
            gradients = _gradients(mean, weights)
            with torch.enable_grad():
                flat = torch.cat([g.flatten() for g in gradients])
            total += _batched(flat, [x], torch.cat(parts, 1))[0].sum(1).flatten(1).T
        return total.to(self.dtype)


class GramOperator:
    """The kernel source M^T M, (d, d), for :mod:`tangentlab.linalg`: its eigenvalues are the squared singular values.

    Args:
        mixed: M.
        columns: The number of vectors that pass through the network at a time.
    """

    def __init__(self, mixed: MixedDerivative, columns: int) -> None:
        self.mixed, self.columns = mixed, columns
        self.shape = (mixed.shape[1], mixed.shape[1])
        self.dtype, self.device = mixed.dtype, mixed.device

    def __matmul__(self, v: Tensor) -> Tensor:
        parts = (self.mixed.transposed_product(self.mixed.product(part)) for part in v.split(self.columns, 1))
        return torch.cat(list(parts), 1)

    def diagonal(self) -> Tensor:
        """Compute the squared norms of the columns of M."""
        unit = torch.eye(self.shape[0], dtype=self.dtype, device=self.device)
        products = (self.mixed.product(part) for part in unit.split(self.columns, 1))
        return torch.cat([inner_columns(product, product) for product in products])


def _gradients(value: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    """Compute first derivatives that can be differentiated again, zero where there is no dependence."""
    if not value.requires_grad:
        return [torch.zeros_like(i) for i in inputs]
    return list(torch.autograd.grad(value, inputs, create_graph=True, allow_unused=True, materialize_grads=True))


def _batched(values: Tensor, inputs: list[Tensor], vectors: Tensor) -> list[Tensor]:
    """Compute gradients of <values, vector> for m vectors: for each input (m, *shape)."""
    if not values.requires_grad:
        return [i.new_zeros(len(vectors), *i.shape) for i in inputs]
    options: dict[str, Any] = {"retain_graph": True, "allow_unused": True}
    found: Sequence[Tensor | None]
    try:
        found = torch.autograd.grad(values, inputs, vectors, is_grads_batched=True, **options)
    except RuntimeError:  # an operation on the way has no batching rule: one vector at a time
        rows = [torch.autograd.grad(values, inputs, vector, **options) for vector in vectors]
        found = [None if column[0] is None else torch.stack(column) for column in zip(*rows, strict=True)]
    return [i.new_zeros(len(vectors), *i.shape) if f is None else f for i, f in zip(inputs, found, strict=True)]
