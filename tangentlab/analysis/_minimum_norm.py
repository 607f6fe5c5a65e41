"""The minimum-norm solution of the linearized problem, through the kernel."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab import linalg
from tangentlab._errors import TangentError
from tangentlab._sums import norm
from tangentlab.kernels import ntk
from tangentlab.kernels.internal import Network, ReadoutLike, Samples, takes_targets
from tangentlab.linalg.internal import real
from tangentlab.linearized import Linearized, linearize

_NETWORK = ("parameters", "output", "dtype", "device")
"""Options of :func:`tangentlab.ntk` that say what the network is."""


@dataclass(frozen=True, eq=False)
class MinimumNorm:
    """The smallest displacement of the weights with which the linearized network fits its targets.

    Attributes:
        displacement: u by parameter name, in the parameters' shapes.
        coefficients: a, (N, R), with u = J^T a.
        predictions: f0 + J u on the training points, (N, R).
        norm: ||u||.
        model: The linearized network with its weights displaced by u.
        regression: The solution of K a = y - f0, with its rank, residual, ridge and method.
    """

    displacement: dict[str, Tensor]
    coefficients: Tensor
    predictions: Tensor
    norm: float
    model: Linearized
    regression: linalg.Regression
    _evaluate: Callable[[Any], Tensor]

    def predict(self, x: Any) -> Tensor:
        """Compute f0(x) + J(x) u on other points, (M, R), by one forward-mode pass; no kernel is needed."""
        return self._evaluate(x)


def minimum_norm(
    model: nn.Module,
    x: Any,
    y: Any,
    *,
    readout: ReadoutLike = "full",
    ridge: float = 0.0,
    kernel: Any = None,
    batch_size: int = 256,
    **options: Any,
) -> MinimumNorm:
    r"""Compute the minimum-norm least-squares solution of the linearized problem (samarin2022, section 4.3),

    .. math:: \min \|u\| \text{ among the minimizers of } \|y - f_0 - J u\|, \qquad u = J^T a, \quad K a = y - f_0

    with the Jacobian J (N R, P) at the model's weights and its kernel K = J J^T. The authors apply LAPACK to J, which
    at width 10 did not fit into their 1 TB; here J is never formed. If K is singular, the pseudo-inverse is used. Cost:
    the kernel, its factorization, (N R)^3 / 3, and one backward pass over the samples for u.

    The kernel squares the condition number of J: components along singular values below about 1e-8 of the largest are
    lost in float64, and below 3e-4 in float32. Pass ``dtype=torch.float64``.

    Args:
        model: The network, in evaluation mode.
        x: N samples, as for :func:`tangentlab.ntk`.
        y: Targets, (N, R), flat (N R,), or (N,) for R = 1; one-hot for classes.
        readout: The fitted functions: ``"full"`` for all outputs, an int for one, an (O, R) tensor.
        ridge: The factor of ||u||^2 that is added to the squared error.
        kernel: A kernel source of (x, x) with this readout, if it exists already.
        batch_size: Samples per backward pass.
        options: As for :func:`tangentlab.ntk`.
    """
    if takes_targets(readout) or (isinstance(readout, str) and readout in ("trace", "per_class")):
        raise TangentError(
            f"The readout {readout!r} is not a set of functions that are linear in the outputs.",
            remedy='Use "full", an int or a matrix.',
        )
    network = Network(model, readout, **{k: v for k, v in options.items() if k in _NETWORK})
    samples = Samples(x, device=network.device, dtype=network.cast, input=options.get("input"), model=model)
    start = network.values_on(samples, batch_size).double()
    targets = real(y).to(start)
    if targets.ndim == 1 and targets.numel() == start.numel():
        targets = targets.reshape(start.shape)
    if targets.shape != start.shape:
        raise TangentError(
            f"Targets {tuple(torch.as_tensor(y).shape)} do not fit outputs {tuple(start.shape)}.",
            remedy="Give one row per sample and one column per readout.",
        )
    if kernel is None:
        kernel = ntk(model, x, readout=readout, **options)
    if isinstance(kernel, Tensor) and kernel.ndim == 4:
        kernel = kernel.reshape(start.numel(), start.numel())
    found = linalg.regress(kernel, (targets - start).reshape(-1, 1), ridge=ridge)
    coefficients = found.coefficients.reshape(start.shape).to(start)
    displacement = _pull(network, samples, coefficients, batch_size)
    length = math.hypot(*(float(norm(u)) for u in displacement.values()))
    linear = linearize(network.model)
    with torch.no_grad():
        for name, parameter in linear.named_parameters():
            if name in displacement:
                parameter.add_(displacement[name])
    solution = Network(linear, readout, output=options.get("output"))

    def evaluate(inputs: Any) -> Tensor:
        points = Samples(inputs, device=network.device, dtype=network.cast, input=options.get("input"), model=model)
        return solution.values_on(points, batch_size).double()

    return MinimumNorm(displacement, coefficients, evaluate(x), length, linear, found, evaluate)


def _pull(network: Network, samples: Samples, coefficients: Tensor, batch_size: int) -> dict[str, Tensor]:
    """Compute u = J^T a by plain backward passes."""
    weights = list(network.parameters.values())
    total = [torch.zeros_like(w, dtype=torch.float64) for w in weights]  # many batches are added
    for start in range(0, len(samples), batch_size):
        count = min(batch_size, len(samples) - start)
        with torch.enable_grad():
            values = network.values(samples.batch(slice(start, start + count)), count)
        gradients = torch.autograd.grad(
            values, weights, coefficients[start : start + count].to(values), allow_unused=True, materialize_grads=True
        )
        for part, gradient in zip(total, gradients, strict=True):
            part += gradient
    return {
        name: part.detach().to(weight) for (name, weight), part in zip(network.parameters.items(), total, strict=True)
    }
