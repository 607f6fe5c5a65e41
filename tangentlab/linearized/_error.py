"""The difference between a network and its linearization."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from tangentlab._errors import TangentError
from tangentlab._html import card
from tangentlab.linearized._module import Linearized
from tangentlab.linearized._point import differentiable


@dataclass(frozen=True)
class LinearizationError:
    """The linearization error at one displacement d = theta - theta0, for N samples.

    Attributes:
        absolute: ``||f(x; theta* + d) - f(x; theta*) - J(x; theta*) d||``, (N,), with the norm over a sample's outputs.
        relative: ``absolute`` divided by the change of the network's output, ``||f(x; theta* + d) - f(x; theta*)||``,
            (N,); 0 if neither the network nor the linearization changed.
        overall: ``relative`` with both norms over all samples together.
    """

    absolute: Tensor
    relative: Tensor
    overall: float

    def __str__(self) -> str:
        return f"relative linearization error {self.overall:.3g} over {len(self.absolute)} samples"

    def _repr_html_(self) -> str:
        facts = {"samples": len(self.absolute), "overall": self.overall, "worst sample": float(self.relative.max())}
        return card("Relative linearization error", facts)


def linearization_error(model: Linearized, *args: Any, **kwargs: Any) -> LinearizationError:
    """Compute the linearization error at the model's present parameters, on the given inputs.

    The network is evaluated at theta* + (theta - theta0) with the buffers of the linearization, so that only the
    expansion differs. For smooth networks, the error decreases with the square of the displacement. Costs two network
    passes and one tangent pass.

    Args:
        model: A linearized model.
        *args: The network's inputs; samples along the first dimension of every output.
        **kwargs: The network's keyword inputs.

    Examples:
        >>> import torch
        >>> from tangentlab import linearize, linearized
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> lin = linearize(network)
        >>> with torch.no_grad():
        ...     for parameter in lin.parameters():
        ...         parameter += 0.1
        ...
        >>> linearized.linearization_error(lin, x).relative > 0
        tensor([True, True, True, True, True, True, True, True, True, True, True, True,
                True, True, True, True, True, True, True, True])

    See also:
        :func:`tangentlab.linearized.linearize`, :func:`tangentlab.analysis.linearization_along`.
    """
    if not isinstance(model, Linearized):
        raise TangentError(f"{type(model).__name__} is not linearized.", remedy="Call tangentlab.linearize first.")
    primal, tangent = model.expand(*args, **kwargs)
    point = model._point()
    moved = {name: point.weights[name] + d for name, d in point.displacement.items()}
    output = primal  # at the start the change is zero; the rounding of two passes would be an error of 100 %
    if any(bool(d.any()) for d in point.displacement.values()):
        with torch.no_grad():
            output = point.call(moved, args, kwargs)
    samples: int | None = None
    error = change = torch.zeros(())
    leaves = zip(pytree.tree_leaves(output), pytree.tree_leaves(primal), pytree.tree_leaves(tangent), strict=True)
    for network, start, linear in leaves:
        if not differentiable(network):
            continue
        rows = network.shape[0] if network.ndim else 1
        if samples is not None and rows != samples:
            raise TangentError(
                f"The network's outputs have {samples} and {rows} rows.",
                why="The error is one number per sample, along the first dimension.",
                remedy="Compare model(...) with the network's output directly.",
            )
        samples = rows
        step = (network - start).reshape(rows, -1)
        error = error + (step - linear.reshape(rows, -1)).square().sum(1)
        change = change + step.square().sum(1)
    still = (change == 0) & (error == 0)
    relative = torch.where(still, 0.0, error / change).sqrt()
    total, moved_by = float(error.sum()), float(change.sum())
    overall = 0.0 if total == 0 else (total / moved_by) ** 0.5 if moved_by else float("inf")
    return LinearizationError(error.sqrt(), relative, overall)
