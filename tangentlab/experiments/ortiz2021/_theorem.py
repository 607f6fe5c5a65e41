"""Theorem 1: the alignment of a linear predictor is the squared norm of the mixed derivative along it."""

from dataclasses import dataclass, field
from typing import ClassVar, TypedDict

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from tangentlab import analysis
from tangentlab.experiments import _charts as charts
from tangentlab.experiments._context import Context
from tangentlab.experiments._experiment import Experiment
from tangentlab.experiments._figure import Figure
from tangentlab.experiments._parts import Weights
from tangentlab.experiments._roles import ROWS
from tangentlab.experiments._verdicts import Examined, identity
from tangentlab.experiments._work import UnitOfWork
from tangentlab.experiments.ortiz2021._nads import NadSpec, network
from tangentlab.experiments.ortiz2021._setup import NAMES
from tangentlab.kernels import NTKOperator


class SteinOutcome(TypedDict):
    """Both sides of the theorem, (batches, directions) each."""

    jacobian: Tensor
    mixed: Tensor


@dataclass(frozen=True)
class Stein(UnitOfWork[SteinOutcome]):
    """Both sides of the theorem on independent batches of Gaussian inputs, in float64.

    With a batch of N samples, ||E x.u grad f||^2 and ||E grad^2 f u||^2 are above their limits by the variance of the
    mean, of order 1/N. It is removed by the pairs of different halves: with means a1, a2 of two halves,
    <a1, a2> = 2 ||(a1 + a2)/2||^2 - (||a1||^2 + ||a2||^2)/2 is unbiased.

    Attributes:
        weights: The network, with a smooth activation.
        directions: Random directions u.
        samples: Gaussian inputs of a batch.
        batches: Independent batches.
    """

    shown_as: ClassVar[str] = "Theorem 1, {weights.model.name}"
    weights: Weights
    directions: int
    samples: int
    batches: int

    def compute(self, context: Context) -> SteinOutcome:
        """Compute ``jacobian`` and ``mixed``, each (batches, directions)."""
        net = self.weights.build(context, torch.float64)
        shape = self.weights.model.input_shape
        generator = torch.Generator().manual_seed(self.weights.model.seed)
        u = torch.randn(self.directions, *shape, generator=generator, dtype=torch.float64)
        u = (u / u.flatten(1).norm(dim=1)[:, None, None, None]).to(context.device)
        left, right = [], []
        for _ in range(self.batches):
            x = torch.randn(self.samples, *shape, generator=generator, dtype=torch.float64).to(context.device)
            half = self.samples // 2
            parts = (x[:half], x[half : 2 * half], x[: 2 * half])
            jacobian = [
                analysis.alignment(NTKOperator(net, part, readout=0), part.flatten(1) @ u.flatten(1).T)
                for part in parts
            ]
            mixed = [analysis.linear_alignment(net, u, part, readout=0) for part in parts]
            left.append(_unbiased(*jacobian))
            right.append(_unbiased(*mixed))
        return {"jacobian": torch.stack(left).cpu(), "mixed": torch.stack(right).cpu()}


def _unbiased(first: torch.Tensor, second: torch.Tensor, both: torch.Tensor) -> torch.Tensor:
    return 2 * both - (first + second) / 2


@dataclass(frozen=True, kw_only=True)
class TheoremSpec(NadSpec):
    """Random directions and Gaussian inputs.

    Attributes:
        samples: Gaussian inputs of a batch.
        batches: Independent batches.
    """

    indices: tuple[int, ...] = (1,)
    samples: int
    batches: int = field(metadata=ROWS)


def run(spec: TheoremSpec, context: Context) -> pd.DataFrame:
    """Return one row per direction: ``model``, ``seed``, ``direction``, ``jacobian`` (||E x.u grad f||^2), ``mixed``
    (||E grad^2 f u||^2), their standard errors over batches, and ``z``, the difference over its standard error."""
    units = {
        (name, seed): Stein(Weights(network(spec, name, seed, context)), spec.directions, spec.samples, spec.batches)
        for name in spec.models
        for seed in spec.seed_list
    }
    rows = []
    for (name, seed), result in zip(units, context.map(list(units.values()), "theorem 1"), strict=True):
        sides = {"jacobian": result["jacobian"].numpy(), "mixed": result["mixed"].numpy()}
        difference = sides["jacobian"] - sides["mixed"]  # on the same inputs: what they share cancels
        error = difference.std(0, ddof=1) / np.sqrt(spec.batches)
        for direction in range(spec.directions):
            rows.append(
                {
                    "model": name,
                    "seed": seed,
                    "direction": direction + 1,
                    "jacobian": float(sides["jacobian"][:, direction].mean()),
                    "mixed": float(sides["mixed"][:, direction].mean()),
                    "jacobian_error": float(sides["jacobian"][:, direction].std(ddof=1) / np.sqrt(spec.batches)),
                    "mixed_error": float(sides["mixed"][:, direction].std(ddof=1) / np.sqrt(spec.batches)),
                    "z": float(difference[:, direction].mean() / error[direction]),
                }
            )
    return pd.DataFrame(rows)


def plot(table: pd.DataFrame, spec: TheoremSpec) -> Figure:
    """Plot one side against the other."""
    panels = []
    for name in spec.models:
        part = table[table["model"] == name]
        ends = [float(part[["jacobian", "mixed"]].min().min()), float(part[["jacobian", "mixed"]].max().max())]
        axes = {
            axis: {"field": side, "type": "quantitative", "title": title, "scale": {"zero": False, "padding": 10}}
            for axis, side, title in (("x", "mixed", "‖E ∇²f u‖²"), ("y", "jacobian", "‖E (x·u) ∇f‖²"))
        }
        hover = [{"field": column, "format": ".4~g"} for column in ("direction", "mixed", "jacobian", "z")]
        points = {
            "mark": {"type": "point", "filled": True, "size": 60, "color": charts.SERIES["network"]},
            "encoding": {**axes, "tooltip": hover},
            "params": charts.interactions(None),
        }
        diagonal = {
            "data": {"values": [{"mixed": end, "jacobian": end} for end in ends]},
            "mark": {"type": "line", "strokeDash": [5, 4], "strokeWidth": 1.2, "color": "#8a93a3"},
            "encoding": axes,
        }
        panels.append({"title": NAMES[name], "data": {"values": charts.records(part)}, "layer": [points, diagonal]})
    return Figure(
        panels, columns=2, caption="Both sides of Theorem 1 for random directions; the diagonal is equality.", width=320
    )


def claims(table: pd.DataFrame, spec: TheoremSpec) -> list[Examined]:
    """Judge whether both sides agree within sampling error: t statistics of all directions together, at the level
    0.001."""
    from scipy.stats import t

    count = len(table)
    limit = float(t.ppf(1 - 0.0005 / count, spec.batches - 1))
    return [
        identity(
            "The alignment of x -> u.x with the kernel is ||E grad^2 f u||^2",
            f"largest |difference| over its standard error, {count} directions",
            float(table["z"].abs().max()),
            round(limit, 3),
        )
    ]


PRESETS = {
    "tiny": TheoremSpec(preset="tiny", side=8, models=("lenet",), directions=6, samples=200, batches=8),
    "small": TheoremSpec(preset="small", side=16, models=("lenet",), directions=20, samples=2000, batches=20),
    "paper": TheoremSpec(preset="paper", directions=50, samples=10_000, batches=20),
}

EXPERIMENTS = (
    Experiment(
        "ortiz2021/theorem1",
        "Alignment of linear predictors",
        "The alignment of x -> u.x with the kernel, by averaged Jacobian and by the mixed derivative.",
        PRESETS,
        run,
        plot,
        claims,
        {"tiny": "a few seconds", "small": "about 10 min on two cores", "paper": "about 1 h on a GPU"},
        ("The expectation over Gaussian inputs is estimated; its bias is removed by pairing halves of each batch.",),
    ),
)
