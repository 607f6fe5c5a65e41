"""Tables 1 and 2: binary MNIST by network SGD, linearized SGD and a direct least-squares solver."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from tangentlab._errors import TangentError
from tangentlab.experiments import _charts as charts
from tangentlab.experiments._context import Context
from tangentlab.experiments._experiment import Experiment
from tangentlab.experiments._figure import Figure
from tangentlab.experiments._parts import LabeledImages, OneVsRest, Weights
from tangentlab.experiments._roles import ROWS, SIZES
from tangentlab.experiments._training import Training, final
from tangentlab.experiments._verdicts import Examined, greater, identity, near
from tangentlab.experiments.samarin2022 import _numbers as numbers
from tangentlab.experiments.samarin2022._setup import DEVIATIONS, WidthSpec, model, runs
from tangentlab.experiments.samarin2022._solver import TARGETS, Solver


@dataclass(frozen=True, kw_only=True)
class SolverSpec(WidthSpec):
    """Networks trained by SGD and by the solver.

    Attributes:
        methods: Some of ``"network"``, ``"linearized"`` and ``"solver"``.
        solver_sizes: Training points of the solver, each a solution; 0 for all. SGD takes all.
        solver_cutoff: Singular values of J below this share of the largest count as zero, as in LAPACK; 0 for none.
    """

    methods: tuple[str, ...] = field(default=("network", "linearized", "solver"), metadata=ROWS)
    solver_sizes: tuple[int, ...] = field(default=(0,), metadata=SIZES)
    solver_cutoff: float = 0.0

    @property
    def trains(self) -> bool:
        """Whether anything is trained: the solver trains nothing."""
        return set(self.methods) != {"solver"}

    def __post_init__(self) -> None:
        super().__post_init__()
        unknown = sorted(set(self.methods) - {"network", "linearized", "solver"})
        if unknown or not self.methods:
            raise TangentError(
                f"There is no method {unknown[0] if unknown else ''!r} here.",
                remedy="Choose of network, linearized and solver.",
            )
        if self.n_train is not None and max(self.solver_sizes) > self.n_train:
            raise TangentError(
                f"solver_sizes reaches {max(self.solver_sizes):,} of {self.n_train:,} training points.",
                remedy="Use 0 for all of them.",
            )


def run(spec: SolverSpec, context: Context) -> pd.DataFrame:
    """Return one row per width, seed, method and size: ``width``, ``seed``, ``method`` ("network", "linearized" or
    "solver"), ``size`` (training points), ``train_accuracy``, ``test_accuracy``; for the solver ``rank``,
    ``iterations``, ``residual`` and ``norm``; and ``paper_train`` and ``paper_test`` in percent, if the paper has them
    and the training set is complete."""
    places = [(width, seed) for width in spec.widths for seed in spec.seed_list]
    whole = len(spec.images(spec.seed).load(context).train)
    order: list[tuple[float, int, str, int]] = []
    trainings: dict[tuple[float, int, str, int], Training] = {}
    solvers: dict[tuple[float, int, str, int], Solver] = {}
    for width, seed in places:
        for (form, _), unit in runs(spec, width, seed, context, binary=True).items():
            if form in spec.methods:
                order.append((width, seed, form, whole))
                trainings[order[-1]] = unit
        if "solver" in spec.methods:
            start = Weights(model(spec, width, seed, context, outputs=1))
            problem = LabeledImages(spec.images(seed), OneVsRest(0, TARGETS))
            for size in spec.solver_sizes:
                order.append((width, seed, "solver", size or whole))
                solvers[order[-1]] = Solver(start, problem, size or None, spec.solver_cutoff)
    context.compute([*trainings.values(), *solvers.values()], "binary tasks")
    solved, trained = context.results(solvers), context.results(trainings)
    found: dict[tuple[float, int, str, int], Mapping[str, Any]] = {**solved}
    found |= {place: final(result) for place, result in trained.items()}
    rows = []
    for width, seed, method, size in dict.fromkeys(order):
        columns = ("train_accuracy", "test_accuracy", "rank", "iterations", "residual", "norm")
        rows.append(
            {
                "width": width,
                "seed": seed,
                "method": method,
                "size": size,
                **{name: found[width, seed, method, size].get(name, float("nan")) for name in columns},
                **_published(spec, method, width, size == whole),
            }
        )
    return pd.DataFrame(rows)


def _published(spec: WidthSpec, method: str, width: float, whole: bool) -> dict[str, float]:
    source = numbers.TABLE2 if spec.shift else numbers.TABLE1
    if width not in numbers.WIDTHS or not whole:
        return {"paper_train": float("nan"), "paper_test": float("nan")}
    place = numbers.WIDTHS.index(width)
    values = {f"paper_{split}": source[split][method][place] for split in ("train", "test")}
    return {name: float("nan") if value is None else value for name, value in values.items()}


def plot(table: pd.DataFrame, spec: SolverSpec) -> Figure:
    """Plot accuracy by method against width, if there are several widths, and the solver's against its training points,
    if there are several sizes; for both splits, with the paper's numbers as dashed lines."""
    splits = (("test", "Test accuracy"), ("train", "Training accuracy"))
    common: dict[str, Any] = {"y_title": "accuracy", "log_x": True, "percent": True}
    solver = table[table["method"] == "solver"]
    solver = solver.assign(series=solver["width"].map("x{:g}".format))
    by_size = solver["size"].nunique() > 1
    panels = []
    if table["width"].nunique() > 1 or not by_size:
        shown = _largest(table)
        panels += [
            charts.lines(
                _beside_paper(shown, split),
                "width",
                f"{split}_accuracy",
                "method",
                dash="source",
                title=title,
                x_title="width factor",
                **common,
            )
            for split, title in splits
        ]
    if by_size:
        panels += [
            charts.lines(
                solver,
                "size",
                f"{split}_accuracy",
                "series",
                title=f"{title} of the solver",
                x_title="training points",
                rules=_papers(solver, split),
                **common,
            )
            for split, title in splits
        ]
    return Figure(panels, columns=2, caption="Digit 0 against the rest. Dashed: the paper.", width=340)


def _beside_paper(table: pd.DataFrame, split: str) -> pd.DataFrame:
    """Return our accuracies and the paper's, distinguished by ``source``."""
    column = f"{split}_accuracy"
    ours = table[["width", "method", column]].assign(source="ours")
    papers = table[["width", "method"]].assign(**{column: table[f"paper_{split}"] / 100}, source="paper")
    return pd.concat([ours, papers.dropna()])


def _papers(solver: pd.DataFrame, split: str) -> pd.DataFrame:
    """Return horizontal lines at the paper's accuracies of the solver, one per width."""
    known = solver.dropna(subset=[f"paper_{split}"]).drop_duplicates("series")
    return known.assign(y=known[f"paper_{split}"] / 100, label=known["series"].map("paper, {}".format))[
        ["y", "label", "series"]
    ]


def _largest(table: pd.DataFrame) -> pd.DataFrame:
    """Select, for each method and width, the rows with the most training points."""
    return table[table["size"] == table.groupby(["width", "method"])["size"].transform("max")]


def claims_for(published: dict[str, Any]) -> Callable[[pd.DataFrame, SolverSpec], list[Examined]]:
    """Return the function that judges the claims of one of the tables."""

    def claims(table: pd.DataFrame, spec: SolverSpec) -> list[Examined]:
        """Judge whether the solver interpolates and overfits at the first width, and the paper's cells."""
        first = min(spec.widths)
        test = _largest(table).pivot_table(index=["width", "seed"], columns="method", values="test_accuracy") * 100
        result: list[Examined] = []
        if "solver" in spec.methods:
            wrong = 100 * (1 - table.loc[table["method"] == "solver", "train_accuracy"].min())
            result.append(
                identity(
                    "The solver interpolates the training data",
                    "largest training error of all runs, percent",
                    wrong,
                    0.01,
                    paper="training accuracy 100 %",
                )
            )
        if {"solver", "linearized"} <= set(spec.methods):
            result.append(
                greater(
                    "The solver overfits at the first width: SGD on the linearization tests better",
                    "linearized SGD minus solver, test accuracy in points",
                    test.loc[first, "linearized"] - test.loc[first, "solver"],
                    paper=f"{published['test']['linearized'][0] - published['test']['solver'][0]:.2f} points",
                )
            )
        for (method, width), cell in table.dropna(subset=["paper_test"]).groupby(["method", "width"], sort=False):
            result.append(
                near(
                    f"Test accuracy of the {method} at width x{width:g}",
                    "test accuracy, percent",
                    100 * cell.set_index("seed")["test_accuracy"],
                    float(cell["paper_test"].iloc[0]),
                    1.0 if spec.shift or method == "solver" else 0.3,
                    unit=" %",
                )
            )
        return result

    return claims


PAPER = SolverSpec(
    preset="paper", data="mnist", pad_to=32, widths=numbers.WIDTHS, epochs=200, lr=0.01, linear_lr=(0.01,)
)
BINARY = {
    "tiny": replace(
        PAPER,
        preset="tiny",
        data="digits",
        pad_to=16,
        widths=(0.5, 1.0, 2.0),
        n_train=500,
        epochs=10,
        lr=0.1,
        linear_lr=(0.1,),
        solver_sizes=(100, 250, 0),
    ),
    "small": replace(
        PAPER, preset="small", widths=(1.0, 2.0, 5.0), n_train=10_000, epochs=30, solver_sizes=(1000, 3000, 0)
    ),
    "paper": PAPER,
}
SHIFTED = {
    "tiny": replace(BINARY["tiny"], pad_to=None, shift=4, canvas=16),
    "small": replace(BINARY["small"], pad_to=None, shift=7, canvas=35),
    "paper": replace(BINARY["paper"], pad_to=None, shift=7, canvas=35),
}
_COST = {
    "tiny": "about 10 s on two cores",
    "small": "about 1 h on two cores; the solver's kernels 10,000 x 10,000 in float64",
    "paper": "kernels of 60,000 x 60,000 in float64 (29 GB, the dashes of the table included), 12 runs of 200 epochs",
}
_NOTES = (
    *DEVIATIONS,
    "Targets are 0 and 1 on one output; the paper does not state them. A sample is right on the same side of 0.5.",
    "The solver never forms J: products with J are preconditioned by the m x m kernel. No ridge is added, and no "
    "singular value is left out (solver_cutoff); the paper does not state how LAPACK was told to treat small ones.",
)

EXPERIMENTS = (
    Experiment(
        "samarin2022/table1",
        "Binary MNIST: solver, linearization, network",
        "Accuracy of a direct solver, LinLeNet and LeNet on digit 0 against the rest, by width.",
        BINARY,
        run,
        plot,
        claims_for(numbers.TABLE1),
        _COST,
        _NOTES,
    ),
    Experiment(
        "samarin2022/table2",
        "Binary shifted MNIST: solver, linearization, network",
        "The same with digits shifted at random by up to 7 pixels.",
        SHIFTED,
        run,
        plot,
        claims_for(numbers.TABLE2),
        _COST,
        _NOTES,
    ),
)
