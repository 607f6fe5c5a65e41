"""What a target may be: one rule for every function that takes targets, by a table of functions and kinds."""

import math
from collections.abc import Callable
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from torch import Tensor

from tangentlab import NTKOperator, TangentError, analysis, linalg, ntk, plot
from tangentlab.training import GradientFlow, TrainingResult
from tests.analysis.problems import rows, smooth

N, O = 7, 3  # noqa: E741
NETWORK = smooth(outputs=O, width=20)
X, NEW = rows(N), rows(4, seed=1)
FULL, PSEUDO = ntk(NETWORK, X), ntk(NETWORK, X, readout="pntk")
CROSS = ntk(NETWORK, NEW, X, readout="pntk")
CLASSES = torch.tensor([0, 1, 2, 1, 0, 2, 2])
ONE_HOT = torch.nn.functional.one_hot(CLASSES).double()


def run(name: str, vectors: Tensor) -> Any:
    """A training result with the spectrum of a kernel at two epochs."""
    spectrum = linalg.eigh(vectors)
    value = {"values": spectrum.values, "vectors": spectrum.vectors.float(), "residuals": spectrum.residuals}
    result = TrainingResult.__new__(TrainingResult)
    object.__setattr__(result, "values", {name: {0: value, 1: value}})
    return result


KERNELS: dict[str, Any] = {
    "pseudo": PSEUDO,
    "full": FULL,
    "flat": FULL.reshape(N * O, N * O),
    "operator": NTKOperator(NETWORK, X),
}

FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "regress": lambda k, y: linalg.regress(k, y, ridge=0.1).coefficients,
    "ridge_path": lambda k, y: linalg.ridge_path(k, y, [0.1]).leave_one_out,
    "predicted_error": lambda k, y: analysis.predicted_error(k, y, [0.1]).table["gcv"].to_numpy(),
    "alignment": analysis.alignment,
    "energy_concentration": lambda k, y: analysis.energy_concentration(k, y, k=2),
    "energy_concentration of a spectrum": lambda k, y: analysis.energy_concentration(linalg.eigh(k), y, k=2),
    "rkhs_norm": lambda k, y: analysis.rkhs_norm(k, y, ridge=0.1),
    "lemma1_bound": analysis.lemma1_bound,
    "generalization_bound": lambda k, y: analysis.generalization_bound(k, y, ridge=0.1),
}
MATRICES: dict[str, Callable[[Any, Any], Any]] = {
    "GradientFlow": lambda k, y: GradientFlow(k, y).predict(0.5),
    "along_training": lambda k, y: analysis.along_training(run("spectrum", k), y, k=2)["energy"].to_numpy(),
}
EVERY = {**FUNCTIONS, **MATRICES}


def numbers(found: Any) -> Tensor:
    values = torch.as_tensor(np.asarray(found)).double()
    assert bool(torch.isfinite(values).all())
    return values


REFUSED: dict[str, Any] = {
    "class numbers": CLASSES,
    "class numbers in a column": CLASSES[:, None],
    "class numbers of a byte": CLASSES.to(torch.uint8),
    "class numbers of NumPy": CLASSES.numpy(),
    "class numbers in a list": CLASSES.tolist(),
    "one too many": torch.ones(N + 1).double(),
    "one too few, one-hot": ONE_HOT[:-1],
    "NaN": torch.full((N,), math.nan),
    "infinite": torch.full((N,), math.inf),
    "complex": torch.ones(N, dtype=torch.complex64),
    "names": ["cat"] * N,
    "None": None,
    "no columns": torch.ones(N, 0),
    "a number": torch.tensor(1.0),
    "five dimensions": torch.ones(N, 1, 1, 1, 1),
}
ACCEPTED: dict[str, Any] = {
    "signs": torch.tensor([-1.0, 1, 1, -1, 1, -1, -1]),
    "whole signs": torch.tensor([-1, 1, 1, -1, 1, -1, -1]),
    "two classes": torch.tensor([0, 1, 1, 0, 1, 0, 0]),
    "bool": torch.tensor([False, True, True, False, True, False, False]),
    "quantities": rows(N, 1)[:, 0],
    "float32": rows(N, 1)[:, 0].float(),
    "a column": rows(N, 1),
    "an array": rows(N, 1)[:, 0].numpy(),
    "a list": rows(N, 1)[:, 0].tolist(),
    "class numbers declared as quantities": CLASSES.double(),
}
ONE_VALUE = ["along_training"]
"""Functions that report one target."""


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("name", EVERY)
def test_refused_by_every_function(name: str, kind: str) -> None:
    with pytest.raises(TangentError):
        EVERY[name](PSEUDO, REFUSED[kind])


@pytest.mark.parametrize("name", EVERY)
def test_class_numbers_are_refused_with_the_remedy(name: str) -> None:
    for kernel in (PSEUDO, FULL):
        with pytest.raises(TangentError, match=r"integers of 3 values[\s\S]*one_hot"):
            EVERY[name](kernel, CLASSES)


@pytest.mark.parametrize("kind", ACCEPTED)
@pytest.mark.parametrize("name", EVERY)
def test_accepted_by_every_function(name: str, kind: str) -> None:
    y = ACCEPTED[kind]
    found = numbers(EVERY[name](PSEUDO, y)).flatten()
    plain = torch.as_tensor(np.asarray(y)).double().flatten()
    torch.testing.assert_close(found, numbers(EVERY[name](PSEUDO, plain)).flatten(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", [name for name in EVERY if name not in ONE_VALUE])
def test_one_kernel_for_every_column_of_one_hot_targets(name: str) -> None:
    """(N, O) with a pNTK: column by column."""
    for targets in (ONE_HOT, ONE_HOT.long(), ONE_HOT.numpy()):
        found = numbers(EVERY[name](PSEUDO, targets))
        columns = [numbers(EVERY[name](PSEUDO, ONE_HOT[:, o])).flatten() for o in range(O)]
        if found.numel() == 1:  # a mean over columns
            torch.testing.assert_close(found.flatten(), torch.stack(columns).mean(0))
        else:
            torch.testing.assert_close(found.reshape(-1, O), torch.stack(columns, -1).reshape(-1, O))


@pytest.mark.parametrize("form", ["full", "flat", "operator"])
@pytest.mark.parametrize("name", EVERY)
def test_full_kernel_and_one_hot_targets_fit(name: str, form: str) -> None:
    """(N, O) with a kernel of N O rows is one target, as is the flat (N O,)."""
    if name in MATRICES and form == "operator":
        return
    if name == "GradientFlow" and form == "flat":
        wanted = numbers(GradientFlow(KERNELS["flat"], ONE_HOT.flatten()).predict(0.5))
    else:
        wanted = numbers(EVERY[name](KERNELS["flat"], ONE_HOT.flatten()))
    for targets in (ONE_HOT, ONE_HOT.long(), ONE_HOT.float().numpy(), ONE_HOT.flatten()):
        found = numbers(EVERY[name](KERNELS[form], targets))
        tolerance = {"rtol": 1e-6, "atol": 1e-9}
        per_sample = {"alignment": O**2, "lemma1_bound": 1.0, "generalization_bound": 1.0}.get(name, 1.0)
        if name in ("alignment", "lemma1_bound", "generalization_bound"):
            # The mean runs over samples, whose number a flat kernel and flat targets do not tell.
            known = form != "flat" or torch.as_tensor(targets).ndim == 2
            factor = per_sample if known and name == "alignment" else 1.0
            if name == "generalization_bound":
                factor = math.sqrt(O) * math.sqrt(O) if known else 1.0
            torch.testing.assert_close(found.flatten(), factor * wanted.flatten(), **tolerance)
        else:
            torch.testing.assert_close(found.flatten(), wanted.flatten(), **tolerance)


def test_results_of_full_kernels_by_their_definitions() -> None:
    flat, y = FULL.reshape(N * O, N * O), ONE_HOT.flatten()
    torch.testing.assert_close(analysis.alignment(FULL, ONE_HOT), y @ flat @ y / N**2)
    torch.testing.assert_close(analysis.rkhs_norm(FULL, ONE_HOT), y @ torch.linalg.solve(flat, y))
    torch.testing.assert_close(analysis.lemma1_bound(FULL, ONE_HOT), (y @ y / N) ** 2 / (y @ flat @ y / N**2))
    vectors = torch.linalg.eigh(flat).eigenvectors[:, -4:]
    torch.testing.assert_close(analysis.energy_concentration(FULL, ONE_HOT, 4), (vectors.T @ y).norm() / y.norm())
    flow = GradientFlow(FULL, ONE_HOT)
    assert flow.predict(0.5).shape == (N, O)
    torch.testing.assert_close(GradientFlow(FULL, y).predict(0.5), flow.predict(0.5).flatten())
    cross = ntk(NETWORK, NEW, X)
    torch.testing.assert_close(GradientFlow(FULL, y).predict(0.5, cross), flow.predict(0.5, cross).flatten())
    fits = linalg.regress(FULL, ONE_HOT, ridge=0.1), linalg.regress(FULL, y, ridge=0.1)
    torch.testing.assert_close(fits[0].predict(cross).flatten(), fits[1].predict(cross))
    several = torch.stack([ONE_HOT, rows(N, O)], -1)
    for name in ("alignment", "rkhs_norm", "lemma1_bound"):
        both = getattr(analysis, name)(FULL, several)
        torch.testing.assert_close(both[0], getattr(analysis, name)(FULL, ONE_HOT))
        torch.testing.assert_close(both, getattr(analysis, name)(FULL, several.flatten(0, 1)))


def test_minimum_norm_takes_the_same_targets() -> None:
    expected = analysis.minimum_norm(NETWORK, X, ONE_HOT, progress=False).coefficients
    for y in (ONE_HOT.long(), ONE_HOT.numpy(), ONE_HOT.flatten()):
        torch.testing.assert_close(analysis.minimum_norm(NETWORK, X, y, progress=False).coefficients, expected)
    for bad in (CLASSES, CLASSES[:, None], ONE_HOT[:-1], ONE_HOT * math.nan, None, ONE_HOT.T):
        with pytest.raises(TangentError):
            analysis.minimum_norm(NETWORK, X, bad)
    with pytest.raises(TangentError, match="one_hot"):
        analysis.minimum_norm(NETWORK, X, CLASSES, readout=0)


def test_regression_agreement_takes_the_same_targets() -> None:
    def both(y: Any, labels: Any = None) -> analysis.RegressionAgreement:
        cross = ntk(NETWORK, NEW, X)
        return analysis.regression_agreement(FULL, cross, PSEUDO, CROSS, y, labels=labels, ridge=0.1)

    expected = both(ONE_HOT)
    torch.testing.assert_close(both(ONE_HOT.long()).entk, expected.entk)
    torch.testing.assert_close(both(ONE_HOT.flatten()).pntk, expected.pntk)
    assert both(ONE_HOT, torch.tensor([0, 1, 2, 2])).entk_accuracy is not None
    for bad in (CLASSES, CLASSES[:, None], ONE_HOT[:-1], ONE_HOT * math.nan, "y"):
        with pytest.raises(TangentError):
            both(bad)
    for labels in ([0, 1, 2, 3], [0, 1, 2, -1], [0.5, 1, 2, 0], [0, 1, 2], ONE_HOT[:4]):
        with pytest.raises(TangentError, match=r"[Ll]abels"):
            both(ONE_HOT, labels)


def test_test_targets_of_predicted_error_have_the_shape_of_predictions() -> None:
    """(M, 1) against (M,) would be broadcast to M^2 differences."""
    y, truth = rows(N, 1)[:, 0], rows(4, 1)
    found = analysis.predicted_error(PSEUDO, y, [0.1], test=(CROSS, truth[:, 0]))
    guess = linalg.regress(PSEUDO, y, ridge=0.1).predict(CROSS)
    assert found.table["test_error"][0] == pytest.approx(float((guess - truth[:, 0]).square().mean()))
    column = analysis.predicted_error(PSEUDO, y[:, None], [0.1], test=(CROSS, truth))
    assert column.table["test_error"][0] == pytest.approx(found.table["test_error"][0])
    for bad in (truth, truth[:3, 0], torch.tensor([0, 1, 2, 3]), truth[:, 0] * math.nan):
        with pytest.raises(TangentError):
            analysis.predicted_error(PSEUDO, y, [0.1], test=(CROSS, bad))


def test_callbacks_refuse_class_numbers_before_training() -> None:
    with pytest.raises(TangentError, match="one_hot"):
        analysis.alignment_callback(X, CLASSES)


@pytest.mark.parametrize(
    "labels", [[0, 1], [0] * 6, [0] * 14, torch.zeros(7, 2), torch.zeros(0), [math.nan] * 7, "cats"]
)
def test_labels_of_another_length_are_refused_by_the_heat_map(labels: Any) -> None:
    with pytest.raises(TangentError, match="label"):
        plot.kernel(PSEUDO, labels)
    with pytest.raises(TangentError, match="label"):
        plot.kernel(torch.eye(14).reshape(7, 2, 7, 2), labels)
    plt.close("all")


def test_labels_of_its_samples_are_taken_by_the_heat_map() -> None:
    twelve = torch.eye(12)
    with pytest.raises(TangentError, match="label"):
        plot.kernel(twelve, [0, 1, 0, 1])  # a divisor of the rows is not their number
    for labels in (CLASSES, CLASSES[:, None], CLASSES.double(), CLASSES.tolist()):
        ax = plot.kernel(PSEUDO, labels, cosine=False)
        order = CLASSES.argsort(stable=True)
        assert np.array_equal(ax.images[0].get_array(), PSEUDO[order][:, order])
    plt.close("all")
