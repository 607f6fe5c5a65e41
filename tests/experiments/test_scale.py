"""Where a run tests claims, by its settings against the paper preset."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from tangentlab.experiments import Scope, Spec, Verdict, available, get, spec_of
from tangentlab.experiments._scale import differences, images, scope_of
from tangentlab.experiments._verdicts import settle
from tangentlab.experiments.ortiz2021._eigenfunction_figures import claims_dynamics
from tangentlab.experiments.samarin2022._widths import claims_for


def small(name: str, **overrides: Any) -> Spec:
    return spec_of(get(name), "small", overrides)


def scope(name: str, preset: str = "small", **overrides: Any) -> tuple[Scope, str]:
    experiment = get(name)
    return scope_of(spec_of(experiment, preset, overrides), experiment.presets["paper"])


def test_presets() -> None:
    for experiment in available():
        assert scope(experiment.id, "paper") == (Scope.PUBLISHED, "")
        assert scope(experiment.id, "paper", seeds=9, device="cpu")[0] == Scope.PUBLISHED
        kinds = {Scope.OTHER} if "data" not in dir(spec_of(experiment, "tiny")) else {Scope.OTHER, Scope.REDUCED}
        assert scope(experiment.id, "tiny")[0] in kinds, experiment.id


@pytest.mark.parametrize(
    ("name", "overrides", "kind", "words"),
    [
        ("samarin2022/fig2", {"data": "cifar10"}, Scope.OTHER, "cifar10 in place of mnist"),
        ("samarin2022/fig6", {"sets": ("digits",)}, Scope.OTHER, "digits in place of mnist, mnist:shifted"),
        ("samarin2022/fig5", {}, Scope.OTHER, "cifar10 in place of snakes"),
        ("samarin2022/fig5", {"substitute": False}, Scope.OTHER, "cifar10 in place of snakes"),
        ("samarin2022/fig2", {"n_train": 500}, Scope.REDUCED, "n_train = 500 (paper: 60,000)"),
        ("samarin2022/fig6", {"samples": 300}, Scope.REDUCED, "samples = 300 (paper: 600)"),
        ("samarin2022/fig6", {"widths": (1.0,), "seeds": 3}, Scope.PUBLISHED, ""),
        ("ortiz2021/fig5", {"sizes": (100, 400)}, Scope.REDUCED, "sizes = 100, 400"),
        ("samarin2022/table1", {"n_train": 60_000, "epochs": 200, "solver_sizes": (0,)}, Scope.PUBLISHED, ""),
        (
            "samarin2022/table1",
            {"n_train": None, "methods": ("solver",), "solver_sizes": (1000,)},
            Scope.REDUCED,
            "solver_sizes = 1,000 (paper: 0)",
        ),
        ("samarin2022/table1", {"n_train": None, "methods": ("solver",), "solver_sizes": (9, 0)}, Scope.PUBLISHED, ""),
        ("ortiz2021/table1", {"models": ("mlp",), "checkpoints": (0, 1, 5, 200)}, Scope.PUBLISHED, ""),
        ("ortiz2021/table1", {"checkpoints": (0, 100)}, Scope.REDUCED, "checkpoints"),
        ("ortiz2021/table1", {"checkpoints": (0,), "epochs": 7}, Scope.PUBLISHED, ""),  # nothing is trained
        ("ortiz2021/table1", {"resnet_width": 0.125, "models": ("lenet",)}, Scope.PUBLISHED, ""),
        ("ortiz2021/table1", {"resnet_width": 0.125, "models": ("resnet18",)}, Scope.REDUCED, "resnet_width = 0.125"),
    ],
)
def test_scopes(name: str, overrides: dict[str, Any], kind: Scope, words: str) -> None:
    found, reduced = scope(name, **overrides)
    assert found == kind, reduced
    assert words in reduced


def test_differences() -> None:
    experiment = get("samarin2022/fig2")
    spec = small("samarin2022/fig2", seeds=3, n_train=None)
    assert differences(spec, experiment.presets["paper"]) == {
        "epochs": (15, 100),
        "seeds": (3, 5),
        "widths": ((1.0, 2.0, 5.0, 10.0), (1.0, 2.0, 5.0, 10.0, 25.0, 60.0)),
        "watch_every": (100, 2000),
    }
    assert images(spec) == 60_000
    assert images(get("samarin2022/fig5").presets["paper"]) is None


def test_one_width_shows_no_gain() -> None:
    """A claim about widths that were not run is not listed."""
    spec = spec_of(get("samarin2022/fig4"), "paper", {"widths": (1.0,), "seeds": 3})
    rows = [
        (1.0, seed, model, 0.1, 0.6 + seed / 1000 if model == "network" else 0.4)
        for seed in (0, 1, 2)
        for model in ("network", "linearized")
    ]
    table = pd.DataFrame(rows, columns=["width", "seed", "model", "lr", "test_accuracy"])
    found = {claim.statement: claim for claim in settle(claims_for("fig4")(table, spec))}
    assert set(found) == {
        "The gap in test accuracy at width x1",
        "The network outperforms its linearization at standard width",
    }
    assert all(claim.verdict == Verdict.HOLDS for claim in found.values())  # 20.1 points; the paper: 20.22


def test_runs_that_miss_the_loss_tie() -> None:
    spec = small("ortiz2021/fig12", indices=(1, 10, 100, 1000))
    table = pd.DataFrame(
        {
            "task": "eigenfunction",
            "form": "network",
            "seed": 0,
            "j": [1, 10, 100, 1000, 2000],
            "iterations": [10.0, 20.0, 30.0, np.nan, np.nan],
            "updates": 99.0,
            "distance_l2": [1.0, 2.0, 3.0, 4.0, 5.0],
            "distance_cosine": [1.0, 2.0, 3.0, 4.0, 5.0],
        }
    )
    first, *others = claims_dynamics(table, spec)
    assert first.evidence.value == pytest.approx(0.9747, abs=1e-3)
    assert first.evidence.holds == pytest.approx(2 / 120)  # either order of the two that tie
    assert all(each.evidence.holds == pytest.approx(1 / 120) for each in others)
