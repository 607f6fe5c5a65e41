"""Refusals of networks whose outputs or gradients at the base point are not finite."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from tangentlab._errors import TangentError


def refuse_nan(outputs: Sequence[Tensor]) -> None:
    """Refuse outputs that are NaN."""
    if any(o.device.type != "meta" and bool(torch.isnan(o).any()) for o in outputs):
        raise _not_finite()


def refuse_overflow(outputs: Sequence[Tensor], tangents: Sequence[Tensor | None]) -> None:
    """Refuse infinite outputs unless they are constant, as scores of masked classes are.

    Args:
        outputs: f(x; theta*).
        tangents: J u for a random u, or None if an output does not depend on the weights.
    """
    for output, tangent in zip(outputs, tangents, strict=True):
        if tangent is not None and bool((torch.isinf(output) & (tangent != 0)).any()):
            raise _not_finite()


def refuse_infinite_gradients(norms: Sequence[float], outputs: Sequence[Tensor]) -> None:
    """Refuse gradients J^T v, given by their norms, that are not finite."""
    if not all(map(math.isfinite, norms)):
        if any(bool(torch.isinf(output).any()) for output in outputs):
            raise _not_finite()
        raise TangentError(
            "The network's gradients hold NaN or infinite values.",
            why="A derivative is not finite (for example of a square root at zero), or too large for the precision.",
            remedy="Avoid such points, for example by adding a small constant under the root.",
        )


def _not_finite() -> TangentError:
    return TangentError(
        "The network's outputs hold NaN or infinite values.",
        why="Those of the linearized model would be NaN or infinite too.",
        remedy="Check the weights and the scale of the inputs.",
    )
