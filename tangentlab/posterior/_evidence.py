"""The log marginal likelihood, and the choice of prior precision and noise by it or by held-out samples."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy import optimize
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab.posterior._form import Form
from tangentlab.posterior._likelihood import Gaussian, Likelihood
from tangentlab.posterior._mode import Mode, find_mode

_GRID = 9
"""Prior precisions that are tried before the best interval is searched."""


@dataclass(frozen=True)
class Hyperparameters:
    """What the kernel does not say.

    Attributes:
        precision: delta: weights are N(mean, 1 / delta), independent.
        noise: The variance sigma^2 of targets around the outputs; 1 for classification.
    """

    precision: float
    noise: float

    @property
    def ridge(self) -> float:
        """rho = delta sigma^2."""
        return self.precision * self.noise


@dataclass
class Model:
    """Everything but the hyperparameters: the kernel, the likelihood, and where the mean is.

    Attributes:
        form: The kernel.
        likelihood: Of the training samples.
        start: f0 on the training samples, (N, O).
        at_network: Whether the posterior mean is the network's output, the network being trained.
        weights: |theta|^2 of the uncertain weights, which a trained network has moved from zero.
    """

    form: Form
    likelihood: Likelihood
    start: Tensor
    at_network: bool
    weights: float
    _weighed: bool = False

    @property
    def regression(self) -> bool:
        """Whether there is a noise."""
        return isinstance(self.likelihood, Gaussian)

    def mode(self, chosen: Hyperparameters, many: bool = False) -> Mode:
        """Put the form at the mode of these hyperparameters."""
        if not self.at_network:
            mode = find_mode(self.form, self.likelihood, self.start, chosen.ridge, many, self._weighed)
            self._weighed = self.regression
            return mode
        if not self._weighed:
            self.form.weigh(self.likelihood.curvature(self.start), many)
            self._weighed = True
        self.form.at(chosen.ridge)
        return Mode(self.start, None, 0)

    def evidence(self, chosen: Hyperparameters, mode: Mode) -> float:
        r"""Compute the log marginal likelihood at a mode, exact for regression, by Laplace's method otherwise:

        .. math:: \log p(y) = \log p(y | \hat f) - \frac{\delta}{2} |\hat u|^2
            - \frac12 \log\det(1 + S^T K S / \rho)

        u being the displacement from the prior mean of the weights: the network's weights, or zero if the network
        is taken as trained.
        """
        fit = self.likelihood.total(mode.outputs)
        if self.regression:
            # From unit noise to the noise: squares are divided by it, and each value has its normalization.
            rows = mode.outputs.numel() * self.likelihood.scale
            constant = rows * math.log(2 * math.pi) / 2
            fit = (fit + constant) / chosen.noise - constant - rows * math.log(chosen.noise) / 2
        norm = self.weights if mode.displacement is None else mode.displacement.norm
        return fit - (chosen.precision * norm + self.form.log_determinant()) / 2

    def score(self, chosen: Hyperparameters) -> float:
        """Compute the log marginal likelihood of hyperparameters, when many are tried."""
        return self.evidence(chosen, self.mode(chosen, many=True))

    def choose(
        self,
        precision: float | None,
        noise: float | None,
        objective: Callable[[Hyperparameters], float] | None = None,
    ) -> Hyperparameters:
        """Return the hyperparameters that maximize an objective, the log marginal likelihood by default.

        Those that are given stay.
        """
        score = objective or self.score
        if not self.regression:
            if precision is None:
                low, high = self._range()
                precision = _maximize(lambda value: score(Hyperparameters(value, 1.0)), low, high)
            return Hyperparameters(precision, 1.0)
        if precision is not None and noise is not None:
            return Hyperparameters(precision, noise)
        gap = float((self.likelihood.targets - self.start).square().mean())
        if gap == 0:
            raise TangentError(
                "The network fits all targets exactly.",
                "Noise and prior precision cannot be estimated from residuals of zero.",
                "Give noise= and prior_precision=.",
            )
        if precision is not None or noise is not None:
            given = precision if precision is not None else noise
            assert given is not None
            low, high = (1e-8 * gap, 10 * gap) if noise is None else self._range()
            found = _maximize(lambda value: score(_pair(given, value, noise is None)), low, high)
            return _pair(given, found, noise is None)
        return self._both(score, gap)

    def _both(self, score: Callable[[Hyperparameters], float], gap: float) -> Hyperparameters:
        """Choose both, from a start with little and one with much noise."""
        low, high = self._range()
        middle = math.sqrt(low * high) if self.at_network else max(low, min(high, self.form.scale() / gap))
        edges = ((math.log(low), math.log(high)), (math.log(1e-10 * gap), math.log(100 * gap)))

        def loss(point: "list[float]") -> float:
            inside = [min(max(value, edge[0]), edge[1]) for value, edge in zip(point, edges, strict=True)]
            far = sum(abs(value - kept) for value, kept in zip(point, inside, strict=True))
            return far * 1e3 - score(Hyperparameters(*(math.exp(value) for value in inside)))

        found = [
            optimize.minimize(
                loss, [math.log(middle), math.log(share * gap)], method="Nelder-Mead",
                options={"xatol": 1e-4, "fatol": 1e-6, "maxiter": 400},
            )
            for share in (0.02, 0.5)
        ]  # fmt: skip
        best = min(found, key=lambda one: one.fun).x
        return Hyperparameters(math.exp(best[0]), math.exp(best[1]))

    def _range(self) -> tuple[float, float]:
        """Return the prior precisions that are searched.

        At a trained network, delta |theta|^2 is the number of directions that the data determine, at most all rows.
        Otherwise, prior variances of the outputs from 1e-3 to 1e6 are searched.
        """
        if self.at_network and self.weights > 0:
            rows = self.start.numel() * self.likelihood.scale
            return 1e-4 / self.weights, 10 * rows / self.weights
        scale = self.form.scale()
        if not scale > 0:
            raise TangentError("The kernel is zero.", "No parameter changes any output.", "Check the model.")
        return scale / 1e6, scale / 1e-3


def _pair(given: float, found: float, precision_given: bool) -> Hyperparameters:
    return Hyperparameters(given, found) if precision_given else Hyperparameters(found, given)


def _maximize(score: Callable[[float], float], low: float, high: float) -> float:
    """Find the maximum of a function of a positive number: a grid, then Brent's method around its best point.

    Where the largest number is best, as for a network that is not too confident, larger ones are tried.
    """
    grid = torch.linspace(math.log(low), math.log(high), _GRID, dtype=torch.float64).tolist()
    values = [score(math.exp(point)) for point in grid]
    while values[-1] == max(values) and len(grid) < 2 * _GRID:
        grid.append(2 * grid[-1] - grid[-2])
        values.append(score(math.exp(grid[-1])))
    best = max(range(len(grid)), key=values.__getitem__)
    left, right = grid[max(0, best - 1)], grid[min(len(grid) - 1, best + 1)]
    found = optimize.minimize_scalar(
        lambda point: -score(math.exp(point)), bounds=(left, right), method="bounded", options={"xatol": 0.02}
    )
    return math.exp(found.x if -found.fun >= values[best] else grid[best])
