"""Axes and numbers, for all plots."""

from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from numpy.typing import NDArray
from torch import Tensor

BLUE = "#3b6fb6"


def axes_or_new(ax: Axes | None, width: float = 5.2, height: float = 4.2) -> Axes:
    """Return the given axes, or those of a new figure."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def tidy(ax: Axes) -> Axes:
    """Draw a grid, and no frame at the top and the right."""
    ax.grid(alpha=0.3, which="both")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def numbers(values: Any) -> NDArray[np.float64]:
    """Convert a tensor, array or list to float64 on the CPU."""
    return torch.as_tensor(values).detach().cpu().double().numpy()


def whole(kernel: Any) -> Tensor:
    """Return a kernel (N, N) or (N, R, N, R), in memory or on disk, as a matrix on the CPU."""
    matrix = torch.as_tensor(kernel.to_tensor() if hasattr(kernel, "to_tensor") else kernel).detach().cpu().double()
    return matrix.flatten(2).flatten(0, 1) if matrix.ndim == 4 else matrix
