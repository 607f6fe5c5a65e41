"""Figures 2 to 8 and Theorem 1: how far pNTK (x) I is from the eNTK, over width and training."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd
import torch

from tangentlab import analysis
from tangentlab.experiments._context import Context
from tangentlab.experiments._evidence import grid
from tangentlab.experiments._experiment import family
from tangentlab.experiments._parts import Images, Weights, inputs
from tangentlab.experiments._training import TrainingOutcome, history
from tangentlab.experiments._verdicts import Examined, greater, less
from tangentlab.experiments._work import UnitOfWork
from tangentlab.experiments.mohamadi2022 import _numbers as numbers
from tangentlab.experiments.mohamadi2022._per_architecture import (
    TrendWithWidth,
    by_epoch,
    claims_of,
    each,
    plot_of,
    regular,
)
from tangentlab.experiments.mohamadi2022._setup import DEVIATIONS, ArchitectureSpec, at, networks, train
from tangentlab.kernels import ntk


@dataclass(frozen=True)
class KernelAgreement(UnitOfWork[dict[str, float | None]]):
    """Statistics of the eNTK against the pNTK on the training points, in float64.

    Attributes:
        weights: The network.
        images: Training points of the kernels, test points of the regression.
        regression: Whether both kernel regressions are solved, with prior mean f.

    The result: a number for each name of :meth:`tangentlab.analysis.Agreement.to_dict`, and with ``regression``
    ``prediction_difference``, ``accuracy_entk``, ``accuracy_pntk`` and ``accuracy_network``.
    """

    stored_as: ClassVar[str] = "Agreement"
    shown_as: ClassVar[str] = "eNTK against pNTK, {weights.model.name} x{weights.model.width:g}"
    weights: Weights
    images: Images
    regression: bool = True

    def compute(self, context: Context) -> dict[str, float | None]:
        """Compute all statistics."""
        data = self.images.load(context)
        network = self.weights.build(context, torch.float64)
        x = inputs(data, "train").to(context.device, torch.float64)
        options: dict[str, Any] = {"progress": context.settings.progress}
        full, pseudo = ntk(network, x, **options), ntk(network, x, readout="pntk", **options)
        result: dict[str, float | None] = {**analysis.agreement(full, pseudo).to_dict()}
        if self.regression:
            x_test = inputs(data, "test").to(context.device, torch.float64)
            with torch.no_grad():
                prior, prior_test = network(x), network(x_test)
            both = analysis.regression_agreement(
                full,
                ntk(network, x_test, x, **options),
                pseudo,
                ntk(network, x_test, x, readout="pntk", **options),
                torch.nn.functional.one_hot(data.train.labels, prior.shape[1]).to(prior),
                f0=prior,
                f0_test=prior_test,
                labels=data.test.labels,
            )
            result |= {
                "prediction_difference": both.relative_difference,
                "accuracy_entk": both.entk_accuracy,
                "accuracy_pntk": both.pntk_accuracy,
                "accuracy_network": float((prior_test.argmax(1).cpu() == data.test.labels).double().mean()),
            }
        return result


def run(spec: ArchitectureSpec, context: Context) -> pd.DataFrame:
    """Return one row per network and epoch: ``architecture``, ``width``, ``seed``, ``epoch``, ``lr`` of the run,
    ``train_loss`` at that epoch, and the statistics of :class:`KernelAgreement`; ``accuracy_difference`` is pNTK minus
    eNTK. Networks whose training diverged have rows at initialization only."""
    every = networks(spec, context)
    runs = train(spec, every, context)
    units = {
        (*place, epoch): KernelAgreement(at(spec, network, epoch), spec.images(network.seed))
        for place, network in every.items()
        for epoch in spec.checkpoints
        if epoch == 0 or runs[place]["status"] == "finished"
    }
    results = context.map(list(units.values()), "kernels")
    rows = [
        {
            "architecture": name,
            "width": width,
            "seed": seed,
            "epoch": epoch,
            "lr": runs[name, width, seed]["lr"],
            "train_loss": _loss(runs[name, width, seed], epoch),
            **result,
        }
        for (name, width, seed, epoch), result in zip(units, results, strict=True)
    ]
    table = pd.DataFrame(rows)
    return table.assign(accuracy_difference=table["accuracy_pntk"] - table["accuracy_entk"])


def _loss(run: TrainingOutcome, epoch: int) -> float:
    """Return the training loss after some epochs; NaN at epoch 0 if a run diverged before its first evaluation."""
    losses = history(run)
    seen = losses.loc[losses["epoch"] == epoch, "train_loss"] if len(losses) else losses
    return float(seen.iloc[0]) if len(seen) else float("nan")


def claims_for(column: str, what: str) -> Callable[..., list[Examined]]:
    """Return the function that judges whether a difference at initialization falls with width."""
    inverse = column in ("lambda_min_relative", "prediction_difference")
    return claims_of(TrendWithWidth(f"{what} falls with width", column, -1, "decreases as width grows", inverse))


def claims_predictions(table: pd.DataFrame, spec: ArchitectureSpec) -> list[Examined]:
    """Judge whether the difference falls with width at initialization, and falls during training."""
    result = claims_for("prediction_difference", "The difference of the predictions")(table, spec)
    for name, part in each(table):
        wide, losses = by_epoch(part, "prediction_difference"), by_epoch(part, "train_loss", dropna=False)
        if spec.untrained:
            continue
        left = float((losses[losses.columns.max()] / losses[0]).median())
        unlearned = (
            f"The networks hardly learned: {100 * left:.0f} % of the training loss is left." if left > 0.5 else ""
        )
        result.append(
            less(
                f"The predictions of both kernels come together during training ({name})",
                "difference at the last epoch over that at initialization, mean over networks",
                wide[wide.columns.max()] / wide[0],
                paper="the difference quickly vanishes",
                margin=0.5,
                unmet=unlearned,
            )
        )
    return result


def claims_accuracy(table: pd.DataFrame, spec: ArchitectureSpec) -> list[Examined]:
    """Judge whether the pNTK is more accurate, where the eNTK is regular."""
    result = []
    for name, part in each(table):
        values = regular(part).set_index(["width", "epoch", "seed"])["accuracy_difference"]
        result.append(
            greater(
                f"Regression with the pNTK is more accurate than with the eNTK ({name})",
                "difference of test accuracy, pNTK minus eNTK, mean over networks and epochs",
                values,
                paper="always higher",
                unmet=""
                if grid(values).size
                else "The smallest eigenvalue of the eNTK is rounding error at every width.",
            )
        )
    return result


TINY = ArchitectureSpec(
    preset="tiny",
    data="digits",
    fcn_widths=(16, 64, 256),
    convnet_widths=(0.25, 0.5, 1.0),
    resnet18_widths=(0.25, 0.5),
    wide_resnet16_widths=(0.25, 0.5),
    n_train=30,
    n_test=60,
    epochs=20,
    checkpoints=(0, 20),
    batch_size=15,
    lr=0.05,
)
SMALL = ArchitectureSpec(
    preset="small",
    data="cifar10",
    architectures=("fcn", "convnet"),
    fcn_widths=(64, 128, 256, 512, 1024),
    convnet_widths=(0.25, 0.5, 1.0, 2.0),
    resnet18_widths=(0.25, 0.5, 1.0),
    wide_resnet16_widths=(0.25, 0.5, 1.0),
    n_train=400,
    n_test=500,
    epochs=100,
    checkpoints=(0, 100),
)
PAPER = ArchitectureSpec(
    preset="paper",
    data="cifar10",
    fcn_widths=(64, 256, 1024, 4096),
    convnet_widths=(1.0, 2.0, 4.0, 8.0, 16.0),
    resnet18_widths=(0.5, 1.0, 2.0, 4.0, 8.0),
    wide_resnet16_widths=(1.0, 2.0, 4.0, 8.0),
    n_train=numbers.POINTS,
    n_test=numbers.TEST_POINTS,
    checkpoints=numbers.EPOCHS,
    zero_init_residual=True,
    seeds=3,
)
PRESETS = {"tiny": TINY, "small": SMALL, "paper": PAPER}
_COST = {
    "tiny": "about 30 s on two cores, shared by figures 2 to 8",
    "small": "about 1 h on two cores, shared by figures 2 to 8; FCN and ConvNet",
    "paper": "kernels of 10,000 x 10,000 in float64 for 60 networks at 5 epochs: days on one GPU",
}


_experiment = family("mohamadi2022", PRESETS, run, _COST, DEVIATIONS)

EXPERIMENTS = (
    _experiment(
        "fig2",
        "Off-diagonal entries of the eNTK",
        "Ratio of off-diagonal to diagonal entries of the O x O blocks of the eNTK against width and epoch.",
        plot_of("off_diagonal", "off-diagonal / diagonal"),
        claims_for("off_diagonal", "The share of off-diagonal entries"),
    ),
    _experiment(
        "fig3",
        "Difference in Frobenius norm",
        "Relative Frobenius difference of eNTK and pNTK (x) I against width and epoch.",
        plot_of("frobenius_difference", "relative difference"),
        claims_for("frobenius_difference", "The Frobenius difference"),
    ),
    _experiment(
        "fig4",
        "Difference of the largest eigenvalue",
        "Relative difference of the largest eigenvalues of eNTK and pNTK.",
        plot_of("lambda_max_relative", "relative difference"),
        claims_for("lambda_max_relative", "The difference of the largest eigenvalues"),
    ),
    _experiment(
        "fig5",
        "Difference of the smallest eigenvalue",
        "Relative difference of the smallest eigenvalues of eNTK and pNTK.",
        plot_of("lambda_min_relative", "relative difference"),
        claims_for("lambda_min_relative", "The difference of the smallest eigenvalues"),
    ),
    _experiment(
        "fig6",
        "Difference of the condition number",
        "Relative difference of the condition numbers of eNTK and pNTK.",
        plot_of("condition_relative", "relative difference"),
        claims_for("condition_relative", "The difference of the condition numbers"),
    ),
    _experiment(
        "fig7",
        "Difference of the predictions",
        "Relative difference of the outputs of kernel regression with eNTK and pNTK, prior mean f.",
        plot_of("prediction_difference", "relative difference"),
        claims_predictions,
    ),
    _experiment(
        "fig8",
        "Difference of the test accuracy",
        "Test accuracy of kernel regression with the pNTK minus that with the eNTK.",
        plot_of("accuracy_difference", "pNTK minus eNTK", log_y=False, percent=True),
        claims_accuracy,
    ),
)
