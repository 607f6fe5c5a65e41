"""Figure A2: output values of a network and of its linearization along training."""

from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import wasserstein_distance

from tangentlab.experiments import _charts as charts
from tangentlab.experiments._context import Context
from tangentlab.experiments._experiment import Experiment
from tangentlab.experiments._figure import Figure
from tangentlab.experiments._training import TrainingOutcome
from tangentlab.experiments._verdicts import Examined, trend
from tangentlab.experiments.samarin2022._setup import DEVIATIONS, WidthSpec, runs
from tangentlab.experiments.samarin2022._widths import MNIST

QUANTILES = (0.1, 0.5, 0.9)


def run(spec: WidthSpec, context: Context) -> pd.DataFrame:
    """Return one row per width, seed, model and record: ``width``, ``seed``, ``model``, ``step``, the mean, standard
    deviation and quantiles ``q10``, ``q50``, ``q90`` of the outputs on the watched training samples; and, in the rows
    of both models, ``distance``, the Wasserstein distance of the two models' output values at that step, and ``path``,
    the root mean square of their differences output by output."""
    spec = replace(spec, linear_lr=spec.linear_lr[:1])
    pairs = {(width, seed): runs(spec, width, seed, context) for width in spec.widths for seed in spec.seed_list}
    context.compute([unit for pair in pairs.values() for unit in pair.values()], "training")
    rows = []
    for (width, seed), pair in pairs.items():
        results = {form: result for (form, _), result in context.results(pair).items()}
        if any(result["status"] != "finished" for result in results.values()):
            continue
        watched = {form: _outputs(result) for form, result in results.items()}
        for i, step in enumerate(results["network"]["watched_steps"]):
            one, two = watched["network"][i], watched["linearized"][i]
            common = {
                "distance": float(wasserstein_distance(one.ravel(), two.ravel())),
                "path": float(np.sqrt(np.mean((one - two) ** 2))),
            }
            for form, values in (("network", one), ("linearized", two)):
                low, middle, high = np.quantile(values, QUANTILES)
                rows.append(
                    {
                        "width": width,
                        "seed": seed,
                        "model": form,
                        "step": step,
                        "mean": float(values.mean()),
                        "std": float(values.std()),
                        "q10": float(low),
                        "q50": float(middle),
                        "q90": float(high),
                        **common,
                    }
                )
    return pd.DataFrame(rows)


def _outputs(result: TrainingOutcome) -> NDArray[np.float64]:
    """Return the outputs on the watched samples, (records, samples, outputs)."""
    watched = result["watched"]
    assert watched is not None
    return watched.double().numpy()


def plot(table: pd.DataFrame, spec: WidthSpec) -> Figure:
    """Plot the spread of the outputs along training at the first and last width, and the distance of the two models."""
    panels = []
    for width in sorted({min(table["width"]), max(table["width"])}):
        part = table[table["width"] == width].melt(
            ["step", "seed", "model"], ["q10", "q90"], var_name="quantile", value_name="output"
        )
        panels.append(
            charts.lines(
                part,
                "step",
                "output",
                "model",
                dash="quantile",
                title=f"Width x{width:g}",
                x_title="updates",
                y_title="output, 10 % and 90 %",
                points=False,
                spread=False,
            )
        )
    once = table[table["model"] == "network"]
    panels.append(
        charts.lines(
            once,
            "step",
            "distance",
            "width",
            title="Distance of output values",
            x_title="updates",
            y_title="Wasserstein distance",
            points=False,
            spread=False,
        )
    )
    return Figure(panels, caption=f"Outputs on {spec.watched} training samples along training.")


def claims(table: pd.DataFrame, spec: WidthSpec) -> list[Examined]:
    """Judge whether the statistics of the outputs become more alike with width."""
    late = table[(table["model"] == "network") & (table["step"] > 0)]
    means = late.groupby(["width", "seed"])[["distance", "path"]].mean().reset_index()
    return [
        trend(
            "The statistics of the outputs of network and linearization become more alike with width",
            means,
            "width",
            "distance",
            -1,
            paper="more alike with increasing width (supplementary figure A.2)",
        )
    ]


EXPERIMENTS = (
    Experiment(
        "samarin2022/figA2",
        "Trajectories of the outputs",
        "Output values of LeNet and LinLeNet along training, by width.",
        MNIST,
        run,
        plot,
        claims,
        {
            "tiny": "nothing beyond figure 2, whose runs it takes",
            "small": "nothing beyond figure 2",
            "paper": "nothing beyond figure 2",
        },
        (
            *DEVIATIONS,
            "The paper compares trajectories by eye; here the Wasserstein distance of the output values on the watched "
            "samples is taken, averaged over the records.",
        ),
    ),
)
