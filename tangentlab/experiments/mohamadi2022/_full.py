"""Figures 9 to 12: kernel regression with the pNTK on the whole data set, over width and training."""

from dataclasses import dataclass, replace
from typing import ClassVar, TypedDict

import pandas as pd
import torch
import torch.nn.functional as F

from tangentlab import linalg
from tangentlab.experiments._context import Context
from tangentlab.experiments._experiment import family
from tangentlab.experiments._kernels import gram
from tangentlab.experiments._parts import Images, Weights, inputs
from tangentlab.experiments._verdicts import Examined, greater, trend
from tangentlab.experiments._work import UnitOfWork
from tangentlab.experiments.mohamadi2022._agreement import PAPER, SMALL, TINY
from tangentlab.experiments.mohamadi2022._per_architecture import (
    ChangeInTraining,
    TrendWithWidth,
    by_epoch,
    claims_of,
    each,
    plot_of,
)
from tangentlab.experiments.mohamadi2022._setup import DEVIATIONS, ArchitectureSpec, at, networks, train
from tangentlab.kernels import ntk

DOUBLE = 20_000
"""Points up to which kernels are in float64."""


class RegressionOutcome(TypedDict):
    """Accuracies of the regression and of the network, and how the system was solved."""

    pntk_accuracy: float
    network_accuracy: float
    method: str
    rank: int
    ridge: float


@dataclass(frozen=True)
class PseudoRegression(UnitOfWork[RegressionOutcome]):
    """Kernel regression with the pNTK and prior mean f on one-hot labels (equation 6).

    Attributes:
        weights: The network.
        images: Training and test points.
        double: Whether the kernel is computed in float64. float32 halves its memory, and takes a ridge of
            sqrt(n) eps tr K / n: rounding of the entries moves the eigenvalues by about so much, and could make the
            smallest negative.

    The result: ``pntk_accuracy``, ``network_accuracy``, ``method``, ``rank`` and ``ridge``.
    """

    shown_as: ClassVar[str] = "pNTK regression, {weights.model.name} x{weights.model.width:g}"
    weights: Weights
    images: Images
    double: bool = True

    def compute(self, context: Context) -> RegressionOutcome:
        """Compute the kernel, the solution and the accuracies."""
        data = self.images.load(context)
        dtype = torch.float64 if self.double else torch.float32
        network = self.weights.build(context, dtype)
        x, x_test = (inputs(data, rows).to(context.device, dtype) for rows in ("train", "test"))
        progress = context.settings.progress
        with torch.no_grad():
            prior, prior_test = (
                torch.cat([network(part) for part in each.split(512)]).double() for each in (x, x_test)
            )
        kernel = gram(self, context, network, x, "pntk")
        targets = F.one_hot(data.train.labels, prior.shape[1]).double().to(prior.device)
        ridge = 0.0 if self.double else torch.finfo(dtype).eps * linalg.trace(kernel) / len(x) ** 0.5
        fit = linalg.regress(kernel, targets, f0=prior, ridge=ridge, progress=progress)
        del kernel
        cross = ntk(network, x_test, x, readout="pntk", progress=progress)
        outputs, labels = fit.predict(cross, f0=prior_test).cpu(), data.test.labels
        return {
            "pntk_accuracy": float((outputs.argmax(1) == labels).double().mean()),
            "network_accuracy": float((prior_test.cpu().argmax(1) == labels).double().mean()),
            "method": str(fit.method),
            "rank": int(fit.rank),
            "ridge": float(fit.ridge),
        }


def run(spec: ArchitectureSpec, context: Context) -> pd.DataFrame:
    """Return one row per network and epoch: ``architecture``, ``width``, ``seed``, ``epoch``, ``pntk_accuracy``,
    ``network_accuracy``, ``difference`` (pNTK minus the network at that epoch), ``final_accuracy`` (of the network at
    the end) and ``final_difference`` (pNTK minus that)."""
    double = spec.n_train is not None and spec.n_train <= DOUBLE
    every = networks(spec, context)
    alive = [place for place, outcome in train(spec, every, context).items() if outcome["status"] == "finished"]
    units = {
        (*place, epoch): PseudoRegression(at(spec, every[place], epoch), spec.images(place[2]), double)
        for place in alive
        for epoch in spec.checkpoints
    }
    results = context.map(list(units.values()), "pNTK regression")
    rows = [
        {"architecture": name, "width": width, "seed": seed, "epoch": epoch, **result}
        for (name, width, seed, epoch), result in zip(units, results, strict=True)
    ]
    table = pd.DataFrame(rows)
    last = table[table["epoch"] == max(spec.checkpoints)].set_index(["architecture", "width", "seed"])[
        "network_accuracy"
    ]
    final = table.set_index(["architecture", "width", "seed"]).index.map(last)
    return table.assign(
        difference=table["pntk_accuracy"] - table["network_accuracy"],
        final_accuracy=final,
        final_difference=table["pntk_accuracy"] - final,
    )


claims_pntk = claims_of(
    TrendWithWidth("Regression with the pNTK improves with width", "pntk_accuracy", +1, "improves, and saturates"),
    ChangeInTraining(
        "Trained weights improve regression with the pNTK", "test accuracy", "pntk_accuracy", "improved test accuracy"
    ),
)


def claims_network(table: pd.DataFrame, spec: ArchitectureSpec) -> list[Examined]:
    """Judge whether the network gains less from width than the regression does."""
    result: list[Examined] = []
    for name, part in each(table):
        if spec.untrained:
            continue
        kernel, network = (by_epoch(part, f"{what}_accuracy") for what in ("pntk", "network"))
        lead = (kernel[0] - network[network.columns.max()]).rename("lead").reset_index()
        statement = f"The network gains less from width than regression with its initial pNTK ({name})"
        paper = "does not significantly improve with growing width"
        result.append(trend(statement, lead, "width", "lead", +1, paper=paper))
    return result


_shrinks = ChangeInTraining(
    "The lead shrinks during training", "difference", "difference", "close to zero after training", falls=True
)


def claims_difference(table: pd.DataFrame, spec: ArchitectureSpec) -> list[Examined]:
    """Judge whether the regression is ahead at initialization, and whether its lead shrinks."""
    result = []
    for name, part in each(table):
        statement = f"At initialization the regression is ahead of the untrained network ({name})"
        statistic = "pNTK minus network, test accuracy, mean over networks"
        start = part[part["epoch"] == 0].set_index(["width", "seed"])["difference"]
        result.append(greater(statement, statistic, start, paper="far ahead at epoch 0"))
        result.append(_shrinks.judge(name, part, spec))
    return result


_closes = claims_of(
    TrendWithWidth(
        "The gap to the final network falls with width", "gap", -1, "becomes more accurate as width grows", trained=True
    ),
    ChangeInTraining(
        "The gap to the final network closes during training",
        "difference to the final network",
        "final_difference",
        "closes",
    ),
)


def claims_final(table: pd.DataFrame, spec: ArchitectureSpec) -> list[Examined]:
    """Judge whether the gap to the final network closes with training, and at initialization with width."""
    return _closes(table.assign(gap=-table["final_difference"]), spec)


PRESETS = {
    "tiny": replace(
        TINY,
        n_train=300,
        n_test=200,
        epochs=8,
        checkpoints=(0, 4, 8),
        batch_size=50,
        fcn_widths=(16, 64, 256),
        convnet_widths=(0.5, 1.0),
        resnet18_widths=(0.25, 0.5),
        wide_resnet16_widths=(0.25, 0.5),
    ),
    "small": replace(
        SMALL,
        resnet18_widths=(0.5,),
        wide_resnet16_widths=(0.5,),
        n_train=4000,
        n_test=2000,
        epochs=30,
        checkpoints=(0, 15, 30),
    ),
    "paper": replace(PAPER, n_train=None, n_test=None),
}
_COST = {
    "tiny": "about 20 s on two cores, shared by figures 9 to 12",
    "small": "about 2 h on two cores, shared by figures 9 to 12; FCN and ConvNet on 4,000 images",
    "paper": "kernels of 50,000 x 50,000 for 54 networks at 5 epochs: a machine of 64 GiB and days of a GPU",
}

_NOTES = (
    *DEVIATIONS,
    f"Above {DOUBLE:,} points kernels are in float32 with a ridge at the level of their rounding, "
    "sqrt(n) eps times the mean of the diagonal.",
)


_experiment = family("mohamadi2022", PRESETS, run, _COST, _NOTES)

EXPERIMENTS = (
    _experiment(
        "fig9",
        "Regression with the pNTK on all data",
        "Test accuracy of kernel regression with the pNTK on CIFAR-10 over width and epoch.",
        plot_of("pntk_accuracy", "test accuracy", log_y=False, percent=True),
        claims_pntk,
    ),
    _experiment(
        "fig10",
        "The network's own accuracy",
        "Test accuracy of the network along training, by width.",
        plot_of("network_accuracy", "test accuracy", log_y=False, percent=True),
        claims_network,
    ),
    _experiment(
        "fig11",
        "Regression against the network of the same epoch",
        "Test accuracy of regression with the pNTK minus that of the network at the same epoch.",
        plot_of("difference", "pNTK minus network", log_y=False, percent=True),
        claims_difference,
    ),
    _experiment(
        "fig12",
        "Regression against the final network",
        "Test accuracy of regression with the pNTK minus that of the network at the end of training.",
        plot_of("final_difference", "pNTK minus final network", log_y=False, percent=True),
        claims_final,
    ),
)
