"""Figures 2, 3, 10, 11, 12 and 13: networks and linearizations trained on binarised eigenfunctions of the kernel."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import pandas as pd

from tangentlab._errors import TangentError
from tangentlab.experiments import _charts as charts
from tangentlab.experiments._context import Context
from tangentlab.experiments._eigenpairs import Eigenpairs, Eigenvalues
from tangentlab.experiments._experiment import Experiment
from tangentlab.experiments._figure import Figure
from tangentlab.experiments._parts import Eigenfunction, FirstFive, Task
from tangentlab.experiments._roles import ROWS
from tangentlab.experiments._training import Form, Training, final, reached
from tangentlab.experiments._verdicts import Claim, condition, greater, trend
from tangentlab.experiments.ortiz2021 import _numbers as numbers
from tangentlab.experiments.ortiz2021._setup import DEVIATIONS, THRESHOLD, BinarySpec, model, spectrum, training

NAMES = {"mlp": "MLP", "lenet": "LeNet", "resnet18": "ResNet18"}


@dataclass(frozen=True, kw_only=True)
class EigenfunctionSpec(BinarySpec):
    """Tasks sign(phi_j).

    Attributes:
        indices: The j, counted from 1.
        forms: ``"network"`` and ``"linearized"``, or one of them.
        baseline: Whether CIFAR2 (the first five classes against the rest) is learned too.
        baseline_epochs: Of training on it; 0 for as many as on the eigenfunctions.
        eigenpairs: How many are computed; at least the largest index. Experiments with equal numbers share them.
    """

    indices: tuple[int, ...] = field(metadata=ROWS)
    forms: tuple[str, ...] = field(default=("network", "linearized"), metadata=ROWS)
    baseline: bool = field(default=True, metadata=ROWS)
    baseline_epochs: int = field(default=0, metadata=ROWS)
    eigenpairs: int = field(default=0, metadata=ROWS)

    def __post_init__(self) -> None:
        super().__post_init__()
        for form in self.forms:
            if form not in ("network", "linearized"):
                raise TangentError(f"There is no form {form!r} here.", remedy="Choose network, linearized, or both.")


def eigenpairs(spec: EigenfunctionSpec, name: str, seed: int, context: Context) -> Eigenpairs:
    """The eigenfunctions of a network's kernel at initialisation."""
    return spectrum(spec, name, seed, context, max(spec.eigenpairs, *spec.indices, 1))


def unit(spec: EigenfunctionSpec, name: str, form: Form, j: int, seed: int, context: Context) -> Training:
    """The run on sign(phi_j), or on CIFAR2 for j = 0. A network's weights at the end are kept."""
    network = model(spec, name, seed, context)
    if j:
        pairs = eigenpairs(spec, name, seed, context)
        problem, epochs = Task(spec.images, Eigenfunction(pairs, j)), spec.epochs
    else:
        problem, epochs = Task(spec.images, FirstFive()), spec.baseline_epochs or spec.epochs
    run = training(spec, seed, epochs=epochs, every=1 if form == "network" and j else None)
    return Training(network, problem, run, form, keep=(-1,) if form == "network" else ())


def run(spec: EigenfunctionSpec, context: Context) -> pd.DataFrame:
    """One row a run: ``model``, ``form``, ``task`` ("eigenfunction" or "CIFAR2"), ``j``, ``eigenvalue`` (of the Gram
    matrix over N), ``seed``, accuracies, training loss, ``iterations`` (updates until the training loss, measured every
    epoch, was at most 0.01; missing if never), ``updates`` in all, ``distance_l2``, ``distance_cosine``, ``status``,
    ``seconds``."""
    units = {
        (name, form, j, seed): unit(spec, name, cast(Form, form), j, seed, context)
        for name in spec.models
        for form in spec.forms
        for j in (*spec.indices, *((0,) if spec.baseline else ()))
        for seed in spec.seed_list
    }
    spectra = {
        (name, seed): Eigenvalues(eigenpairs(spec, name, seed, context))
        for name in spec.models
        for seed in spec.seed_list
    }
    context.compute([*units.values(), *spectra.values()], "training on eigenfunctions")
    eigenvalues = context.results(spectra)
    columns = ("test_accuracy", "train_accuracy", "train_loss", "distance_l2", "distance_cosine")
    rows = []
    for (name, form, j, seed), result in context.results(units).items():
        last = final(result)
        own = eigenvalues[name, seed]
        value = float(own["values"][j - 1]) / own["samples"] if j else float("nan")
        rows.append(
            {
                "model": name,
                "form": form,
                "task": "eigenfunction" if j else "CIFAR2",
                "j": j,
                "eigenvalue": value,
                "seed": seed,
                **{column: last.get(column, float("nan")) for column in columns},
                "iterations": reached(result, THRESHOLD, "train") if result["reached"] else float("nan"),
                "updates": last.get("step", float("nan")),
                "status": result["status"],
                "seconds": result["seconds"],
            }
        )
    return pd.DataFrame(rows)


def plot_accuracy(table: pd.DataFrame, spec: EigenfunctionSpec) -> Figure:
    """Test accuracy against j, a panel a network; CIFAR2 as a dashed line."""
    panels = []
    for name in spec.models:
        part = table[table["model"] == name]
        base = part[part["task"] == "CIFAR2"].groupby("form")["test_accuracy"].mean().reset_index()
        rules = base.rename(columns={"test_accuracy": "y"}).assign(label=lambda t: "CIFAR2, " + t["form"])
        panels.append(
            charts.lines(
                part[part["task"] == "eigenfunction"],
                "j",
                "test_accuracy",
                "form",
                title=NAMES[name],
                x_title="eigenfunction index j",
                y_title="test accuracy",
                log_x=True,
                percent=True,
                rules=rules,
            )
        )
    return Figure(panels, caption="Test accuracy on sign(phi_j). Dashed: the same models on CIFAR2.")


def plot_dynamics(table: pd.DataFrame, spec: EigenfunctionSpec) -> Figure:
    """Iterations to a training loss of 0.01 and both distances to the initial weights, against j."""
    part = table[(table["task"] == "eigenfunction") & (table["form"] == "network")]
    titles = {
        "iterations": "Iterations to loss 0.01",
        "distance_l2": "l2 distance to initialisation",
        "distance_cosine": "Cosine distance to initialisation",
    }
    panels = [
        charts.lines(part, "j", column, "form", title=title, x_title="eigenfunction index j", y_title="", log_x=True)
        for column, title in titles.items()
        if part[column].notna().any()
    ]
    return Figure(
        panels, caption=f"{NAMES[spec.models[0]]} trained on sign(phi_j). Runs that miss the loss are left out."
    )


def claims_accuracy(table: pd.DataFrame, spec: EigenfunctionSpec) -> list[Claim]:
    """Accuracy falls with j for both; the linearization is ahead."""
    tasks = table[table["task"] == "eigenfunction"]
    result = []
    for name in spec.models:
        part = tasks[tasks["model"] == name]
        for form, own in part.groupby("form", sort=False):
            what = NAMES[name] if form == "network" else f"The linearized {NAMES[name]}"
            result.append(
                trend(
                    f"{what} is less accurate on later eigenfunctions",
                    own["j"].tolist(),
                    own["test_accuracy"].tolist(),
                    -1,
                    spec,
                    paper="accuracy falls with j",
                )
            )
        if len(spec.forms) == 2:
            wide = part.pivot_table(index=["j", "seed"], columns="form", values="test_accuracy")
            result.append(
                greater(
                    f"The linearized {NAMES[name]} is ahead of the network on eigenfunctions",
                    "mean over tasks of linearized minus network, test accuracy",
                    (wide["linearized"] - wide["network"]).tolist(),
                    spec,
                    paper="a linear advantage",
                )
            )
    return result


def claims_crossing(table: pd.DataFrame, spec: EigenfunctionSpec) -> list[Claim]:
    """As figure 2, and the curves of LeNet cross."""
    result = claims_accuracy(table, spec)
    if "lenet" not in spec.models or len(spec.forms) < 2:
        return result
    part = table[(table["task"] == "eigenfunction") & (table["model"] == "lenet")]
    wide = part.pivot_table(index="j", columns="form", values="test_accuracy").sort_index()
    lead = wide["network"] - wide["linearized"]
    lead = lead[lead != 0]
    places = np.flatnonzero(np.diff(np.sign(lead.to_numpy()))).tolist()
    where = [float(np.sqrt(lead.index[i] * lead.index[i + 1])) for i in places]
    nearest = min(where, key=lambda j: abs(np.log(j / numbers.CROSSING)), default=float("nan"))
    inside = bool(where) and numbers.CROSSING / 3 <= nearest <= 3 * numbers.CROSSING
    result.append(
        condition(
            "The curves of LeNet and its linearization cross near j = 500",
            "index at which the difference of the two changes sign, nearest to 500",
            nearest,
            "within a factor 3 of 500",
            inside,
            spec,
            paper=f"around {numbers.CROSSING}",
            scale="paper",
        )
    )
    return result


def claims_dynamics(table: pd.DataFrame, spec: EigenfunctionSpec) -> list[Claim]:
    """All three quantities grow with j.

    A run that misses the loss counts as all its updates, the least it can have needed. Where more than half of them do,
    the order of the rest says little, and the claim about iterations is not decidable.
    """
    part = table[(table["task"] == "eigenfunction") & (table["form"] == "network")]
    name = NAMES[spec.models[0]]
    iterations = "takes more iterations to a training loss of 0.01"
    missed = int(part["iterations"].isna().sum())
    few = f"{missed} of {len(part)} runs do not reach a training loss of 0.01." if 2 * missed > len(part) else ""
    wanted = {
        iterations: part["iterations"].fillna(part["updates"]),
        "ends further from its initial weights (l2)": part["distance_l2"],
        "ends further from its initial weights (cosine)": part["distance_cosine"],
    }
    return [
        trend(
            f"{name} {what} on later eigenfunctions",
            part["j"].tolist(),
            values.tolist(),
            +1,
            spec,
            paper="grows with j",
            shortage=few if what == iterations else "",
        )
        for what, values in wanted.items()
    ]


TINY = EigenfunctionSpec(
    preset="tiny",
    data="digits",
    resnet_width=0.0625,
    n_train=512,
    indices=(1, 5, 25, 100),
    epochs=10,
    batch_size=64,
    eigenpairs=200,
)
SMALL = EigenfunctionSpec(
    preset="small",
    data="cifar10",
    models=("mlp", "lenet"),
    n_train=10_000,
    n_test=2_000,
    indices=(1, 4, 16, 64, 256, 1000, 3000),
    epochs=60,
    baseline_epochs=60,
    eigenpairs=3000,
)
PAPER = EigenfunctionSpec(
    preset="paper",
    data="cifar10",
    indices=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000),
    baseline_epochs=200,
    eigenpairs=10_000,
)
CIFAR = {"tiny": TINY, "small": SMALL, "paper": PAPER}
ADAM = {
    name: replace(spec, optimizer="adam", lr=1e-3, models=("mlp", "lenet") if name == "tiny" else spec.models)
    for name, spec in CIFAR.items()
}
MNIST = {
    "tiny": replace(TINY, models=("mlp", "lenet")),
    "small": replace(SMALL, data="mnist", indices=(1, 4, 16, 64, 256, 500, 1000, 3000)),
    "paper": replace(PAPER, data="mnist", models=("mlp", "lenet")),
}
# Without the baseline and with the network alone: the same runs as figure 2's.
ALONE: dict[str, Any] = {"baseline": False, "forms": ("network",)}
RESNET = {
    "tiny": replace(TINY, models=("resnet18",), **ALONE),
    "small": replace(
        SMALL,
        models=("resnet18",),
        resnet_width=0.125,
        n_train=4000,
        indices=(1, 4, 16, 64, 256, 1000),
        epochs=20,
        **ALONE,
    ),
    "paper": replace(PAPER, models=("resnet18",), **ALONE),
}
MLP = {name: replace(spec, models=("mlp",), **ALONE) for name, spec in CIFAR.items()}
LENET = {name: replace(spec, models=("lenet",), **ALONE) for name, spec in CIFAR.items()}

_COST = {
    "tiny": "about 30 s on two cores, shared by figures 2, 3, 12 and 13",
    "small": "about 2 h on two cores; figures 12 and 13 share its runs",
    "paper": "a kernel of 60,000 samples (the authors: 32 h on 4 V100 for ResNet18), 84 runs of up to 40 min on a V100",
}
_RESNET_COST = {**_COST, "small": "about 2 h on two cores, with an eighth of ResNet18's channels"}
_SMALL_RESNET = "The small preset of figure 2 leaves ResNet18 out; that of figure 3 takes an eighth of its channels."


def _experiment(
    name: str,
    title: str,
    shows: str,
    presets: dict[str, EigenfunctionSpec],
    plot: Callable[[pd.DataFrame, EigenfunctionSpec], Figure] = plot_accuracy,
    claims: Callable[[pd.DataFrame, EigenfunctionSpec], list[Claim]] = claims_accuracy,
    cost: dict[str, str] = _COST,
    *more: str,
) -> Experiment:
    return Experiment(f"ortiz2021/{name}", title, shows, presets, run, plot, claims, cost, (*DEVIATIONS, *more))


_DYNAMICS = "Iterations to a training loss of 0.01, and l2 and cosine distance of the weights to initialisation, by j."
_ADAM = "Adam's learning rate is not stated; 0.001 is taken, falling linearly to zero."
EXPERIMENTS = (
    _experiment(
        "fig2",
        "Learning eigenfunctions of the kernel",
        "Test accuracy of MLP, LeNet and ResNet18 and their linearizations on sign(phi_j).",
        CIFAR,
        plot_accuracy,
        claims_accuracy,
        _COST,
        _SMALL_RESNET,
    ),
    _experiment("fig3", "Training dynamics, ResNet18", _DYNAMICS, RESNET, plot_dynamics, claims_dynamics, _RESNET_COST),
    _experiment(
        "fig10",
        "Learning eigenfunctions with Adam",
        "Figure 2 with Adam in place of SGD.",
        ADAM,
        plot_accuracy,
        claims_accuracy,
        _COST,
        _ADAM,
        _SMALL_RESNET,
    ),
    _experiment(
        "fig11",
        "Learning eigenfunctions on MNIST",
        "Figure 2 on MNIST, without ResNet18.",
        MNIST,
        plot_accuracy,
        claims_crossing,
    ),
    _experiment("fig12", "Training dynamics, MLP", _DYNAMICS, MLP, plot_dynamics, claims_dynamics),
    _experiment("fig13", "Training dynamics, LeNet", _DYNAMICS, LENET, plot_dynamics, claims_dynamics),
)
