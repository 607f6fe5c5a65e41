"""The network and the inputs that most tests of the module take."""

import pytest
import torch
from torch import Tensor

from tests.linearized.networks import Net


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    net = Net()
    net(torch.randn(32, 4))  # gives BatchNorm statistics
    return net.double()


@pytest.fixture
def x() -> Tensor:
    torch.manual_seed(1)
    return torch.randn(5, 4, dtype=torch.float64)
