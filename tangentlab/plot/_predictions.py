"""Predicted numbers against measured ones, with their uncertainty."""

from typing import Any

from matplotlib.axes import Axes

from tangentlab._errors import TangentError
from tangentlab.plot._axes import BLUE, axes_or_new, numbers, tidy


def predictions(mean: Any, std: Any, targets: Any, *, ax: Axes | None = None, title: str = "") -> Axes:
    """Plot predictions with two standard deviations against the targets; on the diagonal, they are equal.

    Cost: M O points with error bars.

    Args:
        mean: Predictions, (M,) or (M, O).
        std: Their standard deviations.
        targets: What was measured.
        ax: Where to draw; None for a new figure.
        title: Title of the axes.

    Raises:
        TangentError: The three do not have the same shape.

    Examples:
        >>> import torch
        >>> from tangentlab import plot
        >>> ax = plot.predictions(torch.randn(9), torch.ones(9), torch.randn(9), title="Test")
        >>> ax.get_title()
        'Test'

    See also:
        :func:`tangentlab.plot.reliability`, :func:`tangentlab.posterior.fit`.
    """
    y, spread, x = numbers(mean), numbers(std), numbers(targets)
    if not y.shape == spread.shape == x.shape or y.size == 0:
        raise TangentError(
            f"Predictions {y.shape}, standard deviations {spread.shape} and targets {x.shape} do not fit.",
            "",
            "Pass three arrays of one shape.",
        )
    inside = float((abs(y - x) <= 2 * spread).mean())
    ax = axes_or_new(ax)
    low, high = min(x.min(), y.min()), max(x.max(), y.max())
    ax.plot([low, high], [low, high], color="0.6", lw=1, ls="--", label="equal")
    label = f"two standard deviations ({inside:.0%} inside)"
    ax.errorbar(x.ravel(), y.ravel(), 2 * spread.ravel(), fmt=".", color=BLUE, ms=4, lw=0.7, alpha=0.6, label=label)
    ax.set(xlabel="target", ylabel="prediction")
    if title:
        ax.set_title(title)
    ax.legend()
    return tidy(ax)
