"""Samples as images, side by side."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tangentlab._errors import TangentError


def samples(images: Any, *, titles: Sequence[str] | None = None, columns: int = 10) -> NDArray[np.object_]:
    """Plot samples as images, each scaled to its own range.

    Cost: one image with axes of its own per sample.

    Args:
        images: (n, H, W), or (n, C, H, W) with one or three channels.
        titles: One per sample.
        columns: Images per row.

    Returns:
        An array of axes, (rows, columns); unused ones are empty.

    Raises:
        TangentError: They are not images, or titles are missing.

    Examples:
        >>> import torch
        >>> from tangentlab import plot
        >>> axes = plot.samples(torch.rand(4, 1, 8, 8), titles=list("abcd"))
        >>> axes.size >= 4
        True

    See also:
        :func:`tangentlab.plot.chosen`, :func:`tangentlab.plot.directions`.
    """
    import matplotlib.pyplot as plt

    pictures = torch.as_tensor(images).detach().cpu().float()
    if not is_images(pictures):
        raise TangentError(
            f"Samples of shape {tuple(pictures.shape)} are not images.",
            "",
            "Pass (n, H, W), or (n, C, H, W) with one or three channels.",
        )
    if titles is not None and len(titles) != len(pictures):
        raise TangentError(f"{len(titles)} titles were given for {len(pictures)} samples.", "", "Pass one per sample.")
    if pictures.ndim == 4:
        pictures = pictures.movedim(1, -1).squeeze(-1)
    low, high = (f(pictures, dim=tuple(range(1, pictures.ndim)), keepdim=True) for f in (torch.amin, torch.amax))
    pictures = (pictures - low) / (high - low).clamp(min=1e-12)
    columns = max(1, min(columns, len(pictures)))
    rows = math.ceil(len(pictures) / columns)
    _, axes = plt.subplots(
        rows, columns, figsize=(1.1 * columns, (1.35 if titles else 1.1) * rows), layout="constrained", squeeze=False
    )
    for ax in axes.flat:
        ax.set_axis_off()
    for number, (ax, picture) in enumerate(zip(axes.flat, pictures, strict=False)):
        ax.imshow(picture.numpy(), cmap="gray", vmin=0, vmax=1)
        if titles is not None:
            ax.set_title(titles[number], fontsize=8)
    return axes


def is_images(x: Any) -> bool:
    """Return whether samples can be drawn as images.

    Examples:
        >>> import torch
        >>> from tangentlab import plot
        >>> plot.is_images(torch.rand(4, 1, 8, 8))
        True

    See also:
        :func:`tangentlab.plot.samples`.
    """
    if not isinstance(x, Tensor) or len(x) == 0 or min(x.shape[-2:], default=0) < 2:
        return False
    return x.ndim == 3 or (x.ndim == 4 and x.shape[1] in (1, 3))
