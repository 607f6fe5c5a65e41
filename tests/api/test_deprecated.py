"""Former names work, warn, and name their successors."""

import pickle
import warnings

import pytest
import torch

from tangentlab import data, experiments, plot, store, training
from tangentlab._deprecated import REMOVED_IN, renamed_arguments, renamed_names
from tangentlab.experiments._work import describe


@pytest.mark.parametrize(
    ("package", "old", "new"),
    [
        (store, "unpack", "copy"),
        (data, "Normalisation", "Normalization"),
        (experiments, "Work", "UnitOfWork"),
        (experiments, "Spectrum", "Eigenpairs"),
    ],
)
def test_former_names(package: object, old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=rf"{old} is now .*{new}.*removed in tangentlab {REMOVED_IN}") as seen:
        assert getattr(package, old) is getattr(package, new)
    assert seen[0].filename == __file__


def test_other_names_are_unknown() -> None:
    with pytest.raises(AttributeError, match="'x' has no attribute 'c'"):
        renamed_names("x", {"a": "b"})("c")


def test_former_arguments() -> None:
    with pytest.warns(DeprecationWarning, match="normalisation= of Squared is now normalization=") as seen:
        loss = training.Squared(normalisation="half")  # type: ignore[call-arg]
    assert loss == training.Squared(normalization="half")
    assert seen[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="normalise= of spectrum is now normalize="):
        plot.spectrum(torch.tensor([2.0, 1.0]), normalise=False)


def test_both_names_of_one_argument() -> None:
    @renamed_arguments(old="new")
    def function(new: int) -> int:
        return new

    with pytest.raises(TypeError, match="both old= and new="):
        function(old=1, new=2)  # type: ignore[call-arg]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert function(new=2) == function(2) == 2


def test_former_attributes() -> None:
    digits = data.load("digits", n_train=20, n_test=10)
    for value in (digits, digits.train):
        with pytest.warns(DeprecationWarning, match=r"\.normalisation is now .*\.normalization"):
            assert value.normalisation is digits.normalization
    assert pickle.loads(pickle.dumps(digits.train)).normalization == digits.normalization


def test_stored_results_keep_their_names() -> None:
    """Records and names of finished work are as they were before the argument was renamed."""
    assert describe(training.Squared("sum")) == {"kind": "Squared", "normalisation": "sum", "threshold": 0.0}
    spec = training.TrainingSpec(epochs=1, batch_size=2, loss=training.Squared("sum"))
    assert spec.describe()["spec.loss.normalisation"] == "sum"
