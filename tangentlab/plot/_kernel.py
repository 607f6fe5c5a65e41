"""A kernel as a heat map."""

from typing import Any

import torch
from matplotlib.axes import Axes
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab.plot._axes import axes_or_new, whole


def kernel(
    kernel: Any,
    labels: Any = None,
    *,
    cosine: bool = True,
    ax: Axes | None = None,
    title: str = "",
    colorbar: bool = True,
    **options: Any,
) -> Axes:
    """Plot a kernel as a heat map, sorted by class.

    Args:
        kernel: (N, N), or (N, R, N, R) drawn as (N R, N R): a tensor, an array or one on disk, which is read whole.
        labels: (N,) class numbers. Samples are sorted by them, and the ticks are at the classes.
        cosine: Draw K_nm / sqrt(K_nn K_mm), which is in [-1, 1], in place of K.
        ax: Where to draw; None for a new figure.
        title: Title of the axes.
        colorbar: Whether to draw one.
        options: Options of ``Axes.imshow``, such as ``cmap``.

    Returns:
        The axes. Cost: N^2 numbers in float64.

    Examples:
        >>> import torch
        >>> from tangentlab import plot, ntk
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(8, 3)
        >>> kernel = ntk(model, x, readout="pntk")
        >>> ax = plot.kernel(kernel, torch.arange(8) % 2, title="Kernel")
        >>> ax.get_title()
        'Kernel'

    See also:
        :func:`tangentlab.plot.spectrum`, :func:`tangentlab.explore`.
    """
    matrix = whole(kernel)
    plan = getattr(kernel, "plan", None)  # of a kernel on disk, which knows its samples
    samples = int(plan.samples) if plan is not None else len(kernel)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise TangentError(
            f"A kernel of shape {tuple(matrix.shape)} is not square.", "", "Draw the kernel of samples with themselves."
        )
    if cosine:
        diagonal = matrix.diagonal()
        if not bool((diagonal > 0).all()):
            raise TangentError(
                "The diagonal is not positive.", "Cosines divide by its root.", "Pass cosine=False, or drop those rows."
            )
        scale = diagonal.rsqrt()
        matrix = matrix * scale * scale[:, None]
    ax = axes_or_new(ax)
    ticks = None
    if labels is not None:
        classes = _labels(labels, samples).repeat_interleave(len(matrix) // samples)
        order = classes.argsort(stable=True)
        matrix = matrix[order][:, order]
        names, counts = torch.unique(classes, return_counts=True)
        ticks = ((counts.cumsum(0) - counts / 2 - 0.5).tolist(), names.tolist())
    image = ax.imshow(matrix.numpy(), **{"cmap": "viridis", "interpolation": "nearest", **options})
    if ticks is not None:
        ax.set_xticks(*ticks)
        ax.set_yticks(*ticks)
    ax.set_title(title)
    if colorbar:
        label = r"$K_{nm} / \sqrt{K_{nn} K_{mm}}$" if cosine else "$K_{nm}$"
        ax.figure.colorbar(image, ax=ax, label=label)
    return ax


def _labels(labels: Any, samples: int) -> Tensor:
    """Return one class per sample, (N,)."""
    try:
        classes = torch.as_tensor(labels).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        raise TangentError("The labels are not numbers.", "", "Pass class numbers, one per sample.") from None
    if classes.shape == (samples, 1):
        classes = classes[:, 0]
    if classes.shape != (samples,):
        raise TangentError(
            f"{tuple(classes.shape)} labels do not fit {samples} samples.", "", "Pass one label per sample."
        )
    if classes.is_complex() or not bool(torch.isfinite(classes).all()):
        raise TangentError("The labels hold NaN or infinite values.", "", "Pass class numbers.")
    return classes
