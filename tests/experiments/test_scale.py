"""What a run can decide, by its size against the presets."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tangentlab.experiments import Spec, Verdict, available, get, spec_of
from tangentlab.experiments._scale import differences, images
from tangentlab.experiments.ortiz2021._eigenfunction_figures import claims_dynamics
from tangentlab.experiments.samarin2022._widths import claims_for


def small(name: str, **overrides: Any) -> Spec:
    return spec_of(get(name), "small", overrides)


def test_presets_decide_what_they_are_for() -> None:
    for experiment in available():
        paper = spec_of(experiment, "paper")
        assert (paper.less, paper.unlike) == ("", ""), experiment.id
        assert paper.shortage("paper") == ""
        assert spec_of(experiment, "small").less == "", experiment.id
        tiny = spec_of(experiment, "tiny", {"seeds": 9})
        assert "replaces the paper" in tiny.shortage()


@pytest.mark.parametrize(
    ("name", "overrides", "reason"),
    [
        ("samarin2022/fig2", {"epochs": 14}, "14 epochs of 10,000 images are less training"),
        ("samarin2022/fig2", {"n_train": 9999, "epochs": 1000}, "9,999 training images are fewer"),
        ("samarin2022/fig2", {"n_train": None, "epochs": 2}, "2 epochs of 60,000 images are less"),
        ("samarin2022/fig2", {"n_test": 5000}, "5,000 test images are fewer than the small preset's 10,000"),
        ("samarin2022/fig2", {"batch_size": 64}, "fewer updates"),
        ("samarin2022/fig2", {"data": "cifar10"}, "cifar10 is not the paper's data"),
        ("samarin2022/fig6", {"samples": 599}, "599 samples of the kernel"),
        ("samarin2022/fig6", {"sets": ("digits",)}, "digits is not"),
        ("ortiz2021/table1", {"epochs": 199, "checkpoints": (0, 199)}, "less training"),
        ("ortiz2021/fig5", {"sizes": (100, 200, 300, 400)}, "400 images of the largest training set"),
        ("ortiz2021/fig5", {"sizes": (5000, 10_000), "epochs": 40}, "less training"),
        ("samarin2022/table1", {"solver_sizes": (1000, 3000)}, "3,000 training points of the solver are fewer"),
    ],
)
def test_less_than_small(name: str, overrides: dict[str, Any], reason: str) -> None:
    spec = small(name, **overrides)
    assert reason in spec.less
    assert spec.shortage() == spec.shortage("paper") == spec.less


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("ortiz2021/fig2", {"n_train": None, "n_test": None, "epochs": 12}),  # 50,000 * 12 = 10,000 * 60
        ("samarin2022/fig2", {"n_train": 20_000, "epochs": 8}),
        ("samarin2022/fig2", {"widths": (1.0,), "seeds": 3}),
        ("samarin2022/table1", {"methods": ("solver",), "epochs": 1}),  # which trains nothing
        ("samarin2022/table1", {"solver_sizes": (1000, 10_000)}),
        ("mohamadi2022/fig3", {"n_train": 1000, "epochs": 40, "checkpoints": (0, 40)}),
    ],
)
def test_not_less_than_small(name: str, overrides: dict[str, Any]) -> None:
    assert small(name, **overrides).shortage() == ""


@given(n_train=st.integers(1, 60_000), epochs=st.integers(1, 200))
def test_the_rule_itself(n_train: int, epochs: int) -> None:
    base = get("samarin2022/fig2").presets["small"]
    enough = n_train >= base.n_train and n_train * epochs >= base.n_train * base.epochs
    assert (small("samarin2022/fig2", n_train=n_train, epochs=epochs).less == "") == enough


def test_other_data_is_no_ones_to_switch_off() -> None:
    assert "Other data" in small("samarin2022/fig5").shortage()
    assert "not the paper's data" in small("samarin2022/fig5", substitute=False).shortage()


def test_the_papers_settings_count_not_the_presets_name() -> None:
    as_published = small("samarin2022/table1", n_train=60_000, epochs=200, widths=(1.0, 2.0))
    assert as_published.shortage("paper") == ""
    shorter = spec_of(get("samarin2022/table1"), "paper", {"epochs": 100})
    assert shorter.shortage() == ""
    assert "epochs = 100 (paper: 200)" in shorter.shortage("paper")
    assert "lr = 0.1 (paper: 0.01)" in spec_of(get("samarin2022/table1"), "paper", {"lr": 0.1}).shortage("paper")
    assert "linear_lr" in spec_of(get("samarin2022/fig2"), "paper", {"linear_lr": (1.0,)}).shortage("paper")
    table = get("ortiz2021/table1")
    assert spec_of(table, "small", {"models": ("mlp",), "checkpoints": (0, 1, 5, 200)}).shortage("paper") == ""
    assert "checkpoints" in spec_of(table, "small", {"checkpoints": (0, 100)}).shortage("paper")
    narrow = {"resnet_width": 0.125, "models": ("lenet",)}
    assert spec_of(table, "small", narrow).shortage("paper") == ""
    assert "resnet_width = 0.125" in spec_of(table, "small", {**narrow, "models": ("resnet18",)}).shortage("paper")


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
    spec = spec_of(get("samarin2022/fig4"), "paper", {"widths": (1.0,), "seeds": 2})
    rows = [
        (1.0, seed, model, 0.1, 0.6 if model == "network" else 0.4)
        for seed in (0, 1)
        for model in ("network", "linearized")
    ]
    table = pd.DataFrame(rows, columns=["width", "seed", "model", "lr", "test_accuracy"])
    found = {claim.statement: claim for claim in claims_for("fig4")(table, spec)}
    assert found["The gap in test accuracy at width x1"].verdict == Verdict.HOLDS  # 20 points; the paper: 20.22
    assert found["The gap in test accuracy at width x60"].agrees is None
    for statement in ("The gap shrinks with width", "Width helps the linearization more than the network"):
        assert found[statement].explanation == "One width was run."
    widest = found["The widest linearization beats the network of standard width"]
    assert (widest.verdict, widest.explanation) == (Verdict.UNDECIDED, "The paper's width is x60; here x1.")


@pytest.mark.parametrize(("missing", "verdict"), [(2, Verdict.HOLDS), (3, Verdict.UNDECIDED)])
def test_runs_that_miss_the_loss(missing: int, verdict: Verdict) -> None:
    spec = small("ortiz2021/fig12", indices=(1, 10, 100, 1000))
    iterations = [10.0, 20.0, 30.0, 40.0]
    iterations[len(iterations) - missing :] = [np.nan] * missing
    table = pd.DataFrame(
        {
            "task": "eigenfunction",
            "form": "network",
            "j": [1, 10, 100, 1000],
            "iterations": iterations,
            "updates": 99.0,
            "distance_l2": [1.0, 2.0, 3.0, 4.0],
            "distance_cosine": [1.0, 2.0, 3.0, 4.0],
        }
    )
    first, *others = claims_dynamics(table, spec)
    assert first.verdict == verdict
    assert all(claim.verdict == Verdict.HOLDS for claim in others)
