"""Uncertainty: the linearized network as a Gaussian process, for trained classifiers and for regression.

>>> from tangentlab import posterior
>>> belief = posterior.fit(network, train_set, validation=held_out)    # a trained classifier: linearized Laplace
>>> belief.predict_proba(test_images)                                  # class probabilities with their uncertainty
>>> print(belief.evaluate(test_images, test_labels))                   # accuracy, NLL, calibration error

>>> belief = posterior.fit(network, x, y)                              # regression: a Gaussian process
>>> prediction = belief.predict(x_new)
>>> prediction.mean, prediction.std, belief.covariance(x_new)
>>> belief.log_marginal_likelihood, belief.noise, belief.prior_precision
"""

from tangentlab.posterior._calibration import (
    Calibration,
    CalibrationFloor,
    calibration,
    calibration_floor,
    temperature,
)
from tangentlab.posterior._file import load
from tangentlab.posterior._fit import fit
from tangentlab.posterior._links import Prediction
from tangentlab.posterior._posterior import Posterior

__all__ = [
    "Calibration",
    "CalibrationFloor",
    "Posterior",
    "Prediction",
    "calibration",
    "calibration_floor",
    "fit",
    "load",
    "temperature",
]
