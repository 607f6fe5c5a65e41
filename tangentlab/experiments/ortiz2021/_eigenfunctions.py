"""Networks and linearizations trained on binarized eigenfunctions of the kernel: spec, runs and presets."""

from dataclasses import dataclass, field, replace
from typing import Any, cast

import pandas as pd

from tangentlab._errors import TangentError
from tangentlab.experiments._context import Context
from tangentlab.experiments._eigenpairs import Eigenpairs, Eigenvalues
from tangentlab.experiments._linearized_tasks import together
from tangentlab.experiments._parts import Eigenfunction, FirstFive, LabeledImages
from tangentlab.experiments._roles import ROWS
from tangentlab.experiments._training import Form, Training, final, reached
from tangentlab.experiments.ortiz2021._setup import THRESHOLD, BinarySpec, model, spectrum, training


@dataclass(frozen=True, kw_only=True)
class EigenfunctionSpec(BinarySpec):
    """Networks and linearizations on the tasks sign(phi_j).

    Attributes:
        indices: The j, counted from 1.
        forms: ``"network"`` and ``"linearized"``, or one of them.
        baseline: Whether CIFAR2 (the first five classes against the rest) is learned too.
        baseline_epochs: Number of epochs on it; 0 for as many as on the eigenfunctions.
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
    """Return the eigenfunctions of a network's kernel at initialization."""
    return spectrum(spec, name, seed, context, max(spec.eigenpairs, *spec.indices, 1))


def unit(spec: EigenfunctionSpec, name: str, form: Form, j: int, seed: int, context: Context) -> Training:
    """Return the run on sign(phi_j), or on CIFAR2 for j = 0. The final weights of a network are stored."""
    network = model(spec, name, seed, context, trained=True)
    if j:
        pairs = eigenpairs(spec, name, seed, context)
        problem, epochs = LabeledImages(spec.images(seed), Eigenfunction(pairs, j)), spec.epochs
    else:
        problem, epochs = LabeledImages(spec.images(seed), FirstFive()), spec.baseline_epochs or spec.epochs
    run = training(spec, seed, epochs=epochs, every=1 if form == "network" and j else None)
    return Training(network, problem, run, form, keep=(-1,) if form == "network" else ())


def run(spec: EigenfunctionSpec, context: Context) -> pd.DataFrame:
    """Return one row per run: ``model``, ``form``, ``task`` ("eigenfunction" or "CIFAR2"), ``j``, ``eigenvalue`` (of
    the Gram matrix over N), ``seed``, accuracies, training loss, ``iterations`` (updates until the training loss,
    measured every epoch, was at most 0.01; missing if never), ``updates`` in all, ``distance_l2``, ``distance_cosine``,
    ``status``, ``seconds``."""
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
    shared, alone = together(units)
    context.compute(
        [*alone.values(), *(work for work, _ in shared.values()), *spectra.values()], "training on eigenfunctions"
    )
    eigenvalues = context.results(spectra)
    outcomes = context.results({place: work for place, (work, _) in shared.items()})
    trained = context.results(alone) | {
        place: outcomes[place]["outcomes"][number] for place, (_, number) in shared.items()
    }
    columns = ("test_accuracy", "train_accuracy", "train_loss", "distance_l2", "distance_cosine")
    rows = []
    for name, form, j, seed in units:
        result = trained[name, form, j, seed]
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


PAPER = EigenfunctionSpec(
    preset="paper",
    data="cifar10",
    indices=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000),
    baseline_epochs=200,
    eigenpairs=10_000,
    resnet_activation="gelu",
)
SMALL = replace(
    PAPER,
    preset="small",
    models=("mlp", "lenet"),
    n_train=10_000,
    n_test=2_000,
    indices=(1, 4, 16, 64, 256, 1000, 3000),
    epochs=60,
    baseline_epochs=60,
    eigenpairs=3000,
    resnet_activation="relu",
)
TINY = replace(
    PAPER,
    preset="tiny",
    data="digits",
    resnet_width=0.0625,
    n_train=512,
    indices=(1, 5, 25, 100),
    epochs=10,
    baseline_epochs=0,
    batch_size=64,
    eigenpairs=200,
    resnet_activation="relu",
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
