"""Figure 6 and Table 1: energy concentration of the labels on the kernel's leading eigenvectors."""

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypedDict

import pandas as pd
import torch

from tangentlab import analysis, linalg
from tangentlab._errors import TangentError
from tangentlab.experiments import _charts as charts
from tangentlab.experiments._context import Context
from tangentlab.experiments._experiment import Experiment
from tangentlab.experiments._figure import Figure
from tangentlab.experiments._parts import FirstFive, LabeledImages, Weights
from tangentlab.experiments._roles import CHECKPOINTS
from tangentlab.experiments._training import Training, TrainingOutcome, final
from tangentlab.experiments._verdicts import Examined, greater, near
from tangentlab.experiments._work import UnitOfWork
from tangentlab.experiments.ortiz2021 import _numbers as numbers
from tangentlab.experiments.ortiz2021._setup import (
    CIFAR2_EPOCHS,
    DEVIATIONS,
    NAMES,
    RESNET,
    BinarySpec,
    model,
    training,
)
from tangentlab.kernels import ntk

# Differences to the paper's numbers that do not matter, in points of a percentage.
TOLERANCE = {"init": 2.0, "end": 5.0, "test_accuracy": 2.0}


class EnergyOutcome(TypedDict):
    """The energy as a fraction, the largest eigenvalue, and the size of the kernel."""

    energy: float
    largest: float
    samples: int


@dataclass(frozen=True)
class Energy(UnitOfWork[EnergyOutcome]):
    """||Phi_K y|| / ||y|| of the training labels on the first K eigenvectors of a network's kernel.

    Attributes:
        weights: The network.
        problem: Whose training images and labels are drawn, every class in proportion.
        samples: How many.
        k: K.
        draw: Seed of the draw.
    """

    shown_as: ClassVar[str] = "energy concentration of {weights.model.name}"
    weights: Weights
    problem: LabeledImages
    samples: int
    k: int
    draw: int

    def compute(self, context: Context) -> EnergyOutcome:
        """Compute the kernel, K eigenpairs and the energy."""
        drawn = self.problem.load(context).train.subset(self.samples, self.draw)
        x, y = drawn.inputs(), drawn.targets
        kernel = ntk(self.weights.build(context), x.to(context.device), readout=0, progress=context.settings.progress)
        spectrum = linalg.eigh(kernel, self.k, progress=context.settings.progress)
        energy = analysis.energy_concentration(spectrum, y[:, 0].to(kernel.device, torch.float64), self.k)
        return {"energy": float(energy), "largest": float(spectrum.values[0]), "samples": len(x)}


@dataclass(frozen=True, kw_only=True)
class EnergySpec(BinarySpec):
    """Kernels along training on CIFAR2.

    Attributes:
        samples: Training samples of the kernels.
        k: Eigenvectors.
        checkpoints: Epochs at which the kernel is taken; 0 is initialization.
    """

    samples: int
    k: int = 50
    checkpoints: tuple[int, ...] = field(metadata=CHECKPOINTS)

    def __post_init__(self) -> None:
        super().__post_init__()
        if 0 not in self.checkpoints or max(self.checkpoints) > self.epochs:
            raise TangentError(
                f"Checkpoints {self.checkpoints} do not begin at initialization and end within {self.epochs} epochs.",
                remedy=f"Use --set checkpoints=0,{self.epochs}.",
            )
        if self.k > self.samples:
            raise TangentError(f"{self.k} eigenvectors of {self.samples} samples.", remedy="Take more samples.")


def run(spec: EnergySpec, context: Context) -> pd.DataFrame:
    """Return one row per network, seed and epoch: ``model``, ``seed``, ``epoch``, ``energy`` (a fraction),
    ``test_accuracy`` and ``train_accuracy`` of the network at that epoch, missing between evaluations. A seed
    determines weights, minibatches, and which images the kernel is of. Nothing is trained if the only checkpoint
    is 0."""
    later = tuple(epoch for epoch in spec.checkpoints if epoch)
    runs: dict[tuple[str, int], Training] = {}
    units: dict[tuple[str, int, int], Energy] = {}
    for name in spec.models:
        for seed in spec.seed_list:
            network = model(spec, name, seed, context, trained=True)
            problem = LabeledImages(spec.images(seed), FirstFive())
            if later:
                every = math.gcd(spec.epochs, *later)
                runs[name, seed] = Training(network, problem, training(spec, seed, every=every), keep=later)
            for epoch in spec.checkpoints:
                point = Weights(network, runs[name, seed], epoch) if epoch else Weights(network)
                units[name, seed, epoch] = Energy(point, problem, spec.samples, spec.k, seed)
    context.compute([*runs.values(), *units.values()], "energy concentration")
    trained = context.results(runs)
    rows = []
    for (name, seed, epoch), result in context.results(units).items():
        outcome = trained.get((name, seed))
        rows.append(
            {
                "model": name,
                "seed": seed,
                "epoch": epoch,
                "energy": result["energy"],
                "test_accuracy": _at(outcome, epoch, "test_accuracy"),
                "train_accuracy": _at(outcome, epoch, "train_accuracy"),
                "final_accuracy": math.nan if outcome is None else final(outcome).get("test_accuracy", math.nan),
            }
        )
    return pd.DataFrame(rows)


def _at(outcome: TrainingOutcome | None, epoch: int, column: str) -> float:
    """Return a column of a run's history at an epoch; NaN between evaluations, and where nothing was trained."""
    epochs = [] if outcome is None else outcome["history"]["epoch"]
    return math.nan if outcome is None or epoch not in epochs else outcome["history"][column][epochs.index(epoch)]


def plot_curve(table: pd.DataFrame, spec: EnergySpec) -> Figure:
    """Plot energy concentration against epochs."""
    table = table.assign(model=table["model"].map(NAMES))
    titles = {"energy": "Energy concentration", "test_accuracy": "Test accuracy"}
    panels = [
        charts.lines(table, "epoch", column, "model", y_title=title.lower(), percent=True, title=title)
        for column, title in titles.items()
        if table[column].notna().any()
    ]
    caption = f"Energy of {spec.samples:,} training labels on the first {spec.k} eigenvectors of the kernel."
    return Figure(panels, columns=2, caption=caption, width=340)


def plot_table(table: pd.DataFrame, spec: EnergySpec) -> Figure:
    """Plot energy at initialization and at the end, and test accuracy, next to the paper's if the data are the same."""
    rows, same = [], spec.data == "cifar10"
    for row in _summary(table).itertuples():
        for quantity, label in (("init", "start"), ("end", "end"), ("test_accuracy", "accuracy")):
            common = {"model": NAMES[str(row.Index)], "quantity": label}
            rows.append({**common, "source": "ours", "value": getattr(row, quantity)})
            if same:
                rows.append({**common, "source": "paper", "value": numbers.TABLE1[str(row.Index)][quantity] / 100})
    long = pd.DataFrame(rows)
    panels = [
        charts.bars(part, "quantity", "value", "source", title=str(name), x_title="", y_title="", percent=True)
        for name, part in long.groupby("model", sort=False)
    ]
    task = (
        "on CIFAR2; paper beside ours" if same else f"on the first half of the classes of {spec.data} against the rest"
    )
    return Figure(panels, caption=f"Energy concentration (K = {spec.k}) and test accuracy {task}.")


def _summary(table: pd.DataFrame) -> pd.DataFrame:
    last = table["epoch"].max()
    means = table.groupby(["model", "epoch"], sort=False)["energy"].mean().unstack()
    accuracy = table.groupby("model", sort=False)["final_accuracy"].mean()
    end = means[last] if last else float("nan")
    return pd.DataFrame({"init": means[0], "end": end, "test_accuracy": accuracy}).loc[
        list(dict.fromkeys(table["model"]))
    ]


def claims_curve(table: pd.DataFrame, spec: EnergySpec) -> list[Examined]:
    """Judge whether the energy concentration grows during training."""
    result: list[Examined] = []
    if not max(spec.checkpoints):
        return result
    for name in spec.models:
        part = table[table["model"] == name].pivot_table(index="seed", columns="epoch", values="energy")
        result.append(
            greater(
                f"The energy concentration of {NAMES[name]} grows during training",
                "energy at the last epoch minus energy at initialization, points",
                100 * (part[part.columns.max()] - part[0]),
                paper=f"{numbers.TABLE1[name]['end'] - numbers.TABLE1[name]['init']:.1f} points (table 1)",
                margin=5.0,
            )
        )
    return result


def claims_table(table: pd.DataFrame, spec: EnergySpec) -> list[Examined]:
    """Judge the growth and the table's numbers, each of one run."""
    result = claims_curve(table, spec)
    last = table["epoch"].max()
    names = {
        "init": ("Energy concentration of {} at initialization", table[table["epoch"] == 0], "energy"),
        "end": ("Energy concentration of {} after training", table[(table["epoch"] == last) & (last > 0)], "energy"),
        "test_accuracy": ("Test accuracy of {} on CIFAR2", table[table["epoch"] == last], "final_accuracy"),
    }
    for name in spec.models:
        for quantity, (text, rows, column) in names.items():
            values = rows[rows["model"] == name].set_index("seed")[column]
            published = numbers.TABLE1[name][quantity]
            what = text.format(NAMES[name])
            result.append(near(what, "percent", 100 * values, published, TOLERANCE[quantity], unit=" %"))
    return result


_CURVE = EnergySpec(
    preset="paper",
    data="cifar10",
    models=("lenet",),
    samples=10_000,
    epochs=200,
    checkpoints=(0, 1, 2, 5, 10, 20, 50, 100, 150, 200),
)
_DIGITS: dict[str, Any] = {"preset": "tiny", "data": "digits", "k": 10}
CURVE = {
    "tiny": replace(
        _CURVE, **_DIGITS, n_train=800, samples=400, epochs=16, batch_size=32, checkpoints=(0, 1, 2, 4, 8, 16)
    ),
    "small": replace(_CURVE, preset="small", epochs=40, checkpoints=(0, 1, 2, 5, 10, 20, 40)),
    "paper": _CURVE,
}
_TABLE = EnergySpec(
    preset="paper",
    data="cifar10",
    samples=12_000,
    epochs=200,
    checkpoints=(0, 200),
    seeds=3,
    resnet_activation="gelu",
)
_ONE_SEED = replace(_TABLE, seeds=1, resnet_activation="relu")
TABLE = {
    "tiny": replace(
        _ONE_SEED,
        **_DIGITS,
        resnet_width=0.0625,
        n_train=640,
        samples=300,
        epochs=12,
        batch_size=64,
        checkpoints=(0, 12),
    ),
    "small": replace(_ONE_SEED, preset="small", models=("mlp", "lenet")),
    "paper": _TABLE,
}
_DRAWN = "The samples of a kernel are a class-stratified draw of the training images, as in the authors' code."

EXPERIMENTS = (
    Experiment(
        "ortiz2021/fig6",
        "Energy concentration along training",
        "Energy concentration of 10,000 CIFAR2 labels on the first 50 eigenvectors of LeNet's kernel by epoch.",
        CURVE,
        run,
        plot_curve,
        claims_curve,
        {
            "tiny": "about 3 s",
            "small": "about 30 min on two cores, most of it training LeNet on 50,000 images",
            "paper": "about 1 h on a GPU",
        },
        (*DEVIATIONS, CIFAR2_EPOCHS, _DRAWN),
    ),
    Experiment(
        "ortiz2021/table1",
        "Energy concentration and test accuracy on CIFAR2",
        "Energy concentration (K = 50, 12,000 samples) at initialization and after 200 epochs, and test accuracy.",
        TABLE,
        run,
        plot_table,
        claims_table,
        {
            "tiny": "about 10 s on two cores",
            "small": "MLP 10 min, LeNet 1.5 h on two cores, as published but for ResNet18 and the seeds",
            "paper": "hours on a GPU; ResNet18's kernels dominate",
        },
        (*DEVIATIONS, CIFAR2_EPOCHS, RESNET, _DRAWN, "The small preset leaves ResNet18 out and takes one seed."),
    ),
)
