"""Chosen samples among all others, as the kernel sees them."""

from typing import Any

import torch
from matplotlib.axes import Axes

from tangentlab._errors import TangentError
from tangentlab.plot._axes import BLUE, axes_or_new, tidy


def chosen(pool: Any, rows: Any, *, ax: Axes | None = None, title: str = "") -> Axes:
    """Plot a pool in the two leading eigenvectors of its kernel, and the chosen samples in it, numbered in their order.

    Cost: two eigenpairs of the pool by :func:`tangentlab.linalg.eigh`, and N points.

    Args:
        pool: The kernel of N samples with one or more readouts each: a matrix, a store, an operator or a sketch.
        rows: The chosen samples, for instance :attr:`tangentlab.select.Selection.indices`.
        ax: Where to draw; None for a new figure.
        title: Title of the axes.

    Raises:
        TangentError: There are fewer than three samples, or a row is not among them.

    Examples:
        >>> import torch
        >>> from tangentlab import plot, select, ntk
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(8, 3)
        >>> kernel = ntk(model, x, readout="pntk")
        >>> plot.chosen(kernel, select.lcmd(kernel, 2).indices, title="Chosen").get_title()
        'Chosen'

    See also:
        :func:`tangentlab.select.lcmd`.
    """
    from tangentlab import linalg

    picked = torch.as_tensor(rows).long().flatten()
    readouts = getattr(pool, "readouts", 1)
    if readouts > 1:  # the sum over readouts, as for selection
        pool = linalg.LowRank(pool.features.reshape(len(pool.features) // readouts, -1))
    spectrum = linalg.eigh(pool, 2)
    points = (spectrum.vectors * spectrum.values.clamp(min=0).sqrt()).detach().cpu().double()
    if len(points) < 3 or points.shape[1] < 2 or not len(picked) or int(picked.max()) >= len(points):
        raise TangentError(
            f"{len(picked)} rows cannot be drawn in a pool of {len(points)}.",
            "",
            "Pass the pool they were chosen from.",
        )
    ax = axes_or_new(ax)
    ax.plot(*points.T, ".", color="0.75", ms=3, zorder=1, label=f"pool of {len(points):,}")
    ax.plot(*points[picked].T, "o", color=BLUE, ms=5, zorder=2, label=f"{len(picked)} chosen")
    for number, place in enumerate(points[picked[:30]].tolist(), 1):
        ax.annotate(f"{number}", place, xytext=(3, 3), textcoords="offset points", fontsize=8)
    ax.set(xlabel="first eigenvector", ylabel="second eigenvector")
    if title:
        ax.set_title(title)
    ax.legend()
    return tidy(ax)
