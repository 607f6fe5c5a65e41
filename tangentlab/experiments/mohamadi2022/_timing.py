"""Figure 1: wall-clock of eNTK and pNTK of a pair of points against the depth of ResNets and the data set."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypedDict

import pandas as pd
import torch

from tangentlab.experiments import _charts as charts
from tangentlab.experiments._context import Context
from tangentlab.experiments._experiment import Experiment
from tangentlab.experiments._figure import Figure
from tangentlab.experiments._parts import Model
from tangentlab.experiments._roles import DATA_ROWS, ROWS
from tangentlab.experiments._spec import Spec
from tangentlab.experiments._verdicts import Examined, greater
from tangentlab.experiments._work import UnitOfWork
from tangentlab.kernels import ntk

# Side, channels and outputs of the data sets; the kernel of a pair of points does not depend on more.
SETS = {
    "mnist": (28, 1, 10),
    "cifar10": (32, 3, 10),
    "cifar100": (32, 3, 100),
    "digits": (8, 1, 10),
    "twenty": (8, 1, 20),
}

KERNELS: tuple[Literal["eNTK", "pNTK"], ...] = ("eNTK", "pNTK")


class PairTimeOutcome(TypedDict):
    """Seconds by kernel, and the number of parameters."""

    eNTK: float
    pNTK: float
    parameters: int


@dataclass(frozen=True)
class PairTime(UnitOfWork[PairTimeOutcome]):
    """Seconds for the kernel of one pair of points: the shortest of several repetitions, after one that does not count.

    A measurement of the machine: the result is kept like any other, for each device, and the record names the machine.

    Attributes:
        model: The network.
        repeats: Repetitions that count.
        device: Where it runs.
    """

    shown_as: ClassVar[str] = "timing {model.name}, {model.outputs} outputs"
    model: Model
    repeats: int
    device: str

    def compute(self, context: Context) -> PairTimeOutcome:
        """Time both kernels of two random points."""
        network = self.model.build().to(self.device)
        generator = torch.Generator().manual_seed(self.model.seed)
        x1, x2 = torch.randn(2, 1, *self.model.input_shape, generator=generator).to(self.device)
        return {
            "eNTK": self._seconds(lambda: ntk(network, x1, x2, check=False, progress=False)),
            "pNTK": self._seconds(lambda: ntk(network, x1, x2, readout="pntk", check=False, progress=False)),
            "parameters": sum(p.numel() for p in network.parameters()),
        }

    def _seconds(self, kernel: Callable[[], object]) -> float:
        times = []
        for _ in range(self.repeats + 1):
            start = time.perf_counter()
            kernel()
            if torch.device(self.device).type == "cuda":
                torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        return min(times[1:])


@dataclass(frozen=True, kw_only=True)
class TimingSpec(Spec):
    """ResNets of several depths.

    Attributes:
        depths: Some of 18, 34, 50, 101, 152 and 200.
        sets: Data sets whose shapes and numbers of outputs are taken; inputs are random.
        width: Factor on all channels.
        repeats: Repetitions of a measurement.
    """

    depths: tuple[int, ...] = field(metadata=ROWS)
    sets: tuple[str, ...] = field(default=("mnist", "cifar10", "cifar100"), metadata=DATA_ROWS)
    width: float = 1.0
    repeats: int = field(default=3, metadata=ROWS)


def run(spec: TimingSpec, context: Context) -> pd.DataFrame:
    """Return one row per measurement: ``seed``, ``data``, ``outputs``, ``depth``, ``parameters``, ``kernel`` ("eNTK" or
    "pNTK"), ``seconds``, and ``ratio``, eNTK over pNTK."""
    units = {}
    for name in spec.sets:
        side, channels, outputs = SETS[name]
        for depth in spec.depths:
            for seed in spec.seed_list:
                network = Model(f"resnet{depth}", (channels, side, side), outputs, spec.width, seed=seed)
                units[name, depth, seed] = PairTime(network, spec.repeats, spec.device)
    results = [context.get(unit) for unit in units.values()]  # one after another: they measure time
    return pd.DataFrame(
        [
            {
                "seed": seed,
                "data": name,
                "outputs": SETS[name][2],
                "depth": depth,
                "parameters": result["parameters"],
                "kernel": kernel,
                "seconds": result[kernel],
                "ratio": result["eNTK"] / result["pNTK"],
            }
            for (name, depth, seed), result in zip(units, results, strict=True)
            for kernel in KERNELS
        ]
    )


def plot(table: pd.DataFrame, spec: TimingSpec) -> Figure:
    """Plot seconds against depth, with one panel per data set."""
    outputs = dict(zip(table["data"], table["outputs"], strict=True))
    titles = {name: f"{name}, {count} outputs" for name, count in outputs.items()}
    axes: dict[str, Any] = {"x_title": "ResNet depth", "y_title": "seconds", "log_y": True}
    panels = charts.facets(table, "data", titles, "depth", "seconds", "kernel", **axes)
    return Figure(panels, caption="Wall-clock of the kernel of one pair of points.")


def claims(table: pd.DataFrame, spec: TimingSpec) -> list[Examined]:
    """Judge whether the pNTK is faster, by an order of magnitude, and by more for more outputs."""
    once = table[table["kernel"] == "pNTK"]
    if "seed" not in once:  # a table of one measurement each
        once = once.assign(seed=spec.seed)
    ratio = once.set_index(["data", "depth", "seed"])["ratio"]
    statistic = "ratio of wall-clocks, eNTK over pNTK, mean over depths and data sets"
    cheaper = "orders of magnitude cheaper (in JAX on a GPU)"
    result = [
        greater(
            "The pNTK of a pair of points takes less time than the eNTK", statistic, ratio, paper=cheaper, margin=1.0
        ),
        greater("The pNTK takes less time by an order of magnitude", statistic, ratio, paper=cheaper, margin=10.0),
    ]
    by_outputs = once.pivot_table(index=["depth", "seed"], columns="outputs", values="ratio")
    if len(by_outputs.columns) > 1:
        few, many = by_outputs.columns.min(), by_outputs.columns.max()
        result.append(
            greater(
                "The ratio grows with the number of outputs",
                f"ratio at {many} outputs minus that at {few}, mean over depths",
                by_outputs[many] - by_outputs[few],
                paper="costs O^2 less",
            )
        )
    return result


PRESETS = {
    "tiny": TimingSpec(preset="tiny", depths=(18, 34), sets=("digits", "twenty"), width=0.0625, repeats=3),
    "small": TimingSpec(preset="small", depths=(18, 34, 50)),
    "paper": TimingSpec(preset="paper", depths=(18, 34, 50, 101, 152, 200), device="cuda", repeats=5),
}

EXPERIMENTS = (
    Experiment(
        "mohamadi2022/fig1",
        "Cost of eNTK and pNTK",
        "Wall-clock of eNTK and pNTK of a pair of points against ResNet depth and data set.",
        PRESETS,
        run,
        plot,
        claims,
        {"tiny": "a few seconds", "small": "about 10 min on two cores", "paper": "about 10 min on a GPU"},
        (
            "Inputs are random: the time does not depend on their values.",
            "The kernels are computed by this package, not by structured derivatives in JAX.",
        ),
    ),
)
