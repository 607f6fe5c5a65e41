"""The linearization error along a path in weight space."""

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab._sums import norm
from tangentlab.linearized import Linearized, linearization_error, linearize
from tangentlab.training import Callback


def linearization_along(network: nn.Module, path: Iterable[Any], *inputs: Any) -> pd.DataFrame:
    r"""Measure how the linearization at a network's weights fails along a path theta_1, theta_2, ... away from them,

    .. math:: \|f(x; \theta_t) - f(x; \theta_0) - J(x; \theta_0)(\theta_t - \theta_0)\| \,/\, \|f(x; \theta_t) -
        f(x; \theta_0)\|

    with norms over all samples and outputs. See :func:`tangentlab.linearized.linearization_error`.

    Cost per point: that of :func:`tangentlab.linearized.linearization_error` with all samples as one batch.

    Args:
        network: The network at theta_0. It is not changed.
        path: The weights: state dicts or networks of the same structure, for example of checkpoints or from
            :func:`straight_path`.
        inputs: The samples.

    Returns:
        One row per point: ``point`` (counted from 0), ``distance`` (||theta_t - theta_0||), ``error`` (as above) and
        ``worst`` (the largest of a single sample).

    Examples:
        >>> import torch
        >>> from tangentlab import analysis
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> start = {name: value.clone() for name, value in network.state_dict().items()}
        >>> end = {name: value + 0.1 for name, value in start.items()}
        >>> table = analysis.linearization_along(network, analysis.straight_path(start, end, [0.0, 0.5, 1.0]), x)
        >>> len(table)
        3

    See also:
        :func:`tangentlab.analysis.straight_path`, :func:`tangentlab.linearized.linearization_error`.
    """
    linear = linearize(network)
    return pd.DataFrame([{"point": point, **_error(linear, weights, inputs)} for point, weights in enumerate(path)])


def straight_path(
    start: nn.Module | Mapping[str, Tensor], end: nn.Module | Mapping[str, Tensor], fractions: Iterable[float]
) -> Iterable[dict[str, Tensor]]:
    """Compute weights theta_0 + t (theta_1 - theta_0) for the given t; only floating-point tensors move.

    Cost: one copy of the weights per t, made when it is asked for.

    Examples:
        >>> import torch
        >>> from tangentlab import analysis
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> start = {name: value.clone() for name, value in network.state_dict().items()}
        >>> end = {name: value + 1 for name, value in start.items()}
        >>> middle = list(analysis.straight_path(start, end, [0.5]))[0]
        >>> torch.allclose(middle["0.bias"], start["0.bias"] + 0.5)
        True

    See also:
        :func:`tangentlab.analysis.linearization_along`.
    """
    one, two = (w.state_dict() if isinstance(w, nn.Module) else w for w in (start, end))
    if one.keys() != two.keys():
        raise TangentError("The two ends of the path have different parameters.", remedy="Give the same architecture.")
    for t in fractions:
        yield {k: torch.lerp(w, two[k].to(w), t) if w.is_floating_point() else w for k, w in one.items()}


def linearization_callback(
    network: nn.Module, x: Any, *, epochs: Collection[int] | None = None, name: str = "linearization"
) -> Callback:
    """Make a callback that measures how far training has left the linearization at the network's present weights.

    Cost per call: as for one point of :func:`linearization_along`. The callback holds two copies of the weights.

    Args:
        network: The network before training. Its weights are copied now, so that it may be the one that is trained.
        x: The samples.
        epochs: As for :class:`~tangentlab.training.Callback`.
        name: The name of the callback; its values are dictionaries with ``distance``, ``error`` and ``worst``.

    Examples:
        >>> import torch
        >>> from tangentlab import analysis, training
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> callback = analysis.linearization_callback(network, x)
        >>> spec = training.TrainingSpec(epochs=2, batch_size=10, optimizer=training.SGD(0.1))
        >>> result = training.train(network, (x, y), spec, callbacks=[callback])
        >>> sorted(result.values[callback.name])
        [0, 1, 2]

    See also:
        :func:`tangentlab.analysis.linearization_along`, :func:`tangentlab.linearized.linearization_error`.
    """
    linear = linearize(network)
    return Callback(name, lambda model, epoch: _error(linear, model, (x,)), epochs)


def _error(linear: Linearized, weights: Any, inputs: tuple[Any, ...]) -> dict[str, float]:
    """Compute the error at other weights, in the present linearization."""
    state = weights.state_dict() if isinstance(weights, nn.Module) else weights
    own = dict(linear.named_parameters())
    missing = sorted(own.keys() - state.keys())
    if missing:
        raise TangentError(
            f"A point of the path has no weights {', '.join(missing[:3])}.",
            remedy="Give state dicts of the network that is linearized.",
        )
    base = {key: value.detach().clone() for key, value in own.items()}
    try:
        with torch.no_grad():
            for key, parameter in own.items():
                parameter.copy_(state[key])
        found = linearization_error(linear, *inputs)
        distance = math.hypot(*(float(norm(own[key].detach() - base[key])) for key in own))
    finally:
        with torch.no_grad():
            for key, parameter in own.items():
                parameter.copy_(base[key])
    return {"distance": distance, "error": found.overall, "worst": float(found.relative.max())}
