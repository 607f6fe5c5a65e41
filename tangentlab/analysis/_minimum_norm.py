"""The minimum-norm solution of the linearized problem."""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab import linalg
from tangentlab._errors import TangentError
from tangentlab.analysis._jacobian import NetworkJacobian, direction_of
from tangentlab.kernels import ntk
from tangentlab.kernels.internal import (
    Network,
    Options,
    ReadoutLike,
    Samples,
    keep_jacobian,
    takes_targets,
)
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
        fit: The solver's account, with residual, rank, cutoff, and the floor if no displacement meets the targets.
    """

    displacement: dict[str, Tensor]
    coefficients: Tensor
    predictions: Tensor
    norm: float
    model: Linearized
    fit: linalg.LeastSquares
    _jacobian: NetworkJacobian
    _solution: Tensor
    _input: Any

    def predict(self, x: Any) -> Tensor:
        """Compute f0(x) + J(x) u on other points, (M, R), without a kernel. Cost: a forward and a forward-mode pass."""
        network = self._jacobian.network
        samples = Samples(x, device=network.device, dtype=network.cast, input=self._input, model=network.model)
        return _displaced(self._jacobian.on(samples), self._solution)


def minimum_norm(
    model: nn.Module,
    x: Any,
    y: Any,
    *,
    readout: ReadoutLike = "full",
    ridge: float = 0.0,
    cutoff: float | None = None,
    kernel: Any = None,
    batch_size: int = 256,
    **options: Any,
) -> MinimumNorm:
    r"""Compute the minimum-norm least-squares solution of the linearized problem (samarin2022, section 4.3),

    .. math:: \min \|u\| \text{ among the minimizers of } \|y - f_0 - J u\|

    with the Jacobian J (N R, P) at the model's weights. The authors apply LAPACK to J, which at width 10 did not fit
    into their 1 TB; here J is never formed. :func:`tangentlab.linalg.least_squares` solves with products with J, which
    its kernel K = J J^T preconditions, to LAPACK's own accuracy: pass ``dtype=torch.float64``. If no displacement meets
    the targets (more equations than weights, equal samples with different targets, a Jacobian that is singular up to
    rounding), singular values of J far below the solver's ``floor`` are damped: 4e-11 of the largest
    in float64.

    Cost: the kernel, its factorization, (N R)^3 / 3, and in each iteration, of which there are few unless J is nearly
    singular, two triangular solves, 2 (N R)^2, and two products with J. These come from the kernel's factors if they
    fit into a quarter of the free memory, at about 4 N R operations per parameter that a sample uses once; otherwise
    from a forward-mode and a backward pass over the samples.

    Args:
        model: The network, in evaluation mode.
        x: N samples, as for :func:`tangentlab.ntk`.
        y: Targets, (N, R), flat (N R,), or (N,) for R = 1; one-hot for classes.
        readout: The fitted functions: ``"full"`` for all outputs, an int for one, an (O, R) tensor.
        ridge: The factor of ||u||^2 that is added to the squared error.
        cutoff: Singular values of J below this share of the largest count as zero, as in LAPACK; None for none.
        kernel: A kernel source of (x, x) with this readout, if it exists already.
        batch_size: Samples per pass.
        options: As for :func:`tangentlab.ntk`.

    Examples:
        >>> import torch
        >>> from tangentlab import analysis
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> network.double()
        Sequential(
          (0): Linear(in_features=4, out_features=8, bias=True)
          (1): Tanh()
          (2): Linear(in_features=8, out_features=2, bias=True)
        )
        >>> found = analysis.minimum_norm(network, x[:5].double(), torch.randn(5, 2, dtype=torch.float64))
        >>> type(found).__name__
        'MinimumNorm'

    See also:
        :func:`tangentlab.linalg.least_squares`, :func:`tangentlab.linalg.regress`.
    """
    if takes_targets(readout) or (isinstance(readout, str) and readout in ("trace", "per_class")):
        raise TangentError(
            f"The readout {readout!r} is not a set of functions that are linear in the outputs.",
            remedy='Use "full", an int or a matrix.',
        )
    network = Network(model, readout, **{k: v for k, v in options.items() if k in _NETWORK})
    samples = Samples(x, device=network.device, dtype=network.cast, input=options.get("input"), model=model)
    jacobian = NetworkJacobian(network, samples, direction_of(network, readout, options.get("output")), batch_size)
    start = jacobian.values()
    targets = real(samples.targets_or(y)).to(start)
    if targets.ndim == 1 and targets.numel() == start.numel():
        targets = targets.reshape(start.shape)
    if targets.shape != start.shape:
        raise TangentError(
            f"Targets {tuple(torch.as_tensor(y).shape)} do not fit outputs {tuple(start.shape)}.",
            remedy="Give one row per sample and one column per readout.",
        )
    if kernel is None:
        kernel = ntk(model, x, readout=readout, **options)
    own = {name: value for name, value in options.items() if name in {field.name for field in fields(Options)}}
    jacobian = jacobian.keeping(keep_jacobian(model, x, Options(readout, **own)))
    right = (targets - start).flatten()
    fit = linalg.least_squares(
        jacobian, right, kernel=kernel, ridge=ridge, cutoff=cutoff, progress=options.get("progress")
    )
    displacement = jacobian.by_name(fit.solution)
    linear = linearize(network.model)
    with torch.no_grad():
        for name, parameter in linear.named_parameters():
            if name in displacement:
                parameter.add_(displacement[name])
    return MinimumNorm(
        displacement=displacement,
        coefficients=fit.coefficients.reshape(start.shape).to(start),
        predictions=_displaced(jacobian, fit.solution, start),
        norm=fit.norm,
        model=linear,
        fit=fit,
        _jacobian=jacobian,
        _solution=fit.solution,
        _input=options.get("input"),
    )


def _displaced(jacobian: NetworkJacobian, solution: Tensor, start: Tensor | None = None) -> Tensor:
    """Compute f0 + J u, (N, R)."""
    start = jacobian.values() if start is None else start
    return start + (jacobian @ solution[:, None]).reshape(start.shape)
