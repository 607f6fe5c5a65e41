"""The fitted posterior."""

import math
import os
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._html import card
from tangentlab.kernels.internal import Samples
from tangentlab.posterior._calibration import Calibration, calibration
from tangentlab.posterior._evidence import Hyperparameters
from tangentlab.posterior._form import Form, Scope
from tangentlab.posterior._likelihood import check_labels
from tangentlab.posterior._links import Prediction


class Posterior:
    r"""The linearized network as a Gaussian process, given its training samples.

    The weights have the prior N(m, 1 / delta), and the outputs are linear in them around the network's weights:

    .. math:: f \,|\, y \sim N(\mu, \Sigma), \qquad
        \Sigma(x, x') = \frac{1}{\delta} \left[K(x, x') - K(x, X)\, M\, K(X, x')\right], \qquad
        M = S (\rho + S^T K S)^{-1} S^T

    with the generalized Gauss-Newton weights S S^T of the likelihood, and rho = delta sigma^2 (delta for
    classification). The mean is the network's output at a trained network, and f0 + J u at the mode otherwise. Made by
    :func:`fit` and :func:`load`.

    Cost per new sample: its kernel with the training samples and (N O)^2 O operations by ``"exact"``, 3 O N^2 for the
    readouts ``"pntk"`` and ``"per_class"``; its sketch and k^2 O by ``"sketch"``. For each batch of M samples,
    ``"lanczos"`` takes products with k vectors, ``"cg"`` products with M O vectors in every iteration.

    Attributes:
        likelihood: ``"classification"`` or ``"regression"``.
        prior_precision: delta.
        noise: sigma^2; 1 for classification.
        log_marginal_likelihood: log p(y), exact for regression, by Laplace's method for classification.
        method: ``"exact"``, ``"cg"``, ``"lanczos"`` or ``"sketch"``.
        about: What was computed how, in words, with the subset of the samples if there is one.
        outputs: O.
    """

    def __init__(
        self,
        form: Form,
        likelihood: str,
        chosen: Hyperparameters,
        coefficients: Tensor | None,
        evidence: float,
        about: str,
    ) -> None:
        self.likelihood, self.prior_precision, self.noise = likelihood, chosen.precision, chosen.noise
        self.log_marginal_likelihood, self.about, self.method = evidence, about, form.name
        self.outputs = form.outputs
        self._form, self._coefficients = form, coefficients

    def predict(self, x: Any, *, noise: bool = False) -> Prediction:
        """Compute mean and covariance of the outputs of new samples, each considered alone.

        Args:
            x: M samples, in any form that :func:`tangentlab.ntk` takes.
            noise: Whether the variance of targets is meant, for regression, not that of the outputs.
        """
        parts = [self._at(batch, "blocks") for batch in self._batches(x)]
        mean, covariance = (torch.cat([part[i] for part in parts]) for i in (0, 1))
        if noise and self.likelihood == "regression":
            covariance = covariance + self.noise * torch.eye(self.outputs).to(covariance)
        return Prediction(mean, covariance)

    def mean(self, x: Any) -> Tensor:
        """Compute the mean of the outputs of new samples, (M, O), without covariances."""
        return torch.cat([self._at(batch, "none")[0] for batch in self._batches(x)])

    def covariance(self, x: Any) -> Tensor:
        """Compute the joint covariance of all outputs of new samples, (M, O, M, O), which must fit into memory."""
        samples = self._form.tangent.read(x)
        return self._at(samples.batch(slice(0, len(samples))).inputs, "joint")[1]

    def sample(self, x: Any, count: int, *, seed: int = 0) -> Tensor:
        """Draw functions: outputs of new samples with all their covariances, (count, M, O)."""
        samples = self._form.tangent.read(x)
        mean, covariance = self._at(samples.batch(slice(0, len(samples))).inputs, "joint")
        size = mean.numel()
        whole = Prediction(mean.reshape(1, size), covariance.reshape(1, size, size))
        return whole.sample(count, seed).reshape(count, *mean.shape)

    def predict_proba(self, x: Any, link: str = "probit", *, samples: int = 1024, seed: int = 0) -> Tensor:
        """Compute class probabilities of new samples, (M, classes); see :meth:`Prediction.probabilities`."""
        if self.likelihood != "classification":
            raise TangentError(
                "A regression has no class probabilities.", "", "Use predict; fit integers for classification."
            )
        if link == "mean":
            mean = self.mean(x)
            return Prediction(mean, mean.new_zeros(*mean.shape, mean.shape[1])).probabilities(link)
        return self.predict(x).probabilities(link, samples, seed)

    def evaluate(self, x: Any, y: Any = None, link: str = "probit", *, bins: int = 15) -> Calibration:
        """Measure accuracy, negative log-likelihood and calibration error of the class probabilities.

        Args:
            x: Samples.
            y: Their classes; None for those that come with the samples.
            link: See :meth:`predict_proba`.
            bins: Bins of the calibration error.
        """
        samples = self._form.tangent.read(x)
        labels = samples.targets_or(y)
        if labels is None:
            raise TangentError("There are no targets.", "", "Pass y, or samples that come with their classes.")
        return calibration(self.predict_proba(samples, link), check_labels(labels, self.outputs), bins=bins)

    def _batches(self, x: Any) -> list[Any]:
        samples = self._form.tangent.read(x)
        step = self._form.chunk()
        return [samples.batch(slice(i, min(i + step, len(samples)))).inputs for i in range(0, len(samples), step)]

    def _at(self, batch: Any, scope: Scope) -> tuple[Tensor, Tensor]:
        """Compute mean and covariance of one batch of inputs."""
        tangent = self._form.tangent
        mean = tangent.outputs(Samples(batch, device=tangent.device))
        if scope == "none" and self._coefficients is None:
            return mean, mean
        change, reduced = self._form.new(batch, self._coefficients, scope)
        if change is not None:
            mean = mean + change
        if reduced is None:
            return mean, mean
        covariance = reduced / self.prior_precision
        if scope == "blocks":  # rounding may leave a variance slightly below zero
            covariance.diagonal(dim1=1, dim2=2).clamp_(min=0)
        return mean, covariance

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the posterior to a file, without the network; :func:`load` reads it."""
        from tangentlab.posterior._file import write

        write(path, self)

    def __repr__(self) -> str:
        noise = f", noise {self.noise:.3g}" if self.likelihood == "regression" else ""
        evidence = "" if math.isnan(self.log_marginal_likelihood) else f", log p(y) {self.log_marginal_likelihood:.6g}"
        return (
            f"Posterior({self.likelihood}, {self.about}, prior precision {self.prior_precision:.3g}{noise}{evidence})"
        )

    def _repr_html_(self) -> str:
        facts = {
            "likelihood": self.likelihood,
            "computed": self.about,
            "prior precision": self.prior_precision,
            "noise": self.noise,
            "log marginal likelihood": self.log_marginal_likelihood,
        }
        return card("Posterior", facts)
