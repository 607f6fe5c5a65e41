"""Regression with the empirical NTK."""

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab.estimators._base import NTKEstimator


class NTKRegressor(RegressorMixin, NTKEstimator):
    r"""Kernel regression with the empirical NTK of a network and the network's outputs as prior mean,

    .. math:: f(x) = f_0(x) + \Theta(x, D)\,(\Theta(D, D) + r)^{-1}\,(Y - f_0(D))

    Without a ridge, this is the network's linearization trained to convergence on squared loss.

    Samples are rows of numbers, as everywhere in scikit-learn, or whatever :func:`tangentlab.ntk` takes: a dict of
    tensors or arrays (``model(**x)``), a tuple (``model(*x)``), a tensor of any shape, a Dataset or a DataLoader, whose
    labels are the targets where ``y`` is left out. Integers in them stay integers, and so does an array of tokens for a
    network that looks them up; other arrays of integers are numbers, and are cast. scikit-learn's cross-validation
    takes samples by their number, which a dict, a tuple and a loader do not have: give it a list of samples (one dict
    each, of different lengths if there is an attention mask), an array, a tensor or a Dataset.

    Cost: ``fit`` takes the kernel (:func:`tangentlab.ntk`) and a regression of n = N rows (N O for ``"full"``),
    n^3 / 3 operations with a given ridge and about 10 n^3 with ``"gcv"`` or ``"loo"``. ``predict`` takes the passes of
    all N + M samples and one product with a :class:`tangentlab.NTKOperator`, and forms no kernel.

    Args:
        model: A network, used at its current weights; or a function ``f(input_shape=..., outputs=...)`` that returns
            one, such as ``functools.partial(models.build, "lenet")``; None for an MLP with two hidden layers of 100.
        input_shape: The shape of a sample as the network takes it, for example (3, 32, 32); None for flat rows.
        output: Takes the tensor of outputs from what the network returns, as for :func:`tangentlab.ntk`.
        input: Takes the network's input from an item of a Dataset or a batch of a DataLoader.
        readout: ``"pntk"``: the pseudo-NTK for every output, N^3 / 3 operations. ``"full"``: the eNTK of all O outputs
            together, (N O)^3 / 3. An int: the kernel of one output for all.
        ridge: r, a number; or ``"gcv"`` or ``"loo"``: the best of a path by generalized or leave-one-out
            cross-validation.
        ridges: The ridges of that path; None for a path from the spectrum.
        prior_mean: Whether f0 is used; otherwise it is zero.
        dtype: The precision of the kernel, ``"float64"`` or ``"float32"``.
        device: The device of the computation; None for that of the network.
        batch_size: Samples per pass; None for automatic.
        memory_budget: The memory budget of the kernel, "4GiB"; None for 60 % of the free memory.
        random_state: The seed of the weights that a factory initializes.

    Attributes:
        model_: The network.
        dual_coef_: The coefficients of the training samples, (N, O); (N O, 1) for the full readout.
        X_fit_: The training samples; tensors, or the Dataset, where they are not rows of numbers.
        ridge_: The ridge used.
        rank_: The number of directions of the kernel that were used.
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit samples (N, features) to targets (N,) or (N, outputs)."""
        X, y = self._checked(X, y, multi_output=True, y_numeric=True)
        values = torch.tensor(np.asarray(y, dtype=np.float64)).reshape(len(X), -1)

        def targets(outputs: int) -> Tensor:
            if outputs != values.shape[1]:
                raise TangentError(
                    f"The network has {outputs} outputs for {values.shape[1]} targets.",
                    remedy="Give a network with one output per target.",
                )
            return values

        self._fit(X, targets, values.shape[1])
        self._flat = np.ndim(y) == 1
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict values in the shape of the targets."""
        found = self._evaluate(X)
        return found[:, 0] if self._flat else found

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return R^2; without ``y``, for the targets that come with the samples."""
        return float(super().score(*self._scored(X, y), sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
