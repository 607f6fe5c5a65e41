"""Figure 5: networks and linearizations on CIFAR2 against the size of the training set."""

from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from tangentlab.experiments import _charts as charts
from tangentlab.experiments._context import Context
from tangentlab.experiments._experiment import Experiment
from tangentlab.experiments._figure import Figure
from tangentlab.experiments._parts import FirstFive, LabeledImages
from tangentlab.experiments._roles import SIZES
from tangentlab.experiments._training import Training, summary
from tangentlab.experiments._verdicts import Examined, trend
from tangentlab.experiments.ortiz2021._forms import FORMS, accuracy_panel, lead
from tangentlab.experiments.ortiz2021._setup import (
    CIFAR2_EPOCHS,
    DEVIATIONS,
    NAMES,
    RESNET,
    BinarySpec,
    model,
    training,
)


@dataclass(frozen=True, kw_only=True)
class SizeSpec(BinarySpec):
    """Training sets of several sizes.

    Attributes:
        sizes: Training images.
    """

    sizes: tuple[int, ...] = field(metadata=SIZES)


def run(spec: SizeSpec, context: Context) -> pd.DataFrame:
    """Return one row per run: ``model``, ``form``, ``size``, ``seed``, ``test_accuracy``, ``train_accuracy``,
    ``distance_l2``, ``distance_cosine``, ``status`` and ``seconds``. A seed determines weights, minibatches and the
    subset."""
    units = {}
    for name in spec.models:
        for form in FORMS:
            for size in spec.sizes:
                for seed in spec.seed_list:
                    problem = LabeledImages(replace(spec.images(seed), n_train=size, seed=seed), FirstFive())
                    units[name, form, size, seed] = Training(
                        model(spec, name, seed, context, trained=True), problem, training(spec, seed), form
                    )
    columns = ("test_accuracy", "train_accuracy", "distance_l2", "distance_cosine")
    return summary(context.results(units, "training"), ("model", "form", "size", "seed"), columns)


def plot(table: pd.DataFrame, spec: SizeSpec) -> Figure:
    """Plot test accuracy above and distance to initialization below, with one column per network."""
    parts = {name: table[table["model"] == name] for name in spec.models}
    accuracy = [accuracy_panel(part, name, "size", "training images") for name, part in parts.items()]
    axes: dict[str, Any] = {"x_title": "training images", "y_title": "distance to initialization", "log_x": True}
    distance = [charts.lines(part, "size", "distance_l2", "form", **axes) for part in parts.values()]
    caption = "CIFAR2 with training sets of different sizes; bars are one standard deviation over seeds."
    return Figure([*accuracy, *distance], columns=len(spec.models), caption=caption)


def claims(table: pd.DataFrame, spec: SizeSpec) -> list[Examined]:
    """Judge whether the non-linear advantage and the distance grow with the training set."""
    result = []
    for name in spec.models:
        part = table[table["model"] == name]
        advantage = lead(part, "size").rename("advantage").reset_index()
        grows = f"The advantage of {NAMES[name]} over its linearization grows with the training set"
        paper = "mostly appears when training on larger data sets"
        result.append(trend(grows, advantage, "size", "advantage", +1, paper=paper))
        further = f"{NAMES[name]} ends further from its initial weights on larger training sets"
        network = part[part["form"] == "network"]
        result.append(trend(further, network, "size", "distance_l2", +1, paper="grows with the training set"))
    return result


PAPER = SizeSpec(
    preset="paper",
    data="cifar10",
    sizes=(500, 1000, 2000, 5000, 10_000, 20_000, 50_000),
    seeds=5,
    epochs=200,
    resnet_activation="gelu",
)
_TWO = replace(PAPER, models=("mlp", "lenet"), resnet_activation="relu")
PRESETS = {
    "tiny": replace(_TWO, preset="tiny", data="digits", sizes=(100, 200, 400, 800), seeds=2, epochs=10, batch_size=32),
    "small": replace(_TWO, preset="small", sizes=(500, 1000, 2000, 4000, 8000), seeds=3, epochs=50, n_test=5000),
    "paper": PAPER,
}

EXPERIMENTS = (
    Experiment(
        "ortiz2021/fig5",
        "The non-linear advantage against sample size",
        "Test accuracy and distance to initialization on CIFAR2 against the number of training images.",
        PRESETS,
        run,
        plot,
        claims,
        {
            "tiny": "about 10 s on two cores",
            "small": "about 2 h on two cores, MLP and LeNet",
            "paper": "210 runs of up to 80 min on a V100",
        },
        (
            *DEVIATIONS,
            RESNET,
            CIFAR2_EPOCHS,
            "The sizes are read off the figure's axis.",
            "The tiny and small presets leave ResNet18 out.",
        ),
    ),
)
