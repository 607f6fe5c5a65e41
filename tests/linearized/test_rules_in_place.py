"""Rules whose results are written to in place, and operations inside of which no rule is applied."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

import tangentlab


class InPlace(nn.Module):
    """A dense layer on sequences, whose tangent is a view, and an activation that overwrites it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(self.layer(x), 0.2, inplace=True).sum(1)


class Checkpointed(nn.Module):
    """Saved tensor hooks leave forward mode alone, which the fast kernels of attention do not have."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.attention = nn.Linear(4, 4), nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        x = checkpoint(self.first, x, use_reentrant=False)
        return self.attention(x, x, x, need_weights=False)[0].sum(1)


@pytest.mark.parametrize("network", [InPlace, Checkpointed])
def test_outputs_are_those_of_the_definition(network: type[nn.Module]) -> None:
    torch.manual_seed(0)
    model, x = network().double(), torch.randn(3, 5, 4, dtype=torch.float64)
    linear = tangentlab.linearize(model)
    base = {name: p.detach().clone() for name, p in model.named_parameters()}
    step = {name: torch.randn_like(p) for name, p in base.items()}
    with torch.no_grad():
        for name, parameter in linear.named_parameters():
            parameter.add_(step[name])
    with sdpa_kernel(SDPBackend.MATH):
        value, change = torch.func.jvp(lambda p: torch.func.functional_call(model, p, x), (base,), (step,))
    torch.testing.assert_close(linear(x), value + change, rtol=1e-10, atol=1e-10)
