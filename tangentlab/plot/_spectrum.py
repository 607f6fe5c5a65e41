"""Eigenvalues against their index."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from tangentlab import linalg
from tangentlab._deprecated import renamed_arguments
from tangentlab._errors import TangentError
from tangentlab.plot._axes import BLUE, axes_or_new, numbers, tidy, whole

_FLOOR = 1e-16
"""Share of the largest eigenvalue below which an eigenvalue is rounding, on a logarithmic axis."""


@renamed_arguments(normalise="normalize")
def spectrum(source: Any, *, normalize: bool = True, ax: Axes | None = None, title: str = "", **options: Any) -> Axes:
    """Plot eigenvalues against their index, both logarithmic.

    Cost: all eigenpairs of a kernel by :func:`tangentlab.linalg.eigh`, about 10 (N R)^3 operations; none if eigenvalues
    are given.

    Args:
        source: A :class:`tangentlab.linalg.Spectrum`, eigenvalues (k,) in any order, or a kernel (N, N) or
            (N, R, N, R), whose eigenvalues are computed here. Several of them by name, in a dict, are drawn in one
            picture with a legend.
        normalize: Divide by the largest.
        ax: Where to draw, for instance over another spectrum; None for a new figure.
        title: Title of the axes.
        options: Options of ``Axes.plot``, such as ``label`` and ``color``; a label draws a legend.

    Returns:
        The axes. Eigenvalues below 1e-16 of the largest, and negative ones, are left out.

    Examples:
        >>> import torch
        >>> from tangentlab import plot, ntk
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(8, 3)
        >>> kernel = ntk(model, x, readout="pntk")
        >>> ax = plot.spectrum(kernel, title="Spectrum")
        >>> ax.get_title()
        'Spectrum'

    See also:
        :func:`tangentlab.plot.kernel`, :func:`tangentlab.linalg.eigh`.
    """
    if isinstance(source, Mapping):
        if not source:
            raise TangentError("There is no spectrum to draw.", "", "Pass one or more, by name.")
        ax = axes_or_new(ax)
        for name, one in source.items():
            spectrum(one, normalize=normalize, ax=ax, title=title, **{"label": name, **options})
        return ax
    if hasattr(source, "vectors") and hasattr(source, "values"):
        values = numbers(source.values)
    elif getattr(source, "ndim", 2) == 1 or isinstance(source, list | tuple):
        values = numbers(source)
    else:
        values = numbers(linalg.eigh(whole(source)).values)
    values = np.sort(values)[::-1]
    if len(values) == 0 or not np.isfinite(values).all() or values[0] <= 0:
        raise TangentError("There is no positive eigenvalue.", "The axis is logarithmic.", "Pass a non-zero kernel.")
    index = np.arange(1, len(values) + 1)
    seen = values > _FLOOR * values[0]
    new = ax is None
    ax = axes_or_new(ax)
    color = {"color": BLUE} if new and "color" not in options else {}
    ax.loglog(index[seen], values[seen] / (values[0] if normalize else 1), **{"lw": 1.8, **color, **options})
    ax.set(xlabel="index $j$", ylabel=r"$\lambda_j / \lambda_1$" if normalize else r"$\lambda_j$")
    if title:
        ax.set_title(title)
    if options.get("label"):
        ax.legend()
    return tidy(ax)
