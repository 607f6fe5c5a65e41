"""The plain implementation that everything is tested against: a loop of automatic differentiation.

One sample at a time, one readout at a time, every gradient written out, named readouts by their definition. Where the
fast engine and this one differ, this one is right.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tangentlab.kernels._fallback import jacobian_rows
from tangentlab.kernels._inputs import Batch, Samples
from tangentlab.kernels._network import Network, ParametersLike
from tangentlab.kernels._problem import paired
from tangentlab.kernels._readout import ReadoutLike, takes_targets
from tangentlab.kernels._target_values import like, single

__all__ = ["jacobian", "ntk"]


def jacobian(
    model: nn.Module,
    x: Any,
    *,
    readout: ReadoutLike = "full",
    targets: Any = None,
    parameters: ParametersLike = None,
    output: Callable[[Any], Tensor] | None = None,
    input: Callable[[Any], Any] | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> dict[str, Tensor]:
    """Compute the Jacobian of the readouts, (N, R, *shape) per parameter.

    Cost: N forward and N R backward passes, one at a time, and 2 N R P numbers of memory.

    Examples:
        >>> import torch
        >>> from tangentlab import reference
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> {name: tuple(part.shape) for name, part in reference.jacobian(network, x).items()}
        {'0.weight': (20, 2, 8, 4), '0.bias': (20, 2, 8), '2.weight': (20, 2, 2, 8), '2.bias': (20, 2, 2)}

    See also:
        :func:`tangentlab.reference.ntk`.
    """
    network = Network(model, readout, parameters=parameters, output=output, dtype=dtype, device=device)
    samples = Samples(
        x,
        device=network.device,
        dtype=network.cast,
        input=input,
        model=model,
        targets=targets,
        labeled=network.takes_targets,
    )
    chosen = list(network.parameters.values())

    def values(sample: Batch) -> Tensor:
        if not takes_targets(readout):
            return network.values(sample, 1)
        outputs = network.outputs(sample, 1)[0]
        target = None if sample.targets is None else single(like(outputs, sample.targets), 0)
        if readout == "next_token":
            return _next_token(outputs, sample.inputs, target)
        return _PLAIN[readout](outputs, target) if isinstance(readout, str) else readout(outputs, target)

    rows = [jacobian_rows(values, samples.batch([n]), chosen) for n in range(len(samples))]
    return {name: torch.stack([row[i] for row in rows]) for i, name in enumerate(network.parameters)}


def ntk(
    model: nn.Module, x1: Any, x2: Any = None, *, readout: ReadoutLike = "full", targets: Any = None, **options: Any
) -> Tensor:
    """Compute the kernel by its definition; arguments and result are those of :func:`tangentlab.ntk`.

    Cost: that of :func:`jacobian` for both sets of samples, and 2 N1 N2 R^2 P operations.

    Args:
        model: The module, in evaluation mode.
        x1: N1 samples.
        x2: N2 samples, or None for ``x1`` again.
        readout: As for :func:`tangentlab.ntk`; R = 1 of a function has no axis.
        targets: As for :func:`tangentlab.ntk`.
        options: ``parameters``, ``output``, ``input``, ``dtype``, ``device``.

    Examples:
        >>> import torch
        >>> from tangentlab import ntk, reference
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> slow = reference.ntk(network.double(), x.double())
        >>> torch.allclose(slow, ntk(network, x.double()))
        True

    See also:
        :func:`tangentlab.reference.ntk`, :func:`tangentlab.reference.jacobian`.
    """
    if isinstance(readout, str) and readout in ("trace", "per_class"):
        full = ntk(model, x1, x2, readout="full", **options)
        classes = torch.einsum("nomo->onm", full)
        return classes.sum(0) if readout == "trace" else classes
    own, other = paired(targets, x1, x2)
    left = _flat(jacobian(model, x1, readout=readout, targets=own, **options))
    right = left if x2 is None else _flat(jacobian(model, x2, readout=readout, targets=other, **options))
    kernel = torch.einsum("nrp,msp->nrms", left, right)
    scalar = readout == "pntk" or isinstance(readout, int) or takes_targets(readout)
    return kernel[:, 0, :, 0] if scalar and kernel.shape[1] == 1 else kernel


def _flat(jacobians: dict[str, Tensor]) -> Tensor:
    return torch.cat([j.reshape(*j.shape[:2], -1) for j in jacobians.values()], 2)


def _log_probability(logits: Tensor, label: Tensor | int) -> Tensor:
    return F.log_softmax(logits if len(logits) > 1 else torch.cat([torch.zeros_like(logits), logits]), 0)[int(label)]


def _margin(logits: Tensor, label: Tensor) -> Tensor:
    if len(logits) == 1:
        return logits[0] if int(label) else -logits[0]
    rest = torch.cat([logits[: int(label)], logits[int(label) + 1 :]])
    return logits[int(label)] - torch.logsumexp(rest, 0)


def _loss(outputs: Tensor, target: Tensor) -> Tensor:
    if target.is_floating_point():
        return ((outputs.flatten() - target.flatten()) ** 2).sum() / 2
    return -_log_probability(outputs, target)


_PLAIN: dict[str, Callable[[Tensor, Any], Tensor]] = {
    "loss": _loss,
    "margin": _margin,
    "label": lambda logits, label: logits[int(label)],
}


def _next_token(logits: Tensor, inputs: Any, labels: Tensor | None) -> Tensor:
    """Compute the mean log-probability of the tokens that follow, of one text with logits (T, V)."""
    named = inputs if isinstance(inputs, Mapping) else {"input_ids": inputs}
    tokens = named["input_ids"][0] if labels is None else labels
    mask = named["attention_mask"][0] if "attention_mask" in named else torch.ones_like(tokens)
    terms = [
        _log_probability(logits[t - 1], tokens[t])
        for t in range(1, len(tokens))
        if tokens[t] != -100 and mask[t] and mask[t - 1]
    ]
    return torch.stack(terms).mean()
