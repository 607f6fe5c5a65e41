"""Normalizations that are called as functions: of weights, and of one sample at a time."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tangentlab import TangentError, linearize
from tests.linearized.reference import difference, flat, jacobian, move


class Standardized(nn.Conv2d):
    """Weights of mean zero and variance one for each output channel, as in BiT: batch normalization of the weights."""

    def forward(self, x: Tensor) -> Tensor:
        rows = self.weight.reshape(1, self.out_channels, -1)
        weight = F.batch_norm(rows, None, None, training=True, momentum=0.0, eps=1e-6).reshape_as(self.weight)
        return F.conv2d(x, weight, self.bias)


class Normalized(nn.Module):
    """A convolution with weight normalization over all axes but one, as in wav2vec 2.0."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.conv = nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 4, 3, groups=2), dim=dim)
        self.out = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.conv(x)).mean(2))


class OfTheBatch(nn.Module):
    """Batch normalization of the samples, called as a function."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(self.layer(x), None, None, training=True)


def check(network: nn.Module, x: Tensor) -> None:
    network, x = network.double().eval(), x.double()
    values, rows = jacobian(network, x)
    lin = linearize(network)
    move(lin)
    step = flat(lin.displacement().values())
    outputs = lin(x)
    assert difference(outputs.detach().reshape(-1), values + rows @ step) < 1e-12
    cotangent = torch.randn_like(outputs)
    gradients = torch.autograd.grad(outputs, list(lin.parameters()), cotangent)
    assert difference(flat(gradients), rows.T @ cotangent.reshape(-1)) < 1e-12


def test_standardized_weights() -> None:
    torch.manual_seed(0)
    check(
        nn.Sequential(Standardized(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 4 * 4, 2)), torch.randn(5, 3, 6, 6)
    )


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_weight_normalization_over_any_axes(dim: int) -> None:
    torch.manual_seed(0)
    check(Normalized(dim), torch.randn(5, 4, 7))


def test_statistics_of_the_batch_are_refused() -> None:
    with pytest.raises(TangentError, match="statistics of the batch"):
        linearize(OfTheBatch())(torch.randn(5, 3))
