"""What single experiments must show, whatever the scale: rows, identities of the papers, and shared work."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tangentlab.experiments import Result, Verdict, get, reproduce
from tangentlab.experiments._context import Context, Settings
from tangentlab.experiments._parts import Images, Model, Weights
from tangentlab.experiments.mohamadi2022._full import PseudoRegression

Tiny = Callable[[str], Result]


def _computed(*results: Result) -> int:
    """Units of work that were computed for any of the results, whichever came first."""
    return sum(result.record["work"]["computed"] for result in results)


def test_eigenfunctions_have_a_row_a_run(tiny: Tiny) -> None:
    spec = get("ortiz2021/fig2").presets["tiny"]
    table = tiny("ortiz2021/fig2").table
    assert len(table) == len(spec.models) * 2 * (len(spec.indices) + 1)
    tasks = table[table.task == "eigenfunction"]
    assert (
        tasks.groupby(["model", "form"]).eigenvalue.diff().dropna() < 0
    ).all()  # indices ascend, eigenvalues descend
    first = tasks[tasks.j == 1].set_index(["model", "form"]).test_accuracy
    last = tasks[tasks.j == max(spec.indices)].set_index(["model", "form"]).test_accuracy
    assert (first > last).all()  # the first eigenfunction is the easiest for every model


@pytest.mark.parametrize(("name", "model"), [("fig3", "resnet18"), ("fig12", "mlp"), ("fig13", "lenet")])
def test_dynamics_are_of_figure_2s_runs(name: str, model: str, tiny: Tiny) -> None:
    whole = tiny("ortiz2021/fig2").table
    own = tiny(f"ortiz2021/{name}").table
    same = whole[(whole.model == model) & (whole.form == "network") & (whole.task == "eigenfunction")]
    for column in ("j", "test_accuracy", "distance_l2", "train_loss"):
        assert own[column].to_numpy() == pytest.approx(same[column].to_numpy(), rel=1e-12)


def test_the_lemma_holds(tiny: Tiny) -> None:
    result = tiny("ortiz2021/lemma1")
    assert result.verdicts() == {str(Verdict.HOLDS): 3}
    assert result.table.error.max() < 1e-8
    eigen = result.table[result.table.kind == "eigenfunction"]
    assert eigen.norm.to_numpy() == pytest.approx(eigen.bound.to_numpy(), rel=1e-5)  # equality for eigenfunctions


def test_the_theorem_holds(tiny: Tiny) -> None:
    result = tiny("ortiz2021/theorem1")
    assert result.verdicts() == {str(Verdict.HOLDS): 1}
    assert (result.table.mixed > 0).all()


def test_nads(tiny: Tiny) -> None:
    table = tiny("ortiz2021/fig4").table
    assert table.alignment.to_numpy() == pytest.approx(table.singular_value.to_numpy() ** 2, rel=1e-12)
    assert tiny("ortiz2021/fig9").verdicts() == {str(Verdict.HOLDS): 2}


def test_energy_is_a_share(tiny: Tiny) -> None:
    for name in ("fig6", "table1"):
        table = tiny(f"ortiz2021/{name}").table
        assert ((table.energy > 0) & (table.energy <= 1)).all()
        assert (
            table[table.epoch == table.epoch.max()].energy.to_numpy() > table[table.epoch == 0].energy.to_numpy()
        ).all()


def test_alignments_are_eigenvalues_at_the_start(tiny: Tiny) -> None:
    runs = tiny("ortiz2021/fig2").table
    table = tiny("ortiz2021/fig14").table
    tasks = runs[(runs.model == "mlp") & (runs.form == "network") & (runs.task == "eigenfunction")].set_index("j")
    for j in tasks.index:
        before = table[(table["index"] == j) & (table.trained == table.trained.min())].before.iloc[0]
        assert before == pytest.approx(tasks.eigenvalue[j], rel=1e-3)


def test_the_pretrained_kernel_starts_where_the_others_do(tiny: Tiny) -> None:
    table = tiny("ortiz2021/fig8").table
    start = table[table.epoch == 0].set_index("form")
    assert start.train_loss["network"] == pytest.approx(start.train_loss["linearized"], rel=1e-5)
    assert start.train_loss["pretrained"] == pytest.approx(np.log(2), rel=1e-5)  # unbiased: zero at the start


def test_the_solver_interpolates(tiny: Tiny) -> None:
    for name in ("table1", "table2"):
        table = tiny(f"samarin2022/{name}").table
        assert set(table.method) == {"network", "linearized", "solver"}
        assert (table[table.method == "solver"].train_accuracy == 1).all()


@pytest.mark.parametrize("methods", [("network", "linearized"), ("solver",), ("network",)])
def test_some_methods_alone_are_drawn_and_judged(methods: tuple[str, ...], tiny: Tiny) -> None:
    experiment, table = get("samarin2022/table1"), tiny("samarin2022/table1").table
    spec = replace(experiment.presets["tiny"], methods=methods)
    part = table[table.method.isin(methods)]
    assert experiment.plot(part, spec).vega_lite()
    statements = [claim.statement for claim in experiment.claims(part, spec)]
    assert any("interpolates" in text for text in statements) == ("solver" in methods)


def test_trajectories_start_together(tiny: Tiny) -> None:
    table = tiny("samarin2022/figA2").table
    start = table[table.step == 0]
    assert start.distance.to_numpy() == pytest.approx(0, abs=1e-7)
    assert (table[table.step == table.step.max()].distance > 0).all()


def test_ranks_are_of_the_singular_values(tiny: Tiny) -> None:
    ranks, values = tiny("samarin2022/fig6"), tiny("samarin2022/fig7")
    assert ranks.table.equals(values.table)
    matrices = ranks.table.groupby(["data", "width", "seed"]).ngroups
    assert _computed(ranks, values) == matrices  # one decomposition serves both
    assert (ranks.table.effective_rank < ranks.table.rows).all()
    assert (ranks.table.groupby(["data", "width"]).value.diff().dropna() <= 1e-12).all()


def test_pseudo_kernels(tiny: Tiny) -> None:
    table = tiny("mohamadi2022/fig9").table
    assert table.difference.to_numpy() == pytest.approx((table.pntk_accuracy - table.network_accuracy).to_numpy())
    last = table[table.epoch == table.epoch.max()]
    assert last.final_difference.to_numpy() == pytest.approx(last.difference.to_numpy())
    networks = table.groupby(["architecture", "width", "seed"]).ngroups
    four = [tiny(f"mohamadi2022/fig{i}") for i in range(9, 13)]
    # One run and one regression per epoch serve all four, whoever computed them: tests run side by side share them.
    assert {sum(result.record["work"].values()) for result in four} == {networks + len(table)}
    assert _computed(*four) <= networks + len(table)
    for name in range(3, 9):
        assert tiny(f"mohamadi2022/fig{name}").table.shape == tiny("mohamadi2022/fig2").table.shape


@pytest.mark.parametrize("figure", ["fig3", "fig7", "fig10", "fig12"])
def test_initialization_alone_trains_nothing(figure: str, tmp_path: Path) -> None:
    small = {"architectures": ("fcn",), "fcn_widths": (4, 8, 16, 32), "n_train": 40, "n_test": 40}
    result = reproduce(
        f"mohamadi2022/{figure}",
        "tiny",
        out=tmp_path,
        overrides={**small, "checkpoints": (0,)},
        progress=False,
    )
    assert result.record["work"]["computed"] == len(small["fcn_widths"])  # kernels, and no training
    experiment = get(f"mohamadi2022/{figure}")
    for claim in experiment.judge(result.table, replace(experiment.presets["paper"], checkpoints=(0,))):
        assert not any(word in claim.statement for word in ("training", "Trained", "final", "network gains")), claim


def test_the_pseudo_kernel_is_cheaper(tiny: Tiny) -> None:
    table = tiny("mohamadi2022/fig1").table
    assert (table.seconds > 0).all()
    assert set(table.kernel) == {"eNTK", "pNTK"}


def test_regression_on_a_kernel_in_float32_has_a_ridge_and_the_same_accuracy(tmp_path: Path) -> None:
    """As on all of CIFAR-10; here on the digits, where float64 fits too."""
    context = Context(Settings(str(tmp_path)))
    model = Model("fcn", (1, 8, 8), 10, options=(("hidden", 64),))
    units = [PseudoRegression(Weights(model), Images("digits", 600, 300), double) for double in (True, False)]
    exact, rounded = map(context.get, units)
    assert exact["ridge"] == 0 < rounded["ridge"]
    assert exact["pntk_accuracy"] > 0.9
    assert rounded["pntk_accuracy"] == pytest.approx(exact["pntk_accuracy"], abs=0.02)
