"""Figure 8: how fast a network, its linearization and its pretrained kernel learn one eigenfunction."""

from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from tangentlab.experiments import _charts as charts
from tangentlab.experiments._context import Context
from tangentlab.experiments._experiment import Experiment
from tangentlab.experiments._figure import Figure
from tangentlab.experiments._training import Form, Training, history
from tangentlab.experiments._verdicts import Examined, greater
from tangentlab.experiments.ortiz2021._eigenfunctions import RESNET, EigenfunctionSpec, unit
from tangentlab.experiments.ortiz2021._setup import DEVIATIONS, NAMES
from tangentlab.experiments.ortiz2021._setup import RESNET as RESNET_ACTIVATION

FORMS: tuple[Form, ...] = ("network", "linearized", "pretrained")


@dataclass(frozen=True, kw_only=True)
class ConvergenceSpec(EigenfunctionSpec):
    """One network on one eigenfunction, the first of ``indices``."""


def run(spec: ConvergenceSpec, context: Context) -> pd.DataFrame:
    """Return one row per epoch: ``form`` ("network"; "linearized", at initialization; "pretrained", the unbiased
    linearization at the network's solution), ``seed``, ``epoch``, ``step``, ``train_loss``, ``train_accuracy``,
    ``test_accuracy``."""
    name, j = spec.models[0], spec.indices[0]
    units: dict[tuple[Form, int], Training] = {}
    for seed in spec.seed_list:
        network = unit(spec, name, "network", j, seed, context)
        units["network", seed] = network
        units["linearized", seed] = replace(network, form="linearized", keep=())
        units["pretrained", seed] = replace(network, form="pretrained", base=network, keep=())
    results = context.map(list(units.values()), "training")
    columns = ["epoch", "step", "train_loss", "train_accuracy", "test_accuracy"]
    parts = [
        history(result)[columns].assign(form=form, seed=seed, j=j, status=result["status"])
        for (form, seed), result in zip(units, results, strict=True)
    ]
    return pd.concat(parts, ignore_index=True)


def plot(table: pd.DataFrame, spec: ConvergenceSpec) -> Figure:
    """Plot training loss and test accuracy against epochs."""
    common: dict[str, Any] = {"x_title": "epoch", "points": False}
    loss = charts.lines(
        table, "epoch", "train_loss", "form", title="Training loss", y_title="loss", log_y=True, spread=False, **common
    )
    accuracy = charts.lines(
        table,
        "epoch",
        "test_accuracy",
        "form",
        title="Test accuracy",
        y_title="accuracy",
        percent=True,
        spread=False,
        **common,
    )
    task = f"{NAMES[spec.models[0]]} on eigenfunction {spec.indices[0]}"
    caption = f"{task}; 'pretrained' is the linear model with the kernel at the network's solution."
    return Figure([loss, accuracy], columns=2, caption=caption, width=340)


def epochs_to(table: pd.DataFrame, form: str, seed: int, loss: float) -> float:
    """Return the first epoch whose training loss is at most the given one; infinity if there is none."""
    part = table[(table["form"] == form) & (table["seed"] == seed) & (table["train_loss"] <= loss)]
    return float(part["epoch"].min()) if len(part) else float("inf")


def claims(table: pd.DataFrame, spec: ConvergenceSpec) -> list[Examined]:
    """Judge whether network and pretrained kernel converge much faster than the initial kernel, and generalize
    worse."""
    last = table[table["epoch"] == table["epoch"].max()].set_index(["form", "seed"])
    seeds = [int(seed) for seed in sorted(table["seed"].unique())]
    result = []
    for form, name in (("network", "The network"), ("pretrained", "The pretrained kernel")):
        speeds = {}
        for seed in seeds:
            target = float(last.loc[("linearized", seed), "train_loss"])
            own = epochs_to(table, "linearized", seed, target)
            speeds[seed] = max(own, 1.0) / max(epochs_to(table, form, seed, target), 1.0)
        result.append(
            greater(
                f"{name} converges much faster than the linearization at initialization",
                "epochs until the linearization's final training loss: the linearization's over its own (0 for never)",
                pd.Series(speeds, dtype=float).rename_axis("seed"),
                paper="converges much faster",
                margin=2.0,
            )
        )
        result.append(
            greater(
                f"{name} generalizes worse than the linearization at initialization",
                "test accuracy of the linearization minus its own",
                last.loc["linearized", "test_accuracy"] - last.loc[form, "test_accuracy"],
                paper="a much lower test accuracy",
            )
        )
    return result


def _spec(base: EigenfunctionSpec, j: int) -> ConvergenceSpec:
    return ConvergenceSpec(**{**vars(base), "indices": (j,)})


PRESETS = {
    "tiny": _spec(RESNET["tiny"], 100),
    "small": _spec(RESNET["small"], 256),
    "paper": _spec(RESNET["paper"], 400),
}

EXPERIMENTS = (
    Experiment(
        "ortiz2021/fig8",
        "Speed of convergence of three models",
        "Training loss and test accuracy on sign(phi_400): ResNet18, its linearization, and its pretrained kernel.",
        PRESETS,
        run,
        plot,
        claims,
        {
            "tiny": "about 10 s on two cores",
            "small": "about 2 h on two cores, with an eighth of ResNet18's channels, on phi_256",
            "paper": "about 3 h on a V100 beyond the kernel of figure 2",
        },
        (*DEVIATIONS, RESNET_ACTIVATION),
    ),
)
