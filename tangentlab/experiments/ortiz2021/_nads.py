"""Figures 4 and 9: neural anisotropy directions, and learning linear predictors along them."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from tangentlab.experiments import _charts as charts
from tangentlab.experiments._context import Context
from tangentlab.experiments._experiment import Experiment
from tangentlab.experiments._figure import Figure
from tangentlab.experiments._parts import Model, Weights
from tangentlab.experiments._roles import ROWS
from tangentlab.experiments._training import Training, ending
from tangentlab.experiments._verdicts import Examined, greater, identity
from tangentlab.experiments.ortiz2021._directions import AlongDirection, Directions
from tangentlab.experiments.ortiz2021._forms import FORMS, accuracy_falls, accuracy_panel, lead
from tangentlab.experiments.ortiz2021._setup import NAMES, BinarySpec, model, training


@dataclass(frozen=True, kw_only=True)
class NadSpec(BinarySpec):
    """Linear tasks along NADs.

    Attributes:
        side: Side of the square inputs of one channel.
        indices: NADs to learn, counted from 1.
        directions: How many NADs are computed; at least the largest index.
        n_train: Samples drawn for training.
        n_test: Samples drawn for testing.
        epsilon: Half the distance of the classes.
        sigma: Standard deviation of the noise.
        activation: Activation of the networks.
    """

    data: str = "drawn"
    models: tuple[str, ...] = ("lenet", "resnet18")
    side: int = 32
    indices: tuple[int, ...] = field(metadata=ROWS)
    directions: int = field(metadata=ROWS)
    n_train: int | None = 10_000
    n_test: int | None = 10_000
    epsilon: float = 1.0
    sigma: float = 1.0
    activation: str = "gelu"


def network(spec: NadSpec, name: str, seed: int, context: Context) -> Model:
    """Return the network on square inputs of one channel, with a smooth activation."""
    base = model(spec, name, seed, context, shape=(1, spec.side, spec.side))
    return Model(**{**vars(base), "activation": spec.activation})


def run(spec: NadSpec, context: Context) -> pd.DataFrame:
    """Return one row per run: ``model``, ``form``, ``index``, ``seed``, ``test_accuracy``, ``train_accuracy``,
    ``singular_value``, ``alignment`` (its square, predicted by Theorem 1) and ``status``."""
    units, sources = {}, {}
    for name in spec.models:
        for seed in spec.seed_list:
            net = network(spec, name, seed, context)
            nads = sources[name, seed] = Directions(Weights(net), max(spec.directions, *spec.indices))
            for index in spec.indices:
                problem = AlongDirection(
                    nads, index, spec.n_train or 10_000, spec.n_test or 10_000, spec.epsilon, spec.sigma, seed
                )
                for form in FORMS:
                    units[name, form, index, seed] = Training(net, problem, training(spec, seed), form)
    results = context.results(units, "learning linear predictors")
    found = context.results(sources)
    rows = []
    for (name, form, index, seed), result in results.items():
        value = float(found[name, seed]["singular_values"][index - 1])
        place = {"model": name, "form": form, "index": index, "seed": seed}
        accuracy = ending(result, ("test_accuracy", "train_accuracy"))
        spectrum = {"singular_value": value, "alignment": value**2}
        rows.append({**place, **accuracy, **spectrum, "status": result["status"]})
    return pd.DataFrame(rows)


def plot(table: pd.DataFrame, spec: NadSpec) -> Figure:
    """Plot accuracy against the index of the NAD, with one panel per network, and the predicted alignments."""
    panels = [accuracy_panel(table[table["model"] == name], name, "index", "NAD index") for name in spec.models]
    once = table[table["form"] == "network"].assign(model=lambda t: t["model"].map(NAMES))
    panels.append(
        charts.lines(
            once,
            "index",
            "alignment",
            "model",
            title="Predicted alignment",
            x_title="NAD index",
            y_title="alignment",
            log_x=True,
            log_y=True,
        )
    )
    return Figure(panels, caption="Linearly separable tasks along NADs; right, the alignment that Theorem 1 predicts.")


def claims(table: pd.DataFrame, spec: NadSpec) -> list[Examined]:
    """Judge whether accuracy falls with the index, and whether the network is ahead of its linearization."""
    result = []
    for name in spec.models:
        part = table[table["model"] == name]
        result += accuracy_falls(part, name, "index", "NADs", paper="better on predictors with a higher alignment")
        statement = f"{NAMES[name]} is ahead of its linearization on NADs"
        statistic = "network minus linearization, test accuracy, mean over tasks"
        result.append(greater(statement, statistic, lead(part, "index"), paper="a strong non-linear advantage"))
    return result


def run_pictures(spec: NadSpec, context: Context) -> pd.DataFrame:
    """Return one row per pixel of a NAD of the first seed: ``model``, ``index``, ``singular_value``, ``row``,
    ``column``, ``value``."""
    parts = []
    for name in spec.models:
        found = context.get(Directions(Weights(network(spec, name, spec.seed, context)), spec.directions))
        images = found["directions"][:, 0].numpy()
        for index, image in enumerate(images, 1):
            rows, columns = np.indices(image.shape)
            parts.append(
                pd.DataFrame(
                    {
                        "model": name,
                        "index": index,
                        "singular_value": float(found["singular_values"][index - 1]),
                        "row": rows.ravel(),
                        "column": columns.ravel(),
                        "value": image.ravel(),
                    }
                )
            )
    return pd.concat(parts, ignore_index=True)


def _images(table: pd.DataFrame) -> dict[tuple[str, int], Any]:
    return {
        (str(name), int(index)): part.pivot(index="row", columns="column", values="value").to_numpy()
        for (name, index), part in table.groupby(["model", "index"], sort=False)
    }


def plot_pictures(table: pd.DataFrame, spec: NadSpec) -> Figure:
    """Plot each NAD in space and the magnitude of its Fourier transform, with one panel per network."""
    panels = []
    images = _images(table)
    for name in spec.models:
        own = [(index, image) for (model_name, index), image in images.items() if model_name == name][:10]
        spatial = [(str(index), "space", image) for index, image in own]
        fourier = [(str(index), "frequency", np.abs(np.fft.fftshift(np.fft.fft2(image)))) for index, image in own]
        labels, rows, pictures = zip(*(spatial + fourier), strict=True)
        panels.append(charts.pictures(pictures, labels, rows, title=NAMES[name]))
    return Figure(panels, columns=1, caption="The first NADs in space, and the magnitude of their Fourier transforms.")


def claims_pictures(table: pd.DataFrame, spec: NadSpec) -> list[Examined]:
    """Judge whether the directions are orthonormal, which is all that can be checked of a picture."""
    result = []
    for name in spec.models:
        rows = np.stack([image.ravel() for (own, _), image in _images(table).items() if own == name])
        error = float(np.abs(rows @ rows.T - np.eye(len(rows))).max())
        result.append(identity(f"The NADs of {NAMES[name]} are orthonormal", "largest error of V V^T = I", error, 1e-8))
    return result


_TASKS = NadSpec(
    preset="paper", indices=(1, 10, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000), directions=1024
)
_SMALL_INPUTS: dict[str, Any] = {"preset": "tiny", "side": 8, "resnet_width": 0.0625}
TASKS = {
    "tiny": replace(
        _TASKS,
        **_SMALL_INPUTS,
        indices=(1, 4, 16, 64),
        directions=64,
        n_train=400,
        n_test=400,
        epochs=6,
        batch_size=32,
    ),
    "small": replace(
        _TASKS,
        preset="small",
        models=("lenet",),
        indices=(1, 10, 50, 100, 300, 600, 1000),
        directions=1000,
        epochs=30,
    ),
    "paper": _TASKS,
}
_PICTURES = NadSpec(preset="paper", indices=(1,), directions=10)
PICTURES = {
    "tiny": replace(_PICTURES, **_SMALL_INPUTS),
    "small": replace(_PICTURES, preset="small", resnet_width=0.125),
    "paper": _PICTURES,
}
DEVIATIONS = (
    "The mixed derivative is taken at x = 0 with GELU, as the paper does.",
    "epsilon = 1 as in the paper's text; the authors' code scales y u by epsilon / 2.",
)

EXPERIMENTS = (
    Experiment(
        "ortiz2021/fig4",
        "Learning linear predictors along NADs",
        "Accuracy of networks and linearizations on D(u) against the index of the NAD u, and the predicted alignment.",
        TASKS,
        run,
        plot,
        claims,
        {
            "tiny": "about 30 s on two cores",
            "small": "about 1 h on two cores, LeNet",
            "paper": "26 runs of network and linearization on a GPU, and 1,024 double backward passes",
        },
        (*DEVIATIONS, "The small preset leaves ResNet18 out."),
    ),
    Experiment(
        "ortiz2021/fig9",
        "Pictures of NADs",
        "The first ten NADs of LeNet and ResNet18 in space and frequency.",
        PICTURES,
        run_pictures,
        plot_pictures,
        claims_pictures,
        {"tiny": "a few seconds", "small": "about 5 min on two cores", "paper": "minutes on a GPU"},
        (DEVIATIONS[0], "The small preset takes an eighth of ResNet18's channels."),
    ),
)
