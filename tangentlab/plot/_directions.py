"""Directions in input space as images."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tangentlab._errors import TangentError


def directions(directions: Any, *, fourier: bool = True, titles: list[str] | None = None) -> NDArray[np.object_]:
    """Plot directions as images, and below them the magnitude of their Fourier transform (ortiz2021, figure 9).

    Cost: one or two images per direction, and its Fourier transform.

    Args:
        directions: :class:`tangentlab.analysis.NADs`, or a tensor (k, C, H, W) or (k, H, W). Channels are averaged.
        fourier: Whether to draw the second row. Frequency zero is in the middle.
        titles: One per direction; None for its number, and the alignment if it is known.

    Returns:
        An array of axes, (1 or 2, k).

    Examples:
        >>> from tangentlab import analysis, models, plot
        >>> network = models.build("mlp", input_shape=(1, 4, 4), outputs=1, hidden=(8,), seed=0)
        >>> axes = plot.directions(analysis.anisotropy_directions(network, input_shape=(1, 4, 4), k=3))
        >>> axes.size >= 3
        True

    See also:
        :func:`tangentlab.analysis.anisotropy_directions`.
    """
    import matplotlib.pyplot as plt

    images = torch.as_tensor(getattr(directions, "directions", directions)).detach().cpu().double()
    if images.ndim == 4:
        images = images.mean(1)
    if images.ndim != 3 or len(images) == 0:
        raise TangentError(
            f"Directions of shape {tuple(images.shape)} are not images.", "", "Pass (k, C, H, W) or (k, H, W)."
        )
    if titles is None:
        titles = [f"{j}" for j in range(1, len(images) + 1)]
        if hasattr(directions, "alignments"):
            titles = [f"{name}: {float(value):.2g}" for name, value in zip(titles, directions.alignments, strict=True)]
    rows = 2 if fourier else 1
    _, axes = plt.subplots(
        rows, len(images), figsize=(1.35 * len(images), 1.5 * rows), layout="constrained", squeeze=False
    )
    for ax, image, title in zip(axes[0], images, titles, strict=True):
        most = float(image.abs().max()) or 1.0
        ax.imshow(image.numpy(), cmap="coolwarm", vmin=-most, vmax=most)
        ax.set_title(title, fontsize=8)
    if fourier:
        for ax, image in zip(axes[1], torch.fft.fftshift(torch.fft.fft2(images).abs(), dim=(1, 2)), strict=True):
            ax.imshow(image.numpy(), cmap="magma")
    for ax in axes.flat:
        ax.set_xticks([])
        ax.set_yticks([])
    return axes
