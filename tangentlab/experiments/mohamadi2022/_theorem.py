"""Theorem 1: the difference of eNTK and pNTK at initialization falls as w^(-1/2)."""

from dataclasses import replace

import numpy as np
import pandas as pd

from tangentlab.experiments import _charts as charts
from tangentlab.experiments._context import Context
from tangentlab.experiments._experiment import Experiment
from tangentlab.experiments._figure import Figure
from tangentlab.experiments._parts import Weights
from tangentlab.experiments._verdicts import Examined, less
from tangentlab.experiments.mohamadi2022 import _numbers as numbers
from tangentlab.experiments.mohamadi2022._agreement import PAPER, SMALL, TINY, KernelAgreement
from tangentlab.experiments.mohamadi2022._setup import ArchitectureSpec, model


def run(spec: ArchitectureSpec, context: Context) -> pd.DataFrame:
    """Return one row per network: ``architecture``, ``width``, ``seed`` and the statistics of
    :class:`~tangentlab.experiments.mohamadi2022._agreement.KernelAgreement`, in the NTK parameterization."""
    units = {
        (name, width, seed): KernelAgreement(
            Weights(model(spec, name, width, seed, context, "ntk")), spec.images(seed), False
        )
        for name, width in spec.points()
        for seed in spec.seed_list
    }
    results = context.map(list(units.values()), "kernels")
    return pd.DataFrame(
        [
            {"architecture": name, "width": width, "seed": seed, **result}
            for (name, width, seed), result in zip(units, results, strict=True)
        ]
    )


def plot(table: pd.DataFrame, spec: ArchitectureSpec) -> Figure:
    """Plot relative differences against width, on logarithmic axes, next to the rate of the theorem."""
    panels = []
    for column, title in (("frobenius_difference", "Frobenius norm"), ("lambda_max_relative", "Largest eigenvalue")):
        start = table.groupby("width")[column].mean().sort_index()
        rate = pd.DataFrame(
            {
                "width": start.index,
                column: start.iloc[0] * (start.index / start.index[0]) ** numbers.RATE,
                "series": "rate -1/2",
            }
        )
        shown = pd.concat([table.assign(series="measured")[["width", column, "series"]], rate])
        panels.append(
            charts.lines(
                shown, "width", column, "series", title=title, y_title="relative difference", log_x=True, log_y=True
            )
        )
    return Figure(panels, columns=2, caption="Difference of eNTK and pNTK at initialization against width.", width=340)


def slope(table: pd.DataFrame, column: str) -> float:
    """Fit the slope of log(column) on log(width)."""
    return float(np.polyfit(np.log(table["width"].to_numpy(float)), np.log(table[column].to_numpy(float)), 1)[0])


def claims(table: pd.DataFrame, spec: ArchitectureSpec) -> list[Examined]:
    """Judge whether the slope is the theorem's or steeper, up to 0.1: the rate is that of large widths."""
    most = numbers.RATE + 0.1
    result = []
    for column, what in (("frobenius_difference", "Frobenius norm"), ("lambda_max_relative", "largest eigenvalue")):
        slopes = {seed: slope(part, column) for seed, part in table.groupby("seed")}
        result.append(
            less(
                f"The relative difference ({what}) falls at least as w^(-1/2) at initialization",
                "slope on logarithmic axes",
                pd.Series(slopes, dtype=float).rename_axis("seed"),
                paper="O(w^(-1/2))",
                margin=most,
            )
        )
    return result


PRESETS = {
    "tiny": replace(TINY, architectures=("fcn",), fcn_widths=(32, 64, 128, 256, 512, 1024), seeds=3),
    "small": replace(
        SMALL,
        architectures=("fcn",),
        fcn_widths=(32, 64, 128, 256, 512, 1024, 2048),
        n_train=200,
        seeds=3,
        epochs=PAPER.epochs,  # nothing is trained
        checkpoints=PAPER.checkpoints,
    ),
    "paper": replace(PAPER, architectures=("fcn",), fcn_widths=(32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)),
}

EXPERIMENTS = (
    Experiment(
        "mohamadi2022/theorem1",
        "Rate of convergence with width",
        "Differences of eNTK and pNTK at initialization fall as w^(-1/2).",
        PRESETS,
        run,
        plot,
        claims,
        {"tiny": "a few seconds", "small": "about 10 min on two cores", "paper": "about 1 h on a GPU"},
        ("In the NTK parameterization, as the theorem asks for.",),
    ),
)
