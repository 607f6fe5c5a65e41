"""Accuracy against confidence."""

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes

from tangentlab._errors import TangentError
from tangentlab.plot._axes import axes_or_new, tidy


def reliability(results: Any, *, ax: Axes | None = None, title: str = "") -> Axes:
    """Plot a reliability diagram: the accuracy of predictions against their confidence, bin by bin.

    Cost: one point per bin.

    Args:
        results: A :class:`tangentlab.posterior.Calibration`, or several by name; the legend has their calibration
            errors. The size of a point is the share of the samples in its bin.
        ax: Where to draw; None for a new figure.
        title: Title of the axes.

    Examples:
        >>> import torch
        >>> from tangentlab import plot, posterior
        >>> found = posterior.calibration(torch.tensor([[0.8, 0.2], [0.4, 0.6]]), torch.tensor([0, 1]))
        >>> plot.reliability({"network": found}, title="Test").get_title()
        'Test'

    See also:
        :func:`tangentlab.posterior.calibration`.
    """
    named = results if isinstance(results, Mapping) else {"": results}
    if not named or not all(hasattr(one, "bins") and hasattr(one, "ece") for one in named.values()):
        raise TangentError(
            "There is no calibration to draw.", "", "Pass what posterior.calibration or Posterior.evaluate returned."
        )
    ax = axes_or_new(ax)
    ax.plot([0, 1], [0, 1], color="0.6", lw=1, ls="--", label="calibrated")
    for number, (name, found) in enumerate(named.items()):
        bins = found.bins[found.bins["samples"] > 0]
        color = f"C{number}"
        ax.plot(
            bins["confidence"], bins["accuracy"], color=color, lw=1.6, label=f"{name} (ECE {found.ece:.2%})".strip()
        )
        shares = bins["samples"] / bins["samples"].sum()
        ax.scatter(bins["confidence"], bins["accuracy"], s=10 + 240 * shares, color=color, alpha=0.7, lw=0)
    ax.set(xlabel="confidence", ylabel="accuracy", xlim=(0, 1.02), ylim=(0, 1.02))
    if title:
        ax.set_title(title)
    ax.legend(loc="upper left")
    return tidy(ax)
