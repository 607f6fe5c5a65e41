"""Figures 2, 3, 10, 11, 12 and 13: networks and linearizations trained on binarized eigenfunctions of the kernel."""

from functools import partial

import numpy as np
import pandas as pd

from tangentlab.experiments import _charts as charts
from tangentlab.experiments._experiment import Experiment
from tangentlab.experiments._figure import Figure
from tangentlab.experiments._verdicts import Examined, between, greater, trend
from tangentlab.experiments.ortiz2021 import _numbers as numbers
from tangentlab.experiments.ortiz2021._eigenfunctions import (
    ADAM,
    CIFAR,
    LENET,
    MLP,
    MNIST,
    RESNET,
    EigenfunctionSpec,
    run,
)
from tangentlab.experiments.ortiz2021._forms import accuracy_falls, accuracy_panel, lead
from tangentlab.experiments.ortiz2021._setup import CIFAR2_EPOCHS, DEVIATIONS, NAMES
from tangentlab.experiments.ortiz2021._setup import RESNET as RESNET_ACTIVATION


def plot_accuracy(table: pd.DataFrame, spec: EigenfunctionSpec) -> Figure:
    """Plot test accuracy against j, with one panel per network and CIFAR2 as a dashed line."""
    panels = []
    for name in spec.models:
        part = table[table["model"] == name]
        base = part[part["task"] == "CIFAR2"].groupby("form")["test_accuracy"].mean().reset_index()
        rules = base.rename(columns={"test_accuracy": "y"}).assign(label=lambda t: "CIFAR2, " + t["form"])
        tasks = part[part["task"] == "eigenfunction"]
        panels.append(accuracy_panel(tasks, name, "j", "eigenfunction index j", rules))
    return Figure(panels, caption="Test accuracy on sign(phi_j). Dashed: the same models on CIFAR2.")


def plot_dynamics(table: pd.DataFrame, spec: EigenfunctionSpec) -> Figure:
    """Plot iterations to a training loss of 0.01 and both distances to the initial weights, against j."""
    part = table[(table["task"] == "eigenfunction") & (table["form"] == "network")]
    titles = {
        "iterations": "Iterations to loss 0.01",
        "distance_l2": "l2 distance to initialization",
        "distance_cosine": "Cosine distance to initialization",
    }
    panels = [
        charts.lines(part, "j", column, "form", title=title, x_title="eigenfunction index j", y_title="", log_x=True)
        for column, title in titles.items()
        if part[column].notna().any()
    ]
    return Figure(
        panels, caption=f"{NAMES[spec.models[0]]} trained on sign(phi_j). Runs that miss the loss are left out."
    )


def claims_accuracy(table: pd.DataFrame, spec: EigenfunctionSpec) -> list[Examined]:
    """Judge whether accuracy falls with j for both forms, and whether the linearization is ahead."""
    tasks = table[table["task"] == "eigenfunction"]
    result = []
    for name in spec.models:
        part = tasks[tasks["model"] == name]
        result += accuracy_falls(part, name, "j", "eigenfunctions", paper="accuracy falls with j")
        if len(spec.forms) == 2:
            statement = f"The linearized {NAMES[name]} is ahead of the network on eigenfunctions"
            statistic = "mean over tasks of linearized minus network, test accuracy"
            ahead = lead(part, "j", "linearized", "network")
            result.append(greater(statement, statistic, ahead, paper="a linear advantage"))
    return result


def claims_crossing(table: pd.DataFrame, spec: EigenfunctionSpec) -> list[Examined]:
    """Judge the claims of figure 2, and whether the curves of LeNet cross if the indices reach that far."""
    result = claims_accuracy(table, spec)
    part = table[(table["task"] == "eigenfunction") & (table["model"] == "lenet")]
    paper, factor = numbers.CROSSING, 3.0
    if len(spec.forms) < 2 or not part["j"].max() >= paper / factor:  # also without LeNet
        return result
    where = {seed: _crossing(lead(own, "j").droplevel("seed").sort_index()) for seed, own in part.groupby("seed")}
    result.append(
        between(
            f"The curves of LeNet and its linearization cross near j = {paper}",
            f"log10 of the index at which the difference of the two changes sign, nearest to {paper}",
            np.log10(pd.Series(where, dtype=float).rename_axis("seed")),
            float(np.log10(paper / factor)),
            float(np.log10(paper * factor)),
            paper=f"around {paper}",
            threshold=f"within a factor {factor:g} of {paper}",
        )
    )
    return result


def _crossing(difference: "pd.Series[float]") -> float:
    """Return the index, nearest to the paper's, at which a difference by j changes sign; NaN if it does not."""
    kept = difference[difference != 0]
    places = np.flatnonzero(np.diff(np.sign(kept.to_numpy()))).tolist()
    where = [float(np.sqrt(kept.index[i] * kept.index[i + 1])) for i in places]
    return min(where, key=lambda j: abs(np.log(j / numbers.CROSSING)), default=float("nan"))


def claims_dynamics(table: pd.DataFrame, spec: EigenfunctionSpec) -> list[Examined]:
    """Judge whether all three quantities grow with j.

    A run that misses the loss counts as all its updates, the least it can have needed, and so ties with the others that
    miss it.
    """
    part = table[(table["task"] == "eigenfunction") & (table["form"] == "network")]
    part = part.assign(iterations=part["iterations"].fillna(part["updates"]))
    what = {
        "iterations": "takes more iterations to a training loss of 0.01",
        "distance_l2": "ends further from its initial weights (l2)",
        "distance_cosine": "ends further from its initial weights (cosine)",
    }
    return [
        trend(f"{NAMES[spec.models[0]]} {words} on later eigenfunctions", part, "j", column, +1, paper="grows with j")
        for column, words in what.items()
    ]


_COST = {
    "tiny": "about 30 s on two cores, shared by figures 2, 3, 12 and 13",
    "small": "about 2 h on two cores; figures 12 and 13 share its runs",
    "paper": "a kernel of 60,000 samples (the authors: 32 h on 4 V100 for ResNet18), 84 runs of up to 40 min on a V100",
}
_RESNET_COST = {**_COST, "small": "about 2 h on two cores, with an eighth of ResNet18's channels"}
_SMALL_RESNET = "The small preset of figure 2 leaves ResNet18 out; that of figure 3 takes an eighth of its channels."


_DYNAMICS = "Iterations to a training loss of 0.01, and l2 and cosine distance of the weights to initialization, by j."
_experiment = partial(
    Experiment, run=run, plot=plot_accuracy, claims=claims_accuracy, cost=_COST, deviations=DEVIATIONS
)
_dynamics = partial(_experiment, shows=_DYNAMICS, plot=plot_dynamics, claims=claims_dynamics)
_ADAM = "Adam's learning rate is not stated; 0.001 is taken, falling linearly to zero."
EXPERIMENTS = (
    _experiment(
        "ortiz2021/fig2",
        "Learning eigenfunctions of the kernel",
        "Test accuracy of MLP, LeNet and ResNet18 and their linearizations on sign(phi_j).",
        CIFAR,
        deviations=(*DEVIATIONS, RESNET_ACTIVATION, CIFAR2_EPOCHS, _SMALL_RESNET),
    ),
    _dynamics(
        "ortiz2021/fig3",
        "Training dynamics, ResNet18",
        presets=RESNET,
        cost=_RESNET_COST,
        deviations=(*DEVIATIONS, RESNET_ACTIVATION),
    ),
    _experiment(
        "ortiz2021/fig10",
        "Learning eigenfunctions with Adam",
        "Figure 2 with Adam in place of SGD.",
        ADAM,
        deviations=(*DEVIATIONS, RESNET_ACTIVATION, _ADAM, _SMALL_RESNET),
    ),
    _experiment(
        "ortiz2021/fig11",
        "Learning eigenfunctions on MNIST",
        "Figure 2 on MNIST, without ResNet18.",
        MNIST,
        claims=claims_crossing,
    ),
    _dynamics("ortiz2021/fig12", "Training dynamics, MLP", presets=MLP),
    _dynamics("ortiz2021/fig13", "Training dynamics, LeNet", presets=LENET),
)
