"""The GPyTorch kernel: equal to the kernel it wraps, and a Gaussian process that is kernel regression."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tangentlab
from tangentlab import TangentError

gpytorch = pytest.importorskip("gpytorch", reason="gpytorch is not installed: pip install '.[gp]'")
from tangentlab import gp  # noqa: E402

N = 12


@pytest.fixture
def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 30), nn.Tanh(), nn.Linear(30, 2)).double()


@pytest.fixture
def x() -> Tensor:
    return torch.randn(N, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("readout", ["pntk", "trace", 1])
def test_blocks_and_diagonals(network: nn.Module, x: Tensor, readout: str | int) -> None:
    kernel = gp.NTKKernel(network, readout=readout)
    whole = tangentlab.ntk(network, x, readout=readout)
    assert torch.allclose(kernel(x).to_dense(), whole, atol=1e-12)
    assert torch.allclose(kernel(x[:5], x[3:]).to_dense(), whole[:5, 3:], atol=1e-12)
    assert torch.allclose(kernel(x, diag=True), whole.diagonal(), atol=1e-12)
    assert torch.allclose(kernel(x[:4], x[4:8], diag=True), whole[:4, 4:8].diagonal(), atol=1e-12)
    batch = kernel(x.reshape(2, 6, 4), x[:3]).to_dense()
    assert torch.allclose(batch, whole[:, :3].reshape(2, 6, 3), atol=1e-12)


def test_images(x: Tensor) -> None:
    network = nn.Sequential(nn.Conv2d(1, 3, 2), nn.Flatten(), nn.Linear(3, 1)).double()
    kernel = gp.NTKKernel(network, input_shape=(1, 2, 2))
    assert torch.allclose(kernel(x).to_dense(), tangentlab.ntk(network, x.reshape(N, 1, 2, 2), readout="pntk"))
    with pytest.raises(TangentError, match="not a sample of shape"):
        gp.NTKKernel(network, input_shape=(1, 3, 3))(x).to_dense()


class Process(gpytorch.models.ExactGP):
    def __init__(self, network: nn.Module, x: Tensor, y: Tensor, likelihood: Any) -> None:
        super().__init__(x, y, likelihood)
        self.mean_module = gp.NetworkMean(network)
        self.covar_module = gpytorch.kernels.ScaleKernel(gp.NTKKernel(network))

    def forward(self, x: Tensor) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def test_posterior_mean_is_kernel_regression(network: nn.Module, x: Tensor) -> None:
    train, test = x[:8], x[8:]
    y = train.sum(1).sin()
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    process = Process(network, train, y, likelihood).double()
    likelihood.noise, process.covar_module.outputscale = 0.1, 2.0
    process.eval()
    with torch.no_grad():
        mean = process(test).mean
    with torch.no_grad():
        f0 = network(x).sum(1) / 2**0.5
    kernel = 2.0 * tangentlab.ntk(network, x, readout="pntk")
    ridge = kernel[:8, :8] + 0.1 * torch.eye(8, dtype=torch.float64)
    assert torch.allclose(mean, f0[8:] + kernel[8:, :8] @ torch.linalg.solve(ridge, y - f0[:8]), atol=1e-8)


def test_hyperparameters_train_and_the_network_does_not(
    network: nn.Module, x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    original = tangentlab.ntk
    monkeypatch.setattr("tangentlab.gp._kernel.ntk", lambda *a, **k: calls.append(1) or original(*a, **k))
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    process = Process(network, x, x[:, 0], likelihood).double()
    names = [name for name, _ in process.named_parameters()]
    assert sorted(names) == ["covar_module.raw_outputscale", "likelihood.noise_covar.raw_noise"]
    loss = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, process)
    optimizer = torch.optim.Adam(process.parameters(), lr=0.1)
    process.train()
    values = []
    for _ in range(5):
        optimizer.zero_grad()
        value = -loss(process(x), x[:, 0])
        value.backward()
        optimizer.step()
        values.append(float(value.detach()))
    assert values[-1] < values[0]
    assert len(calls) == 1


def test_refusals(network: nn.Module, x: Tensor) -> None:
    with pytest.raises(TangentError, match="one number per pair"):
        gp.NTKKernel(network, readout="full")
    with pytest.raises(TangentError, match="one number per sample"):
        gp.NetworkMean(network, readout="trace")
    with pytest.raises(TangentError, match="require gradients"):
        gp.NTKKernel(network)(x.clone().requires_grad_()).to_dense()
    with pytest.raises(TangentError, match="last_dim_is_batch"):
        gp.NTKKernel(network)(x, last_dim_is_batch=True).to_dense()
