"""Predicted training, and the measured one on it."""

from typing import Any

from matplotlib.axes import Axes

from tangentlab._errors import TangentError
from tangentlab.plot._axes import BLUE, axes_or_new, tidy


def forecast(predicted: Any, measured: Any = None, *, ax: Axes | None = None, title: str = "") -> Axes:
    """Plot predicted losses against steps, both logarithmic, and measured ones with them.

    The band is two standard errors of the predicted test loss over the test samples.

    Cost: one point per row of the tables.

    Args:
        predicted: A :class:`tangentlab.forecast.TrainingForecast` or its table.
        measured: A table with ``step``, ``train_loss`` and optionally ``test_loss``; None for none.
        ax: Where to draw; None for a new figure.
        title: Title of the axes.

    Examples:
        >>> import torch
        >>> from tangentlab import plot, predict_training
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> forecast = predict_training(network, x, y, lr=0.1, steps=100, progress=False)
        >>> plot.forecast(forecast, title="Loss").get_title()
        'Loss'

    See also:
        :func:`tangentlab.predict_training`.
    """
    table = getattr(predicted, "table", predicted)
    if "step" not in table or "train_loss" not in table:
        raise TangentError("There is no forecast to draw.", "", "Pass what predict_training returned.")
    ax = axes_or_new(ax)
    for name, color in (("train", BLUE), ("test", "C1")):
        for found, style, what in ((table, "-", "predicted"), (measured, "--", "measured")):
            if found is not None and f"{name}_loss" in found:
                seen = found[found["step"] > 0]
                ax.loglog(seen["step"], seen[f"{name}_loss"], style, color=color, lw=1.8, label=f"{name}, {what}")
                if f"{name}_loss_error" in seen:
                    low, high = (seen[f"{name}_loss"] + sign * 2 * seen[f"{name}_loss_error"] for sign in (-1, 1))
                    ax.fill_between(seen["step"], low.clip(lower=0), high, color=color, alpha=0.15, lw=0)
    ax.set(xlabel="step", ylabel="loss")
    if title:
        ax.set_title(title)
    ax.legend()
    return tidy(ax)
