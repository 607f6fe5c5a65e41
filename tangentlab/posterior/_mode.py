"""The mode of the posterior: Newton's method in function space."""

from dataclasses import dataclass

from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab.posterior._form import Displacement, Form
from tangentlab.posterior._likelihood import Gaussian, Likelihood

_ITERATIONS = 50
_TOLERANCE = 1e-10
"""Newton stops when the objective changes by less than this share."""


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
    r"""Maximize log p(y | f0 + J u) - rho |u|^2 / 2 over u, and leave the form weighted there, at the ridge.

    A Newton step solves (1 + W K / rho) rho a = W (f - f0) + d log p / df and moves to f0 + K a, halved until the
    objective does not fall. For squared loss, the first step is exact.

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
    outputs, current, best = start, None, likelihood.total(start)
    for step in range(1, _ITERATIONS + 1):
        curvature = likelihood.curvature(outputs)
        form.weigh(curvature, many=False)
        form.at(ridge)
        gap = outputs - start
        weights = curvature.diagonal * gap
        if curvature.coupled:
            weights = weights - curvature.diagonal * weights.sum(1, keepdim=True) / curvature.scale
        target = form.displacement(weights + likelihood.gradient(outputs))
        share = 1.0
        while True:
            if share == 1.0:
                moved = target
            else:
                moved = _scaled(form, target, share) if current is None else form.combine(current, target, share)
            value = likelihood.total(start + moved.values) - ridge * moved.norm / 2
            if value >= best - _TOLERANCE * abs(best) or share < 1e-4:
                break
            share /= 2
        gain, best = value - best, value
        outputs, current = start + moved.values, moved
        if abs(gain) <= _TOLERANCE * (1 + abs(best)):
            form.weigh(likelihood.curvature(outputs), many=False)
            form.at(ridge)
            return Mode(outputs, current, step)
    raise TangentError(
        f"Newton's method did not find the mode in {_ITERATIONS} steps.",
        "The prior is wide and the classes are separable, so that the mode is far away.",
        "Use a larger prior_precision.",
    )


def _scaled(form: Form, target: Displacement, share: float) -> Displacement:
    """Return a part of the way from the start."""
    nothing = Displacement(0 * target.coefficients, 0 * target.values, 0.0)
    return form.combine(nothing, target, share)
