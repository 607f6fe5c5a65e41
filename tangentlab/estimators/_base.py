"""The shared base of classifier and regressor: a network, its kernel, and regression with it."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from tangentlab import linalg, models
from tangentlab._copying import copy_model
from tangentlab._errors import TangentError
from tangentlab.estimators._structured import as_tokens, is_structured, kept, read, targets_of
from tangentlab.kernels import NTKOperator, ntk
from tangentlab.kernels.internal import Network, Samples

_BATCH = 512
"""Samples per forward pass for the prior mean."""

Factory = Callable[..., nn.Module]


class NTKEstimator(BaseEstimator):
    """Kernel regression with the empirical NTK of a network and its outputs as prior mean."""

    def __init__(
        self,
        model: nn.Module | Factory | None = None,
        *,
        input_shape: tuple[int, ...] | None = None,
        output: Callable[[Any], Tensor] | None = None,
        input: Callable[[Any], Any] | None = None,
        readout: str | int = "pntk",
        ridge: float | str = 0.0,
        ridges: Sequence[float] | None = None,
        prior_mean: bool = True,
        dtype: str | torch.dtype = "float64",
        device: str | torch.device | None = None,
        batch_size: int | None = None,
        memory_budget: int | float | str | None = None,
        random_state: Any = 0,
    ) -> None:
        self.model = model
        self.input_shape = input_shape
        self.output = output
        self.input = input
        self.readout = readout
        self.ridge = ridge
        self.ridges = ridges
        self.prior_mean = prior_mean
        self.dtype = dtype
        self.device = device
        self.batch_size = batch_size
        self.memory_budget = memory_budget
        self.random_state = random_state

    def _checked(self, X: Any, y: Any, **checks: Any) -> tuple[Any, NDArray[Any]]:
        """Return samples and targets: rows as scikit-learn checks them, or samples as the network takes them."""
        X = X if self.input_shape is not None else as_tokens(X, self.model)
        if not is_structured(X):
            rows, found = validate_data(self, X, y, dtype=[np.float64, np.float32], **checks)
            return rows, found
        self.__dict__.pop("n_features_in_", None)  # of an earlier fit to rows
        if self.input_shape is not None:
            raise TangentError(
                f"input_shape={tuple(self.input_shape)} with samples that are not rows of numbers.",
                "They reach the network in the shape that they have.",
                "Leave input_shape out.",
            )
        samples = self._read(X)
        return samples, targets_of(samples, y)

    def _read(self, X: Any) -> Samples:
        return read(X, self.input, self.model if isinstance(self.model, nn.Module) else None)

    def _scored(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Return samples to predict and their targets, which may have come with them."""
        if y is not None or not is_structured(X):
            return X, y
        samples = self._read(X)
        return samples, targets_of(samples, None)

    def _fit(self, X: Any, targets: Callable[[int], Tensor], outputs: int) -> None:
        """Fit checked samples.

        Args:
            X: (N, features), or samples as the network takes them.
            targets: A function that returns the targets (N, O) for a network with O outputs, or refuses O.
            outputs: The number of outputs O of a network that is built here.
        """
        x = self._samples(X)
        self.model_ = self._network(outputs)
        if self.readout not in ("full", "pntk") and (
            isinstance(self.readout, bool) or not isinstance(self.readout, int)
        ):
            raise TangentError(
                f"The readout is {self.readout!r}.", remedy='Use "pntk", "full" or the number of an output.'
            )
        start = self._prior(x)
        y = targets(start.shape[1]).to(start)
        kernel = ntk(self.model_, x, readout=self.readout, progress=False, **self._options())
        found = self._regression(kernel, y, start)
        self.ridge_, self.rank_ = found.ridge, found.rank
        self.dual_coef_ = found.coefficients.cpu().numpy()
        self.X_fit_ = kept(x) if isinstance(X, Samples) else np.array(X)

    def _evaluate(self, X: Any) -> NDArray[Any]:
        """Compute f0(x) + Theta(x, D) a, (M, O), by products with both Jacobians, without forming the kernel."""
        check_is_fitted(self)
        x, fitted = self._samples(self._like_fitted(X)), self._samples(self.X_fit_)
        operator = NTKOperator(self.model_, x, fitted, readout=self.readout, **self._options())
        change = operator @ torch.from_numpy(self.dual_coef_)
        start = self._prior(x)
        return (start + change.reshape(start.shape).to(start)).cpu().numpy()

    def _like_fitted(self, X: Any) -> Any:
        """Return samples of the kind that was fitted, checked."""
        fitted = self.X_fit_
        if isinstance(fitted, np.ndarray):
            if not is_structured(X):
                return validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
            kind = "rows of numbers"
        elif is_structured(X):
            return self._read(X)
        elif not isinstance(fitted, (dict, tuple)):
            return torch.as_tensor(X)
        else:
            kind = f"a {type(fitted).__name__}"
        raise TangentError(
            f"X is a {type(X).__name__}, and the network was fitted to {kind}.",
            "The kernel is between samples of one kind.",
            "Pass samples of the kind that was fitted.",
        )

    def _samples(self, X: Any) -> Any:
        """Return samples as the network takes them."""
        if isinstance(X, Samples):
            return X.source
        if not isinstance(X, np.ndarray):
            return X
        x = torch.tensor(X, dtype=self._precision())
        if self.input_shape is None:
            return x
        shape = tuple(self.input_shape)
        if math.prod(shape) != X.shape[1]:
            raise TangentError(
                f"The input_shape {shape} does not fit {X.shape[1]} features.",
                remedy=f"A row is one flattened sample: give a shape of {X.shape[1]} numbers.",
            )
        return x.reshape(len(x), *shape)

    def _network(self, outputs: int) -> nn.Module:
        """Build the network at initialization, in evaluation mode and never the user's own object."""
        if isinstance(self.model, nn.Module):
            return copy_model(self.model, dtype=self._precision(), device=self.device).eval()
        if not hasattr(self, "n_features_in_"):
            raise TangentError(
                "There is no network for samples that are not rows of numbers.",
                "Their inputs have no single shape that one could be made for.",
                "Pass a torch.nn.Module as model.",
            )
        shape = (self.n_features_in_,) if self.input_shape is None else tuple(self.input_shape)
        factory = _mlp if self.model is None else self.model
        if not callable(factory):
            raise TangentError(
                f"The model is a {type(self.model).__name__}.",
                remedy="Give a torch.nn.Module, a function of input_shape and outputs that makes one, or None.",
            )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            network = factory(input_shape=shape, outputs=outputs)
        if not isinstance(network, nn.Module):
            raise TangentError(f"The factory returned a {type(network).__name__}.", remedy="Return a torch.nn.Module.")
        return network.to(dtype=self._precision(), device=self.device).eval()

    def _prior(self, x: Any) -> Tensor:
        """Compute f0, (N, O), float64."""
        network = Network(self.model_, "full", output=self.output, dtype=self._precision(), device=self.device)
        samples = Samples(x, device=network.device, dtype=network.cast, input=self.input, model=self.model_)
        outputs = network.values_on(samples, self.batch_size or _BATCH).double()
        return outputs if self.prior_mean else torch.zeros_like(outputs)

    def _regression(self, kernel: Tensor, y: Tensor, start: Tensor) -> linalg.Regression:
        if not isinstance(self.ridge, str):
            return linalg.regress(kernel, y, f0=start, ridge=self.ridge, progress=False)
        if self.ridge not in ("gcv", "loo"):
            raise TangentError(f"The ridge is {self.ridge!r}.", remedy='Give a number, "gcv" or "loo".')
        path = linalg.ridge_path(kernel, y, self.ridges, f0=start)
        return path.regression(path.best_by_gcv if self.ridge == "gcv" else path.best)

    def _options(self) -> dict[str, Any]:
        return {
            "output": self.output,
            "input": self.input,
            "dtype": self._precision(),
            "device": self.device,
            "batch_size": self.batch_size,
            "memory_budget": self.memory_budget,
        }

    def _precision(self) -> torch.dtype:
        found = getattr(torch, self.dtype, None) if isinstance(self.dtype, str) else self.dtype
        if found not in (torch.float32, torch.float64):
            raise TangentError(f"The dtype is {self.dtype!r}.", remedy='Use "float64" or "float32".')
        return found


def _mlp(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Build the default network: two hidden layers of 100 with PyTorch's initialization, which makes f0 small."""
    return models.build("mlp", input_shape=(1, 1, math.prod(input_shape)), outputs=outputs)
