"""Classification with the empirical NTK."""

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab.estimators._base import NTKEstimator


class NTKClassifier(ClassifierMixin, NTKEstimator):
    """Classification by :class:`NTKRegressor`'s regression on one-hot targets; the largest output decides.

    Squared loss gives scores, not probabilities, so there is no ``predict_proba``; wrap the classifier in
    scikit-learn's ``CalibratedClassifierCV`` for probabilities. A module with one output may be used for two classes:
    it is fitted to -1 and 1.

    Cost: that of :class:`NTKRegressor` with one output per class.

    Args:
        model: As for :class:`NTKRegressor`, like all other arguments.

    Attributes:
        classes_: The labels.
        model_: The network; further attributes as for :class:`NTKRegressor`.
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit samples (N, features) to labels (N,); see :class:`NTKRegressor` for other samples."""
        X, y = self._checked(X, y)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(column_or_1d(y, warn=True), return_inverse=True)
        count = len(self.classes_)
        if count < 2:
            raise TangentError(
                "The labels y have one class.", why="There is nothing to classify.", remedy="Give two or more."
            )

        def targets(outputs: int) -> Tensor:
            if outputs == 1 and count == 2:
                return torch.from_numpy(2.0 * numbers - 1)[:, None]
            if outputs != count:
                raise TangentError(
                    f"The network has {outputs} outputs for {count} classes.",
                    remedy="Give a network with one output per class.",
                )
            return torch.nn.functional.one_hot(torch.from_numpy(numbers), count).double()

        self._fit(X, targets, count)
        return self

    def decision_function(self, X: Any) -> NDArray[Any]:
        """Compute scores (M, classes); for two classes (M,), the second's minus the first's."""
        scores = self._evaluate(X)
        if scores.shape[1] == 2:
            return scores[:, 1] - scores[:, 0]
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the labels of the largest scores."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(1)]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the share of labels that are right; without ``y``, of those that come with the samples."""
        return float(super().score(*self._scored(X, y), sample_weight))
