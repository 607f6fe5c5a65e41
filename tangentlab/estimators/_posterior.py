"""Classification and regression with uncertainty, in scikit-learn's interface."""

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d
from torch import Tensor, nn

from tangentlab import posterior
from tangentlab._errors import TangentError
from tangentlab.estimators._base import Factory, NTKEstimator
from tangentlab.estimators._structured import kept
from tangentlab.kernels.internal import ParametersLike, Samples


class PosteriorEstimator(NTKEstimator):
    """The posterior of a network's linearization (:func:`tangentlab.posterior.fit`) and its samples."""

    def __init__(
        self,
        model: nn.Module | Factory | None = None,
        *,
        input_shape: tuple[int, ...] | None = None,
        output: Callable[[Any], Tensor] | None = None,
        input: Callable[[Any], Any] | None = None,
        readout: str = "full",
        parameters: ParametersLike = None,
        mean: str | None = None,
        prior_precision: float | str | None = "evidence",
        noise: float | None = None,
        method: str = "auto",
        subset: int | None = None,
        k: int | None = None,
        link: str = "probit",
        dtype: str | torch.dtype = "float64",
        device: str | torch.device | None = None,
        batch_size: int | None = None,
        memory_budget: int | float | str | None = None,
        random_state: Any = 0,
    ) -> None:
        super().__init__(
            model, input_shape=input_shape, output=output, input=input, readout=readout, dtype=dtype, device=device,
            batch_size=batch_size, memory_budget=memory_budget, random_state=random_state,
        )  # fmt: skip
        self.parameters = parameters
        self.mean = mean
        self.prior_precision = prior_precision
        self.noise = noise
        self.method = method
        self.subset = subset
        self.k = k
        self.link = link

    def _believe(self, X: Any, y: NDArray[Any], outputs: int, likelihood: str) -> None:
        """Fit the posterior to checked samples; a network that is made here is not trained."""
        x = self._samples(X)
        self.model_ = self._network(outputs)
        trained = isinstance(self.model, nn.Module)
        self.posterior_ = posterior.fit(
            self.model_, x, torch.tensor(y), likelihood=likelihood,
            mean=self.mean or (None if trained else "posterior"), prior_precision=self.prior_precision,
            noise=self.noise, readout=str(self.readout), parameters=self.parameters, method=self.method,
            subset=self.subset, k=self.k, progress=False, **self._options(),
        )  # fmt: skip
        self.X_fit_ = kept(x) if isinstance(X, Samples) else np.array(X)

    def _predicted(self, X: Any) -> posterior.Prediction:
        check_is_fitted(self)
        return self.posterior_.predict(self._samples(self._like_fitted(X)))


class PosteriorClassifier(ClassifierMixin, PosteriorEstimator):
    """A classifier whose probabilities take the uncertainty of the weights into account: linearized Laplace.

    With a trained network, its own outputs are the mean; with a factory or None, the network is linearized at its
    initial weights and the mode of the posterior is found. Samples as for :class:`NTKRegressor`.

    Cost: that of :func:`tangentlab.posterior.fit`, and for predictions that of :class:`tangentlab.posterior.Posterior`.

    Args:
        model: A network, used at its current weights; or a function that makes one; None for an MLP.
        readout: As for :func:`tangentlab.posterior.fit`, like ``parameters``, ``mean``, ``prior_precision``,
            ``method``, ``subset`` and ``k``.
        link: How outputs become probabilities, see :meth:`tangentlab.posterior.Prediction.probabilities`.
        input_shape: As for :class:`NTKRegressor`, like all other arguments.

    Attributes:
        classes_: The labels.
        model_: The network.
        posterior_: The :class:`tangentlab.posterior.Posterior`.
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit samples to labels (N,); labels number the network's outputs in sorted order."""
        X, y = self._checked(X, y)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(column_or_1d(y, warn=True), return_inverse=True)
        if len(self.classes_) < 2:
            raise TangentError(
                "The labels y have one class.", why="There is nothing to classify.", remedy="Give two or more."
            )
        self._believe(X, numbers.astype(np.int64), len(self.classes_), "classification")
        return self

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Compute probabilities (M, classes)."""
        return self._predicted(X).probabilities(self.link).cpu().numpy()

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the most probable labels."""
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the share of labels that are right; without ``y``, of those that come with the samples."""
        return float(super().score(*self._scored(X, y), sample_weight))


class PosteriorRegressor(RegressorMixin, PosteriorEstimator):
    """A Gaussian process with the NTK of a network, its outputs as prior mean, and standard deviations.

    Noise and prior precision are chosen by the marginal likelihood unless they are given.

    Cost: as for :class:`PosteriorClassifier`.

    Args:
        model: As for :class:`PosteriorClassifier`, like all other arguments.
        noise: The variance of the targets around the function; None to estimate it.

    Attributes:
        model_: The network.
        posterior_: The :class:`tangentlab.posterior.Posterior`.
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit samples to targets (N,) or (N, outputs)."""
        X, y = self._checked(X, y, multi_output=True, y_numeric=True)
        values = np.asarray(y, dtype=np.float64)
        self._flat = values.ndim == 1
        self._believe(X, values, 1 if self._flat else values.shape[1], "regression")
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict values in the shape of the targets; with ``return_std``, also their standard deviations.

        A standard deviation is that of a new target: of the function and of the noise.
        """
        found = self._predicted(X)
        parts = [found.mean, (found.variance + self.posterior_.noise).sqrt()] if return_std else [found.mean]
        arrays = [(part[:, 0] if self._flat else part).cpu().numpy() for part in parts]
        return tuple(arrays) if return_std else arrays[0]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return R^2; without ``y``, for the targets that come with the samples."""
        return float(super().score(*self._scored(X, y), sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
