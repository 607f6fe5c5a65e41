"""Figures 6, 7 and A3: effective rank and singular values of the feature matrix J against width."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from tangentlab import linalg
from tangentlab.experiments import _charts as charts
from tangentlab.experiments._context import Context
from tangentlab.experiments._experiment import Experiment
from tangentlab.experiments._figure import Figure
from tangentlab.experiments._parts import Images, Model, Weights
from tangentlab.experiments._roles import DATA_ROWS, ROWS
from tangentlab.experiments._spec import Spec
from tangentlab.experiments._verdicts import Examined, less, trend
from tangentlab.experiments.samarin2022 import _numbers as numbers
from tangentlab.experiments.samarin2022._singular_values import SingularValues, unstructured_rank


@dataclass(frozen=True, kw_only=True)
class RankSpec(Spec):
    """Networks of several widths at initialization.

    Attributes:
        sets: Data sets; ``"shifted"`` after a colon shifts the images, as in ``"mnist:shifted"``.
        architecture: ``"lenet"`` or ``"alexnet"``.
        widths: Factors.
        samples: Samples of J.
        pad_to: Side that images are padded to; None for none.
        shift: Largest shift in pixels.
        canvas: Side of the canvas of shifted images.
    """

    sets: tuple[str, ...] = field(metadata=DATA_ROWS)
    architecture: str = "lenet"
    widths: tuple[float, ...] = field(metadata=ROWS)
    samples: int = 600
    pad_to: int | None = None
    shift: int = 7
    canvas: int | None = 35

    def images(self, name: str, seed: int) -> Images:
        """Return a data set by its name in ``sets``."""
        data, _, change = name.partition(":")
        if change:
            return Images(data, self.samples, None, seed, None, self.shift, self.canvas)
        return Images(data, self.samples, None, seed, self.pad_to)


def run(spec: RankSpec, context: Context) -> pd.DataFrame:
    """Return one row per singular value shown: ``data``, ``width``, ``seed``, ``index`` (from 1), ``value``, ``share``
    (of the largest), and in every row of a matrix ``effective_rank`` (of J), ``kernel_rank`` (the effective rank of J
    J^T), ``rows``, ``parameters`` and ``condition`` (largest over smallest value above rounding)."""
    units = {}
    for name in spec.sets:
        for width in spec.widths:
            for seed in spec.seed_list:
                images = spec.images(name, seed)
                model = Model(spec.architecture, images.shape(context), 10, width, seed=seed)
                units[name, width, seed] = SingularValues(Weights(model), images, spec.samples)
    results = context.map(list(units.values()), "singular values")
    rows = []
    for (name, width, seed), result in zip(units, results, strict=True):
        values = result["values"].numpy()
        common = {
            "data": name,
            "width": width,
            "seed": seed,
            "effective_rank": linalg.effective_rank(result["values"]),
            "kernel_rank": linalg.effective_rank(result["values"] ** 2),
            "rows": len(values),
            "parameters": result["parameters"],
            "condition": float(values[0] / values[values > 0][-1]),
        }
        shown = np.unique(np.geomspace(1, len(values), 120).round().astype(int))
        rows += [
            {**common, "index": int(i), "value": float(values[i - 1]), "share": float(values[i - 1] / values[0])}
            for i in shown
        ]
    return pd.DataFrame(rows)


def _matrices(table: pd.DataFrame) -> pd.DataFrame:
    return table.drop_duplicates(["data", "width", "seed"])


def plot_ranks(table: pd.DataFrame, spec: RankSpec) -> Figure:
    """Plot effective rank and condition number against width."""
    matrices = _matrices(table)
    panel = charts.lines(
        matrices, "width", "effective_rank", "data", x_title="width factor", y_title="effective rank", log_x=True
    )
    other = charts.lines(
        matrices,
        "width",
        "condition",
        "data",
        x_title="width factor",
        y_title="condition number",
        log_x=True,
        log_y=True,
    )
    rows = int(matrices["rows"].iloc[0])
    caption = (
        f"Effective rank of J on {spec.samples} samples ({rows:,} rows) at initialization, and its condition number."
    )
    return Figure([panel, other], columns=2, caption=caption, width=340)


def plot_values(table: pd.DataFrame, spec: RankSpec) -> Figure:
    """Plot singular values by index, with one panel per data set."""
    axes: dict[str, Any] = {"x_title": "index", "y_title": "singular value / largest", "log_y": True}
    titles = {name: str(name) for name in table["data"].unique()}
    panels = charts.facets(table, "data", titles, "index", "share", "width", points=False, spread=False, **axes)
    return Figure(panels, columns=2, caption="Singular values of J, each divided by the largest.", width=340)


def claims_ranks(table: pd.DataFrame, spec: RankSpec) -> list[Examined]:
    """Judge whether the effective rank is below full rank and grows with width.

    The paper says that "these effective ranks are much lower than the number of rows, i.e. 6000" and that J "remains
    effectively of low rank". Neither its text nor its tables have a number, so no threshold on "much" can be taken from
    it. What can be decided is whether J has less than full rank in this sense. No matrix has all singular values equal;
    the reference is the rank of a matrix of the same shape with independent entries.
    """
    result = []
    for name, part in _matrices(table).groupby("data", sort=False):
        none = [
            unstructured_rank(int(rows), int(columns))
            for rows, columns in zip(part["rows"], part["parameters"], strict=True)
        ]
        largest = float((part["effective_rank"] / part["rows"]).max())
        result.append(
            less(
                f"J is effectively of low rank: lower than independent entries would be ({name})",
                "effective rank over that of a matrix of independent entries of the same shape, mean over widths (the "
                f"largest effective rank is {largest:.2f} of the rows)",
                part.assign(share=part["effective_rank"] / none).set_index(["width", "seed"])["share"],
                paper=f"effectively of low rank; much lower than {numbers.RANK_ROWS:,}",
                margin=1.0,
            )
        )
        statement = f"The effective rank grows with width ({name})"
        result.append(trend(statement, part, "width", "effective_rank", +1, paper="grows"))
    return result


def claims_values(table: pd.DataFrame, spec: RankSpec) -> list[Examined]:
    """Judge whether the small singular values grow and the condition number falls."""
    result = []
    for name, part in table.groupby("data", sort=False):
        matrices = _matrices(part)
        tail = part[part["index"] >= 0.9 * part["rows"]].groupby(["width", "seed"])["share"].mean().reset_index()
        for statement, rows, column, sign, paper in (
            ("Width raises the smallest singular values", tail, "share", +1, "increases the smallest singular values"),
            (
                "Width lowers the condition number",
                matrices,
                "condition",
                -1,
                "generally leads to a lower condition number",
            ),
        ):
            result.append(trend(f"{statement} ({name})", rows, "width", column, sign, paper=paper))
    return result


_LENET = RankSpec(preset="paper", sets=("mnist", "mnist:shifted"), widths=numbers.WIDTHS, pad_to=32)
LENET = {
    "tiny": replace(
        _LENET,
        preset="tiny",
        sets=("digits", "digits:shifted"),
        widths=(0.5, 1.0, 2.0, 4.0),
        samples=60,
        pad_to=16,
        shift=4,
        canvas=16,
    ),
    "small": replace(_LENET, preset="small", widths=(1.0, 2.0, 5.0, 10.0, 25.0)),
    "paper": _LENET,
}
_ALEXNET = RankSpec(preset="paper", sets=("snakes",), architecture="alexnet", widths=(1.0, 2.0, 3.0, 4.0))
# Other images in place of the snakes, padded to the size that AlexNet needs.
_PADDED = replace(_ALEXNET, pad_to=64)
_FRACTIONS = (0.125, 0.25, 0.5, 1.0)
ALEXNET = {
    "tiny": replace(_PADDED, preset="tiny", sets=("digits",), widths=(0.03, 0.06, 0.12), samples=24),
    "small": replace(_PADDED, preset="small", sets=("cifar10",), substitute=True, widths=_FRACTIONS, samples=200),
    "paper": _ALEXNET,
}
_LENET_COST = {
    "tiny": "a few seconds",
    "small": "about 10 min on two cores, 6,000 x 6,000 kernels in float64",
    "paper": "the same with LeNet x60 (216 million parameters): 64 GiB",
}
_ALEXNET_COST = {
    "tiny": "a few seconds",
    "small": "about 10 min on two cores",
    "paper": "AlexNet x4 has 960 million parameters: a GPU with 80 GB, or hours on 64 cores",
}
_SNAKES = "The small preset pads CIFAR-10 to 64 x 64 in place of the snakes, and uses fractions of AlexNet's width."
_WHICH = (
    "The caption of figure 6 speaks of the effective rank of J, the text of that of the kernel matrix J J^T, which is "
    "many times lower. J's is shown; the table has the kernel's too, as kernel_rank."
)

EXPERIMENTS = (
    Experiment(
        "samarin2022/fig6",
        "Effective rank against width",
        "Effective rank of J of LinLeNet for 600 samples of MNIST and of shifted MNIST, by width.",
        LENET,
        run,
        plot_ranks,
        claims_ranks,
        _LENET_COST,
        (_WHICH, "The paper's right panel, LinAlexNet on snakes, is samarin2022/figA3 here."),
    ),
    Experiment(
        "samarin2022/fig7",
        "Singular values against width",
        "Distribution of the singular values of J of LinLeNet for MNIST and shifted MNIST, by width.",
        LENET,
        run,
        plot_values,
        claims_values,
        _LENET_COST,
    ),
    Experiment(
        "samarin2022/figA3",
        "Singular values of LinAlexNet",
        "Effective rank (figure 6, right) and singular values (figure A3) of J of LinAlexNet on snakes, by width.",
        ALEXNET,
        run,
        lambda table, spec: Figure(
            [*plot_values(table, spec).panels, plot_ranks(table, spec).panels[0]],
            columns=2,
            caption="Singular values of J of LinAlexNet, and its effective rank.",
            width=340,
        ),
        lambda table, spec: [*claims_ranks(table, spec), *claims_values(table, spec)],
        _ALEXNET_COST,
        (_WHICH, _SNAKES),
    ),
)
