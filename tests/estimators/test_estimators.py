"""scikit-learn estimators: scikit-learn's own checks, its tools, and the regression they do."""

import pickle
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from tangentlab import TangentError, models, reference
from tangentlab.estimators import NTKClassifier, NTKRegressor


@parametrize_with_checks([NTKClassifier(), NTKRegressor()])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def digits(n=120):
    X, y = load_digits(return_X_y=True)
    return X[:n] / 16, y[:n], X[n : n + 60] / 16, y[n : n + 60]


def network(outputs, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, outputs)).double()


@pytest.mark.parametrize("readout", ["pntk", "full", 3])
@pytest.mark.parametrize("prior_mean", [True, False])
def test_regression_by_its_formula(readout, prior_mean):
    X, _, test, _ = digits(20)
    Y = np.random.default_rng(0).normal(size=(20, 4))
    model = network(4)
    found = NTKRegressor(model, readout=readout, ridge=0.3, prior_mean=prior_mean).fit(X, Y)
    x, z, y = (torch.from_numpy(a) for a in (X, test, Y))
    with torch.no_grad():
        f0, f0_test = (model(v) if prior_mean else torch.zeros(len(v), 4).double() for v in (x, z))
    kernel, cross = (reference.ntk(model, v, x, readout=readout) for v in (x, z))
    if readout == "full":
        a = torch.linalg.solve(kernel.reshape(80, 80) + 0.3 * torch.eye(80).double(), (y - f0).reshape(80))
        expected = f0_test + (cross.reshape(-1, 80) @ a).reshape(-1, 4)
    else:
        expected = f0_test + cross @ torch.linalg.solve(kernel + 0.3 * torch.eye(20).double(), y - f0)
    np.testing.assert_allclose(found.predict(test), expected.numpy(), rtol=1e-7, atol=1e-9)
    assert found.ridge_ == 0.3


def test_classifier_decides_by_the_largest_output_and_leaves_the_model_alone():
    X, y, test, truth = digits()
    model = network(10).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = NTKClassifier(model, ridge="gcv").fit(X, y)
    scores = found.decision_function(test)
    assert scores.shape == (60, 10)
    np.testing.assert_array_equal(found.predict(test), scores.argmax(1))
    assert found.score(test, truth) > 0.7
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not hasattr(found, "predict_proba")


def test_two_classes_with_one_or_two_outputs():
    X, y, test, truth = digits()
    names, real = np.where(y < 5, "low", "high"), np.where(truth < 5, "low", "high")
    for outputs in (1, 2):
        found = NTKClassifier(network(outputs), ridge=0.1).fit(X, names)
        decision = found.decision_function(test)
        assert decision.shape == (60,)
        np.testing.assert_array_equal(found.predict(test), found.classes_[(decision > 0).astype(int)])
        assert found.score(test, real) > 0.7


def test_images_by_a_factory():
    X, y, test, truth = digits()
    factory = partial(models.build, "lenet", variant="ortiz2021")
    found = NTKClassifier(factory, input_shape=(1, 8, 8), ridge="loo", ridges=[1e-3, 1e-1, 10.0]).fit(X, y)
    assert found.ridge_ in (1e-3, 1e-1, 10.0)
    assert found.score(test, truth) > 0.7
    again = NTKClassifier(factory, input_shape=(1, 8, 8), ridge=found.ridge_, random_state=1).fit(X, y)
    assert not np.allclose(again.decision_function(test), found.decision_function(test))
    single = NTKClassifier(factory, input_shape=(1, 8, 8), ridge=found.ridge_, dtype="float32").fit(X, y)
    assert np.mean(single.predict(test) == found.predict(test)) > 0.95


def test_in_scikit_learns_tools():
    X, y, test, truth = digits()
    pipe = make_pipeline(StandardScaler(), NTKClassifier(ridge=1.0))
    assert cross_val_score(pipe, X, y, cv=3).mean() > 0.6
    search = GridSearchCV(pipe, {"ntkclassifier__ridge": [1e-6, 1.0, 1e6]}, cv=3).fit(X, y)
    assert search.best_params_["ntkclassifier__ridge"] != 1e6
    assert search.score(test, truth) > 0.7
    best = search.best_estimator_
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(best)).predict(test), best.predict(test))
    twin = clone(NTKRegressor(network(1), ridge="gcv"))
    assert twin.ridge == "gcv"
    values = X @ np.linspace(-1, 1, 64)
    assert twin.fit(X, values).predict(test).shape == (60,)
    assert twin.score(test, test @ np.linspace(-1, 1, 64)) > 0.7


def test_refusals():
    X, y, *_ = digits(30)
    for options, message in (
        ({"ridge": "best"}, "ridge is 'best'"),
        ({"ridge": -1.0}, "ridge -1.0"),
        ({"dtype": "int8"}, "dtype is 'int8'"),
        ({"readout": "trace"}, "readout is 'trace'"),
        ({"input_shape": (1, 7, 7)}, "does not fit 64 features"),
        ({"model": 3}, "model is a int"),
        ({"model": lambda input_shape, outputs: 3}, "returned a int"),
        ({"model": network(7)}, "7 outputs for 10 classes"),
    ):
        with pytest.raises(TangentError, match=message):
            NTKClassifier(**options).fit(X, y)
    with pytest.raises(TangentError, match="one class"):
        NTKClassifier().fit(X, np.zeros(30))
    with pytest.raises(TangentError, match="7 outputs for 1 targets"):
        NTKRegressor(network(7)).fit(X, y)
