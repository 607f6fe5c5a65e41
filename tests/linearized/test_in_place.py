"""Networks that write into the output of a layer, in both precisions: rules return tensors that may be written to."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tangentlab import linearize
from tests.linearized.reference import difference, flat, jacobian, move

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "convolution": (lambda: nn.Conv2d(3, 4, 3), (3, 6, 6)),
    "convolution without bias": (lambda: nn.Conv2d(3, 4, 3, bias=False), (3, 6, 6)),
    "wide convolution": (lambda: nn.Conv2d(64, 4, 3), (64, 4, 4)),
    "depthwise convolution": (lambda: nn.Conv2d(4, 4, 3, groups=4), (4, 6, 6)),
    "convolution of sequences": (lambda: nn.Conv1d(3, 4, 3), (3, 6)),
    "convolution of volumes": (lambda: nn.Conv3d(3, 4, 2), (3, 3, 3, 3)),
    "batch normalization": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), (3, 6, 6)),
    "pooling": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.AvgPool2d(2)), (3, 6, 6)),
    "dense": (lambda: nn.Linear(5, 4), (5,)),
}


def _scaled(y: Tensor) -> Tensor:
    y *= torch.arange(1, y.shape[1] + 1).to(y).view(-1, *[1] * (y.ndim - 2))
    return y


def _filled(y: Tensor) -> Tensor:
    y[:, 0] = 0
    return y


WRITES: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda y: y.relu_(),
    "scaling": _scaled,
    "filling": _filled,
    "scaling a view": lambda y: y.flatten(1).mul_(2),
}


class Written(nn.Module):
    def __init__(self, layer: nn.Module, write: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.write = layer, write

    def forward(self, x: Tensor) -> Tensor:
        return self.write(self.layer(x)).flatten(1)[:, :6]


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("layer", LAYERS)
def test_writing_into_an_output(layer: str, write: str, dtype: torch.dtype, samples: int) -> None:
    torch.manual_seed(0)
    build, shape = LAYERS[layer]
    network = Written(build(), WRITES[write]).eval().to(dtype)
    x = torch.randn(samples, *shape, dtype=dtype)
    values, rows = jacobian(network, x)
    lin = linearize(network)
    move(lin)
    outputs = lin(x)
    tolerance = 1e-12 if dtype == torch.float64 else 2e-5
    assert difference(outputs.detach().reshape(-1), values + rows @ flat(lin.displacement().values())) < tolerance
    cotangent = torch.randn_like(outputs)
    gradients = torch.autograd.grad(outputs, list(lin.parameters()), cotangent)
    assert difference(flat(gradients), rows.T @ cotangent.reshape(-1)) < tolerance
