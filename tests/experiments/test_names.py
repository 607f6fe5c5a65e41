"""Names that were changed: old code is told, and old results are found."""

from pathlib import Path

import pytest

from tangentlab import experiments
from tangentlab.experiments import Context, Eigenpairs, Settings, UnitOfWork, get
from tangentlab.experiments._parts import Images, Model, Weights
from tangentlab.experiments._record import Result
from tangentlab.experiments.mohamadi2022._agreement import KernelAgreement
from tangentlab.experiments.ortiz2021._eigenfunctions import eigenpairs, unit
from tangentlab.experiments.samarin2022._setup import runs


@pytest.mark.parametrize(("old", "new"), [("Work", UnitOfWork), ("Spectrum", Eigenpairs)])
def test_former_names(old: str, new: type) -> None:
    with pytest.warns(DeprecationWarning, match=rf"experiments\.{old} is now tangentlab\.experiments\.{new.__name__}"):
        assert getattr(experiments, old) is new
    assert old not in experiments.__all__


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Unknown'"):
        _ = experiments.Unknown


@pytest.mark.parametrize("computed", [True, False])
def test_repeated_was_computed(computed: bool) -> None:
    result = Result("a/b", Path("."), None, {}, computed)  # type: ignore[arg-type]
    with pytest.warns(DeprecationWarning, match="Result.computed"):
        assert result.repeated is computed


def test_results_of_renamed_classes_are_found(tmp_path: Path) -> None:
    """Keys as version 0.1 wrote them; what lies in a cache is not computed again for a name."""
    context = Context(Settings(str(tmp_path)))
    spec = get("ortiz2021/fig2").presets["tiny"]
    network = Weights(Model("fcn", (1, 8, 8), 10, options=(("hidden", 64),)))
    linearized = runs(get("samarin2022/fig2").presets["tiny"], 1.0, 0, context)["linearized", 0.1]
    assert eigenpairs(spec, "mlp", 0, context).key == "spectrum-b79bfa6a815a83941a345c43"
    assert unit(spec, "lenet", "network", 5, 0, context).key == "training-cac2c2aa3a948a9eaa687a89"
    assert KernelAgreement(network, Images("digits", 30, 60)).key == "agreement-b758daa17a9d1f28a7917b1b"
    assert linearized.key == "training-c8f46dbc2bd8f0491c34e7bb"
