"""Figures 2 to 5: accuracy of a network and of its linearization against width."""

from collections.abc import Callable
from dataclasses import replace

import pandas as pd

from tangentlab.experiments import _charts as charts
from tangentlab.experiments._context import Context
from tangentlab.experiments._experiment import Experiment
from tangentlab.experiments._figure import Figure
from tangentlab.experiments._training import summary
from tangentlab.experiments._verdicts import Examined, greater, near, trend
from tangentlab.experiments.samarin2022 import _numbers as numbers
from tangentlab.experiments.samarin2022._setup import DEVIATIONS, WidthSpec, runs

MNIST = {
    "tiny": WidthSpec(
        preset="tiny", data="digits", pad_to=16, widths=(0.5, 1.0, 2.0), n_train=600, epochs=12, watch_every=12
    ),
    "small": WidthSpec(
        preset="small",
        data="mnist",
        pad_to=32,
        widths=(1.0, 2.0, 5.0, 10.0),
        n_train=10_000,
        epochs=15,
        watch_every=100,
    ),
    "paper": WidthSpec(preset="paper", data="mnist", pad_to=32, widths=numbers.WIDTHS, seeds=5, watch_every=2000),
}
SHIFTED = {
    "tiny": replace(MNIST["tiny"], pad_to=None, shift=4, canvas=16),
    "small": replace(MNIST["small"], pad_to=None, shift=7, canvas=35),
    "paper": replace(MNIST["paper"], pad_to=None, shift=7, canvas=35),
}
CIFAR = {
    "tiny": replace(MNIST["tiny"], decay_every=8),
    "small": replace(MNIST["small"], data="cifar10", pad_to=None, decay_every=6),
    "paper": replace(MNIST["paper"], data="cifar10", pad_to=None, decay_every=30),
}
_ALEXNET = WidthSpec(
    preset="paper",
    data="snakes",
    architecture="alexnet",
    widths=(1.0, 2.0, 3.0, 4.0),
    seeds=5,
    weight_decay=5e-6,
    linear_lr=(0.1, 1.0),
    linear_weight_decay=(5e-6, 5e-7),
    decay_every=30,
    watch_every=1000,
)
# One seed, and other images padded to the size that AlexNet needs.
_PADDED = replace(_ALEXNET, seeds=1, pad_to=64)
SNAKES = {
    "tiny": replace(
        _PADDED,
        preset="tiny",
        data="digits",
        widths=(0.04, 0.08),
        n_train=200,
        epochs=4,
        decay_every=0,
        watch_every=10,
    ),
    "small": replace(
        _PADDED,
        preset="small",
        data="cifar10",
        substitute=True,
        widths=(0.1, 0.2, 0.4),
        n_train=3000,
        n_test=2000,
        epochs=10,
        decay_every=6,
        watch_every=100,
    ),
    "paper": _ALEXNET,
}


def run(spec: WidthSpec, context: Context) -> pd.DataFrame:
    """Return one row per run: ``width``, ``seed``, ``model`` ("network" or "linearized"), ``lr``, accuracies and losses
    on both splits, ``distance_l2`` to the initial weights, ``status`` and ``seconds``."""
    units = {
        (width, seed, form, lr): unit
        for width in spec.widths
        for seed in spec.seed_list
        for (form, lr), unit in runs(spec, width, seed, context).items()
    }
    columns = ("train_accuracy", "test_accuracy", "train_loss", "test_loss", "distance_l2")
    return summary(context.results(units, "training"), ("width", "seed", "model", "lr"), columns)


def plot(table: pd.DataFrame, spec: WidthSpec) -> Figure:
    """Plot accuracy against width: test, training, and the gap between the two models."""
    shown = table.assign(series=_series(table, spec))
    panels = [
        charts.lines(
            shown,
            "width",
            f"{split}_accuracy",
            "series",
            title=f"{split.capitalize()} accuracy".replace("Train ", "Training "),
            x_title="width factor",
            y_title="accuracy",
            log_x=True,
            percent=True,
        )
        for split in ("test", "train")
    ]
    gap = gaps(table, spec).rename("gap").reset_index()
    panels.append(
        charts.lines(
            gap, "width", "gap", title="Gap in test accuracy", x_title="width factor", y_title="points", log_x=True
        )
    )
    name = {"lenet": "LeNet", "alexnet": "AlexNet"}.get(spec.architecture, spec.architecture)
    caption = f"{name} and its linearization on {spec.data}; bars are one standard deviation over seeds."
    return Figure(panels, caption=caption)


def _series(table: pd.DataFrame, spec: WidthSpec) -> "pd.Series[str]":
    if len(spec.linear_lr) == 1:
        return table["model"]
    return table["model"].where(table["model"] == "network", "linearized, lr " + table["lr"].map("{:g}".format))


def gaps(table: pd.DataFrame, spec: WidthSpec) -> "pd.Series[float]":
    """Return test accuracy of the network minus the linearization's best over learning rates, in points, by width and
    seed."""
    best = table.groupby(["width", "seed", "model"])["test_accuracy"].max().unstack()
    return 100 * (best["network"] - best["linearized"])


def claims_for(name: str) -> Callable[[pd.DataFrame, WidthSpec], list[Examined]]:
    """Return the function that judges the claims of one of the figures."""

    def claims(table: pd.DataFrame, spec: WidthSpec) -> list[Examined]:
        """Judge the gap at the ends, its fall with width, and the effect of width on each model."""
        gap = gaps(table, spec)
        best = table.groupby(["width", "seed", "model"])["test_accuracy"].max().unstack() * 100
        first, last = min(spec.widths), max(spec.widths)
        paper = numbers.GAPS[name]
        ends = sorted(paper)
        result = [
            near(
                f"The gap in test accuracy at width x{width:g}",
                "network minus linearization, points",
                gap.xs(width) if width in gap.index.get_level_values(0) else pd.Series(dtype=float),
                value,
                2.0,
                runs=5,
                unit=" points",
            )
            for width, value in paper.items()
        ]
        result.append(
            greater(
                "The network outperforms its linearization at standard width",
                f"gap in test accuracy at x{first:g}, points",
                gap.xs(first),
                paper=f"{paper[ends[0]]:g} points",
            )
        )
        statement = "The gap shrinks with width: width helps the linearization more than the network"
        words = f"{paper[ends[0]]:g} to {paper[ends[-1]]:g} points"
        result.append(trend(statement, gap.rename("gap").reset_index(), "width", "gap", -1, paper=words))
        if name == "fig4" and last >= ends[-1]:
            result.append(
                greater(
                    "The widest linearization beats the network of standard width",
                    "difference in test accuracy, points",
                    best.xs(last)["linearized"] - best.xs(first)["network"],
                    paper="LinLeNet x60 beats LeNet x1",
                )
            )
        return result

    return claims


_COST = {
    "tiny": "about 15 s on two cores",
    "small": "about 1 h on two cores",
    "paper": "days on one GPU: 100 epochs, 5 seeds, widths to x60 (216 million parameters)",
}


_ALEXNET_COST = {**_COST, "paper": "days on one GPU: 100 epochs, 5 seeds, widths to x4 (960 million parameters)"}


def _experiment(name: str, title: str, shows: str, presets: dict[str, WidthSpec], *more: str) -> Experiment:
    cost = _ALEXNET_COST if presets is SNAKES else _COST
    return Experiment(
        f"samarin2022/{name}", title, shows, presets, run, plot, claims_for(name), cost, (*DEVIATIONS, *more)
    )


EXPERIMENTS = (
    _experiment("fig2", "LeNet on MNIST against width", "Accuracy of LeNet and LinLeNet on MNIST by width.", MNIST),
    _experiment(
        "fig3",
        "LeNet on shifted MNIST against width",
        "The same with digits shifted at random by up to 7 pixels.",
        SHIFTED,
    ),
    _experiment(
        "fig4", "LeNet on CIFAR-10 against width", "Accuracy of LeNet and LinLeNet on CIFAR-10 by width.", CIFAR
    ),
    _experiment(
        "fig5",
        "AlexNet on snakes against width",
        "Accuracy of AlexNet and LinAlexNet (learning rates 0.1 and 1) on ten snake classes of ImageNet by width.",
        SNAKES,
        "The ten snake classes are unknown; see tangentlab.data.SNAKE_SYNSETS.",
        "The small preset pads CIFAR-10 to 64 x 64 in place of the snakes, and uses fractions of AlexNet's width.",
    ),
)
