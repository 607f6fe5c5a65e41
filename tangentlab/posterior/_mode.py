"""The mode of the posterior: Newton's method in function space."""

import math
from dataclasses import dataclass

from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab.posterior._form import Displacement, Form
from tangentlab.posterior._likelihood import Gaussian, Likelihood

_ITERATIONS = 100
_TOLERANCE = 1e-10
"""Newton stops when the objective gains less than this share."""
_SMALLEST = 2.0**-40
"""The smallest part of a step. Where all outputs are saturated, the first steps are those of gradient ascent."""


@dataclass(frozen=True)
class Mode:
    """Where the posterior of the linearized network has its maximum.

    Attributes:
        outputs: f on the training samples, (N, O).
        displacement: The way there from the network's weights; None if the network is at its mode by assumption.
        steps: Newton steps.
    """

    outputs: Tensor
    displacement: Displacement | None
    steps: int


def find_mode(
    form: Form, likelihood: Likelihood, start: Tensor, ridge: float, many: bool = False, weighed: bool = False
) -> Mode:
    r"""Find the u that maximizes log p(y | f0 + J u) - rho |u|^2 / 2, and leave the form weighted there, at the ridge.

    A Newton step solves (1 + W K / rho) rho a = W (f - f0) + d log p / df and moves to f0 + K a, halved until the
    objective rises. For squared loss, the first step is exact.

    Args:
        form: The kernel.
        likelihood: With unit noise for regression, whose noise is in the ridge.
        start: f0, (N, O).
        ridge: rho.
        many: Whether other ridges will follow (regression: the curvature stays).
        weighed: Whether the form already has the curvature of a regression.
    """
    if isinstance(likelihood, Gaussian):
        if not weighed:
            form.weigh(likelihood.curvature(start), many)
        form.at(ridge)
        moved = form.displacement(likelihood.scale * (likelihood.targets - start))
        return Mode(start + moved.values, moved, 1)
    outputs, best = start, likelihood.total(start)
    current: Displacement | None = None
    for step in range(1, _ITERATIONS + 1):
        curvature = likelihood.curvature(outputs)
        form.weigh(curvature, many=False)
        form.at(ridge)
        gap = outputs - start
        weights = curvature.diagonal * gap
        if curvature.coupled:
            weights = weights - curvature.diagonal * weights.sum(1, keepdim=True) / curvature.scale
        target = form.displacement(weights + likelihood.gradient(outputs))
        moved, value, share = target, -math.inf, 1.0
        while share > _SMALLEST:
            if share < 1.0:
                moved = form.combine(current or _nowhere(target), target, share)
            value = likelihood.total(start + moved.values) - ridge * moved.norm / 2
            if value > best:
                break
            share /= 2
        gain = value - best
        if gain > 0:
            best, outputs, current = value, start + moved.values, moved
        if gain <= _TOLERANCE * (1 + abs(best)):  # also where rounding lets no step gain anything
            form.weigh(likelihood.curvature(outputs), many=False)
            form.at(ridge)
            return Mode(outputs, current or _nowhere(target), step)
    raise TangentError(
        f"Newton's method did not find the mode in {_ITERATIONS} steps.",
        "The prior is wide and the classes are separable, so that the mode is far away.",
        "Use a larger prior_precision.",
    )


def _nowhere(like: Displacement) -> Displacement:
    """Return the displacement that moves nothing."""
    return Displacement(0 * like.coefficients, 0 * like.values, 0.0)
