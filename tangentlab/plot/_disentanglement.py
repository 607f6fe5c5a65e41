"""The disentanglement error over two scales."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from tangentlab._errors import TangentError
from tangentlab.plot._axes import axes_or_new, numbers


def disentanglement(found: Any, *, ax: Axes | None = None, title: str = "", largest: float | None = None) -> Axes:
    """Plot the disentanglement error over the scales of two task vectors; dark is small.

    The square marks scales from 0 to 1, where vectors are usually added (Ortiz-Jimenez et al. 2023, figure 3).

    Cost: A^2 cells for A scales.

    Args:
        found: A :class:`tangentlab.finetune.Disentanglement`.
        ax: Where to draw; None for a new figure.
        title: Title of the axes.
        largest: The error at the end of the color scale, to compare pictures; None for the largest found.

    Examples:
        >>> import torch
        >>> from tangentlab import finetune, plot
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> tasks = {}
        >>> for name in ("one", "two"):
        ...     moved = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        ...     tasks[name] = finetune.TaskVector.between(network, moved), torch.randn(6, 4)
        ...
        >>> plot.disentanglement(finetune.disentanglement_error(network, tasks, [0.0, 1.0]), title="Error").get_title()
        'Error'

    See also:
        :func:`tangentlab.finetune.disentanglement_error`.
    """
    if not hasattr(found, "errors") or not hasattr(found, "scales"):
        raise TangentError("There is no grid to draw.", "", "Pass what finetune.disentanglement_error returned.")
    ax = axes_or_new(ax)
    scales = numbers(found.scales)
    image = ax.pcolormesh(scales, scales, numbers(found.errors).T, vmin=0, vmax=largest, shading="nearest")
    ax.add_patch(Rectangle((0, 0), 1, 1, fill=False, ec="white", lw=1.4))
    ax.set(xlabel=f"scale of {found.names[0]}", ylabel=f"scale of {found.names[1]}", aspect="equal")
    ax.figure.colorbar(image, ax=ax, label="disentanglement error", shrink=0.85)
    if title:
        ax.set_title(title)
    return ax
