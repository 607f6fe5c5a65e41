"""Training histories."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from tangentlab._errors import TangentError
from tangentlab.plot._axes import axes_or_new, tidy


def history(
    runs: Any,
    quantity: str = "train_loss",
    *,
    against: str = "epoch",
    log: bool | None = None,
    ax: Axes | None = None,
    title: str = "",
) -> Axes:
    """Plot a column of training histories against another, with one line per run.

    Cost: one point per row of the histories.

    Args:
        runs: A :class:`tangentlab.training.TrainingResult`, a :class:`tangentlab.training.Comparison`, a table of
            history, or a dict from name to any of the first and the last.
        quantity: The column drawn: ``"train_loss"``, ``"test_accuracy"``, ``"distance_l2"``, ...
        against: The column of the horizontal axis: ``"epoch"``, ``"step"`` or ``"seconds"``.
        log: Logarithmic vertical axis; None for losses.
        ax: Where to draw; None for a new figure.
        title: Title of the axes.

    Returns:
        The axes.

    Examples:
        >>> import torch
        >>> from tangentlab import plot, training
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> spec = training.TrainingSpec(epochs=2, batch_size=10, optimizer=training.SGD(0.1))
        >>> result = training.train(network, (x, y), spec)
        >>> plot.history({"network": result}, "train_loss", title="Loss").get_title()
        'Loss'

    See also:
        :func:`tangentlab.training.compare`.
    """
    named = runs.runs if hasattr(runs, "runs") else runs
    if not isinstance(named, Mapping):
        named = {"": named}
    ax = axes_or_new(ax)
    for name, run in named.items():
        table: pd.DataFrame = run if isinstance(run, pd.DataFrame) else run.history
        for column in (quantity, against):
            if column not in table:
                raise TangentError(
                    f"The history{f' of {name}' if name else ''} has no column {column!r}.",
                    "Test columns exist if test= was given.",
                    f"The columns are {', '.join(table.columns)}.",
                )
        ax.plot(table[against].astype(float), table[quantity].astype(float), lw=1.8, label=name or None)
    if quantity.endswith("loss") if log is None else log:
        ax.set_yscale("log")
    ax.set(xlabel=against, ylabel=quantity.replace("_", " "))
    if title:
        ax.set_title(title)
    if any(named):
        ax.legend()
    return tidy(ax)
