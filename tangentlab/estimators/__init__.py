"""scikit-learn estimators: kernel regression with the empirical NTK of a PyTorch network.

>>> from sklearn.model_selection import GridSearchCV
>>> from sklearn.pipeline import make_pipeline
>>> from sklearn.preprocessing import StandardScaler
>>> from tangentlab.estimators import NTKClassifier
>>> classifier = make_pipeline(StandardScaler(), NTKClassifier(ridge="gcv"))
>>> classifier.fit(X, y).score(X_test, y_test)
>>> GridSearchCV(NTKClassifier(), {"ridge": [0.0, 0.1, 1.0]}).fit(X, y).best_params_

With uncertainty (:mod:`tangentlab.posterior`):

>>> PosteriorClassifier(trained_network).fit(X, y).predict_proba(X_test)
>>> mean, std = PosteriorRegressor().fit(X, y).predict(X_test, return_std=True)

Pass images as flat rows: ``NTKClassifier(partial(models.build, "lenet"), input_shape=(1, 32, 32))``.
"""

from tangentlab.estimators._classifier import NTKClassifier
from tangentlab.estimators._posterior import PosteriorClassifier, PosteriorRegressor
from tangentlab.estimators._regressor import NTKRegressor

__all__ = ["NTKClassifier", "NTKRegressor", "PosteriorClassifier", "PosteriorRegressor"]
