"""Figures 7, 14 and 15 and Lemma 1: alignment of functions with the kernel before and after training."""

from dataclasses import dataclass, field, replace
from typing import ClassVar, TypedDict

import numpy as np
import pandas as pd
from torch import Tensor

from tangentlab import analysis
from tangentlab.experiments import _charts as charts
from tangentlab.experiments import _evidence as evidence
from tangentlab.experiments._context import Context
from tangentlab.experiments._eigenpairs import Eigenpairs
from tangentlab.experiments._experiment import Experiment
from tangentlab.experiments._figure import Figure
from tangentlab.experiments._parts import Weights, inputs
from tangentlab.experiments._roles import ROWS
from tangentlab.experiments._verdicts import Examined
from tangentlab.experiments._work import UnitOfWork
from tangentlab.experiments.ortiz2021._eigenfunctions import (
    ALONE,
    PAPER,
    SMALL,
    TINY,
    EigenfunctionSpec,
    eigenpairs,
    unit,
)
from tangentlab.experiments.ortiz2021._setup import DEVIATIONS, NAMES, model
from tangentlab.kernels import NTKOperator


class AlignmentsOutcome(TypedDict):
    """An alignment for each eigenfunction, (functions,) float64."""

    alignments: Tensor


@dataclass(frozen=True)
class Alignments(UnitOfWork[AlignmentsOutcome]):
    """alpha(phi_j) of initial eigenfunctions with the kernel of a network, without forming that kernel.

    Attributes:
        weights: The network.
        spectrum: The eigenfunctions, of unit mean square over its samples.
        functions: How many, from the first.
    """

    shown_as: ClassVar[str] = "alignments of {weights.model.name}"
    weights: Weights
    spectrum: Eigenpairs
    functions: int

    def compute(self, context: Context) -> AlignmentsOutcome:
        """Compute the alignments from averaged Jacobians."""
        x = inputs(self.spectrum.images.load(context), self.spectrum.rows, self.spectrum.count)
        phi = context.get(self.spectrum)["vectors"][:, : self.functions].double() * len(x) ** 0.5
        operator = NTKOperator(self.weights.build(context), x.to(context.device), readout=0)
        return {"alignments": analysis.alignment(operator, phi).cpu().double()}


@dataclass(frozen=True, kw_only=True)
class AlignmentSpec(EigenfunctionSpec):
    """Networks trained on sign(phi_j), for each j of ``indices``.

    Attributes:
        functions: Eigenfunctions whose alignment is followed.
    """

    functions: int = field(metadata=ROWS)


def run(spec: AlignmentSpec, context: Context) -> pd.DataFrame:
    """Return one row per eigenfunction: ``model``, ``trained`` (the j of the task), ``seed``, ``index``, ``before`` and
    ``after`` (alpha with the kernel at initialization and after training), ``growth`` (their ratio over the median of
    all)."""
    places = [(name, j, seed) for name in spec.models for j in spec.indices for seed in spec.seed_list]
    first: dict[tuple[str, int, int], Alignments] = {}
    second: dict[tuple[str, int, int], Alignments] = {}
    for name, j, seed in places:
        network = model(spec, name, seed, context)
        pairs = eigenpairs(spec, name, seed, context)
        trained = Weights(network, unit(spec, name, "network", j, seed, context))
        count = min(spec.functions, pairs.k or spec.functions)
        first[name, j, seed] = Alignments(Weights(network), pairs, count)
        second[name, j, seed] = Alignments(trained, pairs, count)
    context.compute([*first.values(), *second.values()], "alignments")
    starts, ends = context.results(first), context.results(second)
    parts = []
    for name, j, seed in places:
        before, after = (found[name, j, seed]["alignments"].numpy() for found in (starts, ends))
        ratio = after / before
        parts.append(
            pd.DataFrame(
                {
                    "model": name,
                    "trained": j,
                    "seed": seed,
                    "index": np.arange(1, len(before) + 1),
                    "before": before,
                    "after": after,
                    "growth": ratio / np.median(ratio),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def plot(table: pd.DataFrame, spec: AlignmentSpec) -> Figure:
    """Plot alignments before and after training by index, with one panel per task."""
    panels = []
    for j, part in table.groupby("trained", sort=True):
        long = part.melt(["index", "seed"], ["before", "after"], var_name="kernel", value_name="alignment")
        long["kernel"] = long["kernel"].map({"before": "at initialization", "after": "after training"})
        panels.append(
            charts.lines(
                _thin(long, int(str(j))),
                "index",
                "alignment",
                "kernel",
                title=f"Trained on eigenfunction {j}",
                x_title="index of initial eigenfunction",
                y_title="alignment",
                log_x=True,
                log_y=True,
                points=False,
                spread=False,
            )
        )
    return Figure(
        panels, columns=2, caption=f"{NAMES[spec.models[0]]}: alignment of initial eigenfunctions.", width=340
    )


def _thin(long: pd.DataFrame, j: int) -> pd.DataFrame:
    """Select log-spaced indices, and all indices near the task's."""
    most = int(long["index"].max())
    kept = {*np.unique(np.geomspace(1, most, 200).round().astype(int)), *range(max(1, j - 5), min(most, j + 5) + 1)}
    return long[long["index"].isin(kept)]


def claims(table: pd.DataFrame, spec: AlignmentSpec) -> list[Examined]:
    """Judge whether the alignment of the task's eigenfunction peaks and the others keep their order."""
    result = []
    for j, part in table.groupby("trained", sort=True):
        others = part[part["index"] != j]
        own = part[part["index"] == j].set_index("seed")["growth"]
        result.append(
            Examined(
                f"After training on sign(phi_{j}) the alignment of phi_{j} has grown more than the others'",
                "its growth over the 99th percentile of the others' growth, mean over seeds",
                "among the largest",
                "a spike at the trained eigenfunction",
                evidence.stands_out(own, others.set_index(["index", "seed"])["growth"]),
            )
        )
        result.append(
            Examined(
                f"The rest of the spectrum keeps its order (trained on sign(phi_{j}))",
                "rank correlation of the other alignments before and after",
                "> 0.9",
                "does not greatly affect the rest of the spectrum",
                evidence.correlation_above(others, "before", "after", 0.9),
            )
        )
    return result


def _presets(
    name: str, tiny: tuple[int, ...], small: tuple[int, ...], paper: tuple[int, ...]
) -> dict[str, AlignmentSpec]:
    """Return the presets of one network, which share the runs of figure 2 for equal indices."""

    def spec(base: EigenfunctionSpec, indices: tuple[int, ...], functions: int) -> AlignmentSpec:
        values = {**vars(base), **ALONE, "models": (name,), "indices": indices}
        return AlignmentSpec(**values, functions=functions)

    paper_base = replace(PAPER, eigenpairs=10_000)
    return {"tiny": spec(TINY, tiny, 200), "small": spec(SMALL, small, 1000), "paper": spec(paper_base, paper, 1000)}


_COST = {
    "tiny": "a few seconds beyond figure 2",
    "small": "minutes beyond figure 2",
    "paper": "minutes on a GPU beyond figure 2",
}
_OTHERS = "Which other eigenfunctions the paper trains on is not stated."
_SMALL = "The small preset trains on phi_256, which figure 2 trains on, in place of phi_500."

EXPERIMENTS = (
    Experiment(
        "ortiz2021/fig7",
        "Alignment after training, LeNet",
        "Alignment of initial eigenfunctions with LeNet's kernel before and after training on sign(phi_500).",
        _presets("lenet", (100,), (256,), (500,)),
        run,
        plot,
        claims,
        _COST,
        (*DEVIATIONS, _SMALL),
    ),
    Experiment(
        "ortiz2021/fig14",
        "Alignment after training on others, MLP",
        "The same for an MLP trained on different eigenfunctions.",
        _presets("mlp", (5, 25, 100), (16, 64, 256), (10, 50, 200, 500)),
        run,
        plot,
        claims,
        _COST,
        (*DEVIATIONS, _OTHERS),
    ),
    Experiment(
        "ortiz2021/fig15",
        "Alignment after training on others, LeNet",
        "The same for a LeNet trained on different eigenfunctions.",
        _presets("lenet", (5, 25, 100), (16, 64, 256), (10, 50, 200, 500)),
        run,
        plot,
        claims,
        _COST,
        (*DEVIATIONS, _OTHERS),
    ),
)
