"""Lemma 1: alignment by the Gram matrix is alignment by the averaged Jacobian, and bounds the kernel norm."""

from dataclasses import dataclass, field
from typing import TypedDict

import pandas as pd
import torch

from tangentlab import analysis, linalg
from tangentlab.experiments import _charts as charts
from tangentlab.experiments._context import Context
from tangentlab.experiments._experiment import Experiment
from tangentlab.experiments._figure import Figure
from tangentlab.experiments._parts import Images, Weights, inputs
from tangentlab.experiments._roles import ROWS
from tangentlab.experiments._verdicts import Examined, identity
from tangentlab.experiments._work import UnitOfWork
from tangentlab.experiments.ortiz2021._setup import DEVIATIONS, NAMES, BinarySpec, model
from tangentlab.kernels import NTKOperator, ntk
from tangentlab.tasks import cifar2


class LemmaOutcome(TypedDict):
    """Columns of a table with one entry per function."""

    function: list[str]
    alignment_gram: list[float]
    alignment_jacobian: list[float]
    norm: list[float]
    bound: list[float]
    eigenvalue: list[float]


@dataclass(frozen=True)
class Lemma(UnitOfWork[LemmaOutcome]):
    """Both sides of the lemma in float64, for eigenfunctions, the labels and random functions.

    Attributes:
        weights: The network.
        images: Images; the first ``samples`` of the training split are taken.
        samples: How many.
        functions: Eigenfunctions, and as many random functions.
    """

    weights: Weights
    images: Images
    samples: int
    functions: int

    def compute(self, context: Context) -> LemmaOutcome:
        """Compute the columns of the table."""
        data = self.images.load(context)
        x = inputs(data, "train", self.samples).to(context.device, torch.float64)
        network = self.weights.build(context, torch.float64)
        kernel = ntk(network, x, readout=0, progress=context.settings.progress)
        pairs = linalg.eigh(kernel, progress=context.settings.progress)
        generator = torch.Generator().manual_seed(self.weights.model.seed)
        drawn = torch.randn(len(x), self.functions, generator=generator, dtype=torch.float64).to(kernel.device)
        labels = cifar2(data).train.targets[: len(x)].to(kernel.device, torch.float64)
        every = max(1, rank_of(pairs) // self.functions)
        chosen = list(range(0, rank_of(pairs), every))[: self.functions]
        functions = torch.cat([pairs.vectors[:, chosen] * len(x) ** 0.5, labels, drawn], 1)
        kinds = (
            [f"phi_{j + 1}" for j in chosen] + ["CIFAR2 labels"] + [f"random {i + 1}" for i in range(self.functions)]
        )
        operator = NTKOperator(network, x, readout=0)
        eigenvalues = torch.cat([pairs.values[chosen] / len(x), torch.full((self.functions + 1,), torch.nan)])
        return {
            "function": kinds,
            "alignment_gram": analysis.alignment(kernel, functions).tolist(),
            "alignment_jacobian": analysis.alignment(operator, functions).tolist(),
            "norm": analysis.rkhs_norm(kernel, functions).tolist(),
            "bound": analysis.lemma1_bound(kernel, functions).tolist(),
            "eigenvalue": eigenvalues.tolist(),
        }


def rank_of(pairs: linalg.Spectrum) -> int:
    """Count the eigenvalues that are above the level of rounding."""
    return int((pairs.values > linalg.rank_cutoff(pairs.values)).sum())


@dataclass(frozen=True, kw_only=True)
class LemmaSpec(BinarySpec):
    """Networks at initialization.

    Attributes:
        samples: Number of samples of the kernel.
        functions: Eigenfunctions, and random functions.
    """

    samples: int
    functions: int = field(default=20, metadata=ROWS)


def run(spec: LemmaSpec, context: Context) -> pd.DataFrame:
    """Return one row per function: ``model``, ``seed``, ``function``, ``kind``, ``alignment_gram`` (f^T K f / N^2),
    ``alignment_jacobian`` (||E f grad||^2), ``error`` (their relative difference), ``eigenvalue`` (of an
    eigenfunction), ``norm`` (||f||^2 in the kernel's space) and ``bound`` (||f||^4 / alpha)."""
    units = {
        (name, seed): Lemma(Weights(model(spec, name, seed, context)), spec.images(seed), spec.samples, spec.functions)
        for name in spec.models
        for seed in spec.seed_list
    }
    results = context.map(list(units.values()), "lemma 1")
    parts = [
        pd.DataFrame(result).assign(model=name, seed=seed) for (name, seed), result in zip(units, results, strict=True)
    ]
    table = pd.concat(parts, ignore_index=True)
    error = (table["alignment_gram"] - table["alignment_jacobian"]).abs() / table["alignment_gram"]
    kind = (
        table["function"].str.split("[ _]").str[0].map({"phi": "eigenfunction", "CIFAR2": "labels", "random": "random"})
    )
    first = ["model", "seed", "function", "kind"]
    return table.assign(error=error, kind=kind)[
        [*first, "alignment_gram", "alignment_jacobian", "error", "eigenvalue", "norm", "bound"]
    ]


def plot(table: pd.DataFrame, spec: LemmaSpec) -> Figure:
    """Plot the norm against its bound; the diagonal is equality."""
    panels = []
    for name in spec.models:
        part = table[(table["model"] == name) & table["norm"].map(lambda v: v < float("inf"))]
        ends = [part["bound"].min(), part["norm"].max()]
        values = charts.records(part[["function", "kind", "bound", "norm", "alignment_gram"]])
        axes = {
            axis: {"field": axis_field, "type": "quantitative", "title": title, "scale": {"type": "log", "padding": 8}}
            for axis, axis_field, title in (("x", "bound", "‖f‖⁴ / α(f)"), ("y", "norm", "‖f‖² in the kernel's space"))
        }
        for axis in axes.values():
            axis["axis"] = {**charts.LOG_AXIS, "format": ".0~e"}
        hover = [{"field": field} for field in ("function", "alignment_gram", "bound", "norm")]
        points = {
            "mark": {"type": "point", "filled": True, "size": 55},
            "encoding": {
                **axes,
                "color": charts.series(part["kind"], "kind"),
                "opacity": {"condition": {"param": "toggle", "value": 0.9}, "value": 0.1},
                "tooltip": hover,
            },
            "params": charts.interactions("kind"),
        }
        diagonal = {
            "data": {"values": [{"bound": end, "norm": end} for end in ends]},
            "mark": {"type": "line", "strokeDash": [5, 4], "strokeWidth": 1.2, "color": "#8a93a3"},
            "encoding": axes,
        }
        panels.append({"title": NAMES[name], "data": {"values": values}, "layer": [points, diagonal]})
    return Figure(panels, caption="Every function is on or above the diagonal; eigenfunctions are on it.")


def claims(table: pd.DataFrame, spec: LemmaSpec) -> list[Examined]:
    """Judge two identities and an inequality, which are decided at any scale."""
    eigen = table[table["kind"] == "eigenfunction"]
    finite = table[table["norm"] < float("inf")]
    return [
        identity(
            "The alignment by the Gram matrix equals that by the averaged Jacobian",
            "largest relative difference",
            float(table["error"].max()),
            1e-8,
        ),
        identity(
            "The alignment of an eigenfunction is its eigenvalue",
            "largest relative difference",
            float(((eigen["alignment_gram"] - eigen["eigenvalue"]).abs() / eigen["eigenvalue"]).max()),
            1e-6,
        ),
        identity(
            "The kernel norm is at least ||f||^4 / alpha(f)",
            "largest relative violation of the bound",
            float(((finite["bound"] - finite["norm"]) / finite["norm"]).max()),
            1e-6,
            paper="the bound holds",
        ),
    ]


PRESETS = {
    "tiny": LemmaSpec(preset="tiny", data="digits", resnet_width=0.0625, samples=150, functions=12),
    "small": LemmaSpec(preset="small", data="cifar10", models=("mlp", "lenet"), samples=2000),
    "paper": LemmaSpec(preset="paper", data="cifar10", samples=10_000, functions=100),
}

EXPERIMENTS = (
    Experiment(
        "ortiz2021/lemma1",
        "Alignment and the kernel norm",
        "Alignment by Gram matrix and by averaged Jacobian, and the lower bound of the kernel norm.",
        PRESETS,
        run,
        plot,
        claims,
        {"tiny": "a few seconds", "small": "about 2 min on two cores", "paper": "about 1 h on a GPU"},
        DEVIATIONS,
    ),
)
