"""Ways to get wrong numbers out of a linearized model that are refused, or work."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tangentlab import TangentError
from tangentlab.linearized import Linearized, linearization_error, linearize
from tests.linearized.reference import difference, move


class Two(nn.Module):
    """Two layers, with names that a linearized model could be tempted to use itself."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 4)
        self.batch_norm = nn.BatchNorm1d(4)
        self.bias = nn.Parameter(torch.zeros(2))
        self.out = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.tanh(self.batch_norm(self.first(x)))) + self.bias


def moved(network: nn.Module, **options: str) -> Linearized:
    lin = linearize(network, **options)  # type: ignore[arg-type]
    move(lin)
    return lin


@pytest.fixture
def x() -> Tensor:
    torch.manual_seed(0)
    return torch.randn(5, 6)


def test_names_of_the_network_are_not_hidden() -> None:
    network = Two()
    lin = linearize(network, batch_norm="eval")
    assert dict(lin.named_parameters())["bias"] is lin.bias
    assert lin.batch_norm is lin.get_submodule("batch_norm")
    assert lin.biased
    assert lin.batch_norm_policy == "eval"


def test_a_replaced_layer_is_refused(x: Tensor) -> None:
    """It would be run with its own weights, neither linearized nor trained."""
    lin = moved(Two())
    lin(x)
    lin.out = nn.Linear(4, 7)
    with pytest.raises(TangentError, match="replaced"):
        lin(x)
    with pytest.raises(TangentError, match="replaced"):
        lin(x.requires_grad_())
    lin = moved(Two())
    nn.utils.parametrizations.weight_norm(lin.get_submodule("first"))
    with pytest.raises(TangentError, match="replaced"):
        lin(x)


class Clamped(nn.Module):
    """Keeps its own weights within bounds."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 3))

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.weight.clamp_(-0.5, 0.5)
        return x @ self.weight


def test_a_network_that_changes_its_weights_is_refused(x: Tensor) -> None:
    with pytest.raises(TangentError, match="changed its parameter 'weight'"):
        linearize(Clamped())(x)


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.layer(x))


def test_randomness_is_refused_with_gradients_of_inputs_too(x: Tensor) -> None:
    lin = linearize(Noisy())
    with pytest.raises(TangentError, match="random numbers"):
        lin(x.requires_grad_())


def test_merging_takes_the_statistics_in_use(x: Tensor) -> None:
    """With batch_norm="eval" these are the loaded ones, for the model, its error and the merged network alike."""
    network = Two().double()
    lin = moved(network, batch_norm="eval")
    state = lin.state_dict()
    state["batch_norm.running_mean"] = torch.full((4,), 3.0, dtype=torch.float64)
    lin.load_state_dict(state)
    x = x.double()
    primal, tangent = lin.expand(x)
    merged = lin.merge().eval()(x)
    gap = (merged - primal - tangent).norm(dim=1)
    torch.testing.assert_close(gap, linearization_error(lin, x).absolute)


@pytest.mark.parametrize("shared", [True, False])
def test_several_threads(shared: bool, x: Tensor) -> None:
    layers = [nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)]
    models = [moved(nn.Sequential(*layers))] * 4 if shared else [moved(nn.Sequential(*layers)) for _ in range(4)]
    expected = [model(x).detach() for model in models]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: models[i % 4](x).detach(), range(100)))
    assert all(difference(value, expected[i % 4]) < 1e-6 for i, value in enumerate(found))


def test_autocast_through_batch_norm() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 5)).eval()
    lin, images = moved(network), torch.randn(4, 3, 6, 6)
    with torch.autocast("cpu", torch.bfloat16):
        output = lin(images)
    assert output.dtype == torch.bfloat16
    assert difference(output.float(), lin(images)) < 0.05


def wide() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(64, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 4), nn.Flatten(), nn.Linear(576, 3))


def test_built_in_inference_mode() -> None:
    images = torch.randn(2, 64, 8, 8)
    with torch.inference_mode():
        lin = linearize(wide())
        move(lin)
        inside = lin(images)
    assert difference(lin(images).detach(), inside) < 1e-6


def test_kept_layouts_follow_the_base_point() -> None:
    """Wide convolutions keep a copy of their base weights in another layout; nothing may leave it behind."""
    images = torch.randn(2, 64, 8, 8)
    lin = moved(wide())
    expected = lin(images).detach()
    lin.double()
    exact = lin(images.double()).detach()
    assert difference(expected.double(), exact) < 1e-5
    assert difference(lin.float()(images), expected) < 1e-6
    assert difference(lin.to(memory_format=torch.channels_last)(images), expected) < 1e-5
    with torch.no_grad():
        for tensor in lin._base.tensors().values():
            tensor.mul_(0.5)
    fresh = linearize(wide(), at=lin.base_state_dict(), theta0=lin.base_state_dict())
    fresh.load_state_dict(lin.state_dict())
    assert difference(lin(images), fresh(images)) < 1e-5
    assert difference(lin(images), expected) > 1e-2
