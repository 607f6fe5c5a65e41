"""Gaussian process regression: GPyTorch's exact one, hyperparameters by the marginal likelihood, and estimators."""

import math

import gpytorch
import pytest
import torch
from torch import Tensor, nn

from tangentlab import TangentError, ntk, posterior
from tangentlab.gp import NTKKernel
from tests.posterior.problems import jacobian, network, samples

X, NEW = samples(25), samples(6, seed=2)
Y = X.sin().sum(1)
PRECISION, NOISE = 0.8, 0.05


class ExactGP(gpytorch.models.ExactGP):
    def __init__(self, y: Tensor, likelihood: object, model: nn.Module) -> None:
        super().__init__(X, y, likelihood)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(NTKKernel(model, readout=0)).double()
        self.covar_module.outputscale = torch.tensor(1 / PRECISION).double()

    def forward(self, x: Tensor) -> object:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


@pytest.mark.parametrize("method", ["exact", "lanczos", "cg"])
def test_equals_gpytorch(method: str) -> None:
    model = network(1)
    with torch.no_grad():
        start, start_new = model(X)[:, 0], model(NEW)[:, 0]
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = NOISE
    gp = ExactGP(Y - start, likelihood, model)
    with torch.no_grad(), gpytorch.settings.fast_computations(False, False, False):
        evidence = float(gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, gp)(gp(X), Y - start)) * len(X)
        gp.eval()
        expected = gp(NEW)
        mean, covariance = expected.mean + start_new, expected.covariance_matrix
    belief = posterior.fit(model, X, Y, prior_precision=PRECISION, noise=NOISE, method=method, k=25)
    torch.testing.assert_close(belief.mean(NEW)[:, 0], mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(belief.covariance(NEW)[:, 0, :, 0], covariance, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(belief.predict(NEW).variance[:, 0], covariance.diagonal(), rtol=1e-6, atol=1e-6)
    if method != "cg":
        assert belief.log_marginal_likelihood == pytest.approx(evidence, rel=1e-6)


@pytest.mark.parametrize("readout", ["full", "pntk", "per_class"])
def test_several_outputs(readout: str) -> None:
    model, y = network(2), torch.stack([Y, -Y * X[:, 0]], 1)
    belief = posterior.fit(model, X, y, prior_precision=PRECISION, noise=NOISE, readout=readout)
    own, cross = (ntk(model, *pair, readout=readout) for pair in ((X,), (NEW, X)))
    gap = y - model(X).detach()
    ridge = PRECISION * NOISE
    if readout == "full":
        a = torch.linalg.solve(own.reshape(50, 50) + ridge * torch.eye(50).double(), gap.reshape(50))
        change = (cross.reshape(12, 50) @ a).reshape(6, 2)
    else:
        each = (own.expand(2, 25, 25), cross.expand(2, 6, 25)) if own.ndim == 2 else (own, cross)
        a = torch.linalg.solve(each[0] + ridge * torch.eye(25).double(), gap.T[:, :, None])
        change = (each[1] @ a)[:, :, 0].T
    torch.testing.assert_close(belief.mean(NEW), model(NEW).detach() + change)


def test_sketch_is_ridge_regression_in_its_features() -> None:
    model = network(1)
    belief = posterior.fit(model, X, Y, prior_precision=PRECISION, noise=NOISE, method="sketch", k=16)
    from tangentlab import sketch

    one, two = (sketch(model, x, 16, readout="full").features.double() for x in (X, NEW))
    total = one.T @ one + PRECISION * NOISE * torch.eye(16).double()
    expected = model(NEW).detach() + two @ torch.linalg.solve(total, one.T @ (Y[:, None] - model(X).detach()))
    torch.testing.assert_close(belief.mean(NEW), expected)
    covariance = NOISE * two @ torch.linalg.solve(total, two.T)
    torch.testing.assert_close(belief.covariance(NEW).reshape(6, 6), covariance)


def test_at_a_trained_network_the_mean_is_the_network() -> None:
    model = network(1)
    belief = posterior.fit(model, X, Y, mean="network", prior_precision=PRECISION, noise=NOISE)
    torch.testing.assert_close(belief.mean(NEW), model(NEW).detach())
    J, K = jacobian(model, X), jacobian(model, NEW)
    total = J.T @ J / NOISE + PRECISION * torch.eye(J.shape[1]).double()
    torch.testing.assert_close(belief.covariance(NEW).reshape(6, 6), K @ torch.linalg.solve(total, K.T))


def test_noise_and_precision_maximize_the_evidence() -> None:
    generator = torch.Generator().manual_seed(3)
    x = samples(80, seed=4)
    y = x.sin().sum(1) + 0.3 * torch.randn(80, generator=generator, dtype=torch.float64)
    best = posterior.fit(network(1, hidden=40), x, y)
    assert 0.02 < best.noise < 0.3
    for precision, noise in ((1.2, 1), (0.8, 1), (1, 1.2), (1, 0.8)):
        other = posterior.fit(
            network(1, hidden=40), x, y, prior_precision=precision * best.prior_precision, noise=noise * best.noise
        )
        assert other.log_marginal_likelihood < best.log_marginal_likelihood
    fixed = posterior.fit(network(1, hidden=40), x, y, noise=best.noise)
    assert fixed.prior_precision == pytest.approx(best.prior_precision, rel=0.05)
    held = posterior.fit(network(1, hidden=40), x, y, validation=(NEW, NEW.sin().sum(1)))
    assert math.isfinite(held.log_marginal_likelihood)


def test_draws_have_mean_and_covariance() -> None:
    belief = posterior.fit(network(1), X, Y, prior_precision=PRECISION, noise=NOISE)
    draws = belief.sample(NEW, 20_000)[:, :, 0]
    covariance = belief.covariance(NEW)[:, 0, :, 0]
    error = 5 * float(covariance.diagonal().max()) / 20_000**0.5
    torch.testing.assert_close(draws.T.cov(), covariance, rtol=0, atol=2 * error)
    assert (
        float((draws.mean(0) - belief.mean(NEW)[:, 0]).abs().max())
        < 5 * float(covariance.diagonal().max() / 2e4) ** 0.5
    )


def test_noise_is_added_where_it_is_asked_for() -> None:
    belief = posterior.fit(network(1), X, Y, prior_precision=PRECISION, noise=NOISE)
    torch.testing.assert_close(belief.predict(NEW, noise=True).variance, belief.predict(NEW).variance + NOISE)


def test_refusals() -> None:
    with pytest.raises(TangentError, match="2 outputs and the targets 1"):
        posterior.fit(network(2), X, Y)
    with pytest.raises(TangentError, match="NaN"):
        posterior.fit(network(1), X, Y / 0)
    with pytest.raises(TangentError, match=r"noise=0\.0 is not a positive number"):
        posterior.fit(network(1), X, Y, noise=0.0)
    with pytest.raises(TangentError, match="fits all targets exactly"):
        posterior.fit(model := network(1), X, model(X).detach())
    with pytest.raises(TangentError, match="no class probabilities"):
        posterior.fit(network(1), X, Y, noise=NOISE, prior_precision=1.0).predict_proba(NEW)
