"""The plain implementation that everything is tested against: a loop of automatic differentiation.

One sample at a time, one readout at a time, every gradient written out. Where the fast engine and this one differ, this
one is right.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab.kernels._fallback import jacobian_rows
from tangentlab.kernels._inputs import Samples
from tangentlab.kernels._network import Network, ParametersLike
from tangentlab.kernels._readout import ReadoutLike

__all__ = ["jacobian", "ntk"]


def jacobian(
    model: nn.Module,
    x: Any,
    *,
    readout: ReadoutLike = "full",
    parameters: ParametersLike = None,
    output: Callable[[Any], Tensor] | None = None,
    input: Callable[[Any], Any] | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> dict[str, Tensor]:
    """Compute the Jacobian of the readouts, (N, R, *shape) per parameter: memory N R P, N R backward passes."""
    network = Network(model, readout, parameters=parameters, output=output, dtype=dtype, device=device)
    samples = Samples(x, device=network.device, dtype=network.cast, input=input, model=model)
    chosen = list(network.parameters.values())

    def values(sample: Any) -> Tensor:
        return network.values(sample, 1)

    rows = [jacobian_rows(values, samples.batch([n]), chosen) for n in range(len(samples))]
    return {name: torch.stack([row[i] for row in rows]) for i, name in enumerate(network.parameters)}


def ntk(model: nn.Module, x1: Any, x2: Any = None, *, readout: ReadoutLike = "full", **options: Any) -> Tensor:
    """Compute the kernel by its definition; arguments and result are those of :func:`tangentlab.ntk`.

    Args:
        model: The module, in evaluation mode.
        x1: N1 samples.
        x2: N2 samples, or None for ``x1`` again.
        readout: As for :func:`tangentlab.ntk`.
        options: ``parameters``, ``output``, ``input``, ``dtype``, ``device``.
    """
    if isinstance(readout, str) and readout in ("trace", "per_class"):
        full = ntk(model, x1, x2, readout="full", **options)
        classes = torch.einsum("nomo->onm", full)
        return classes.sum(0) if readout == "trace" else classes
    left = _flat(jacobian(model, x1, readout=readout, **options))
    right = left if x2 is None else _flat(jacobian(model, x2, readout=readout, **options))
    kernel = torch.einsum("nrp,msp->nrms", left, right)
    scalar = readout == "pntk" or isinstance(readout, int)
    return kernel[:, 0, :, 0] if scalar else kernel


def _flat(jacobians: dict[str, Tensor]) -> Tensor:
    return torch.cat([j.reshape(*j.shape[:2], -1) for j in jacobians.values()], 2)
