"""Estimators with uncertainty: scikit-learn's own checks, probabilities, standard deviations."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from tangentlab import TangentError, posterior
from tangentlab.estimators import PosteriorClassifier, PosteriorRegressor
from tests.posterior.problems import labels, network, samples


class Small:
    """A factory of networks that are small, so that scikit-learn's many checks are fast."""

    def __call__(self, input_shape, outputs):
        return nn.Sequential(nn.Linear(*input_shape, 8), nn.Tanh(), nn.Linear(8, outputs))

    def __repr__(self):
        return "small"


SMALL = Small()


@parametrize_with_checks(
    [
        PosteriorClassifier(SMALL, readout="pntk", prior_precision=1.0),
        PosteriorRegressor(SMALL, prior_precision=1.0, noise=0.01),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


X, NEW = samples(40), samples(10, seed=2)


def test_classifier_is_the_posterior():
    y = labels(X)
    names = np.array(["a", "b", "c"])[y]
    found = PosteriorClassifier(network(), prior_precision=1.0).fit(X.numpy(), names)
    belief = posterior.fit(network(), X, y, prior_precision=1.0)
    np.testing.assert_allclose(found.predict_proba(NEW.numpy()), belief.predict_proba(NEW).numpy())
    np.testing.assert_array_equal(found.predict(NEW.numpy()), found.classes_[belief.predict_proba(NEW).argmax(1)])
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.predict_proba(NEW.numpy()), found.predict_proba(NEW.numpy()))


def test_untrained_network_is_fitted():
    y = labels(X).numpy()
    assert cross_val_score(PosteriorClassifier(readout="pntk"), X.numpy(), y, cv=3).mean() > 0.5


def test_regressor_returns_standard_deviations():
    y = X.sin().sum(1)
    found = PosteriorRegressor(network(1), prior_precision=1.0, noise=0.1).fit(X.numpy(), y.numpy())
    mean, std = found.predict(NEW.numpy(), return_std=True)
    expected = posterior.fit(network(1), X, y, prior_precision=1.0, noise=0.1).predict(NEW, noise=True)
    np.testing.assert_allclose(mean, expected.mean[:, 0].numpy())
    np.testing.assert_allclose(std, expected.std[:, 0].numpy())
    np.testing.assert_array_equal(mean, found.predict(NEW.numpy()))
    two = PosteriorRegressor(network(2), prior_precision=1.0, noise=0.1).fit(X.numpy(), torch.stack([y, y], 1).numpy())
    assert two.predict(NEW.numpy(), return_std=True)[1].shape == (10, 2)


def test_dicts_of_tensors():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3).double()

        def forward(self, a, b):
            return self.layer(a + b)

    data = {"a": X, "b": X**2}
    found = PosteriorClassifier(Two(), prior_precision=1.0).fit(data, labels(X).numpy())
    assert found.predict_proba({"a": NEW, "b": NEW}).shape == (10, 3)


def test_one_class():
    with pytest.raises(TangentError, match="one class"):
        PosteriorClassifier(network()).fit(X.numpy(), np.zeros(40, dtype=int))
