"""A kernel that is computed again after its model's weights have changed is the one that ``ntk`` gives."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tangentlab import TangentError, ntk
from tangentlab.kernels import _plan
from tangentlab.kernels.internal import Options, RepeatedKernel

X = torch.randn(7, 1, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 8), nn.LayerNorm(8), nn.Linear(8, 3)]
    return nn.Sequential(*layers).double().eval()


def move(model: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))


def same(one: Tensor, two: Tensor) -> bool:
    return one.shape == two.shape and float((one - two).abs().max()) <= 1e-10 * float(two.abs().max())


@pytest.fixture
def probes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of samples of every probe."""
    seen: list[int] = []
    original = _plan.probe

    def counting(network: object, samples: list[int], room: Callable[[int], int]) -> object:
        seen.append(len(samples))
        return original(network, samples, room)  # type: ignore[arg-type]

    monkeypatch.setattr(_plan, "probe", counting)
    return seen


@pytest.mark.parametrize("readout", ["pntk", "full", "trace"])
def test_changing_weights(readout: str, probes: list[int]) -> None:
    model, kernel = network(), RepeatedKernel(X, Options(readout))
    for seed in range(4):
        found = kernel(model)
        assert len(probes) == 1 + seed
        assert same(found, ntk(model, X, readout=readout))  # which probes as well
        move(model, seed)


def test_other_parameters_are_probed_again(probes: list[int]) -> None:
    model, kernel = network(), RepeatedKernel(X, Options("pntk"))
    kernel(model)
    model[0].requires_grad_(False)
    frozen = kernel(model)
    assert len(probes) == 2
    assert same(frozen, ntk(model, X, readout="pntk"))
    other = network()
    move(other, 9)
    assert same(kernel(other), ntk(other, X, readout="pntk"))


def test_a_copy_in_another_precision_is_made_anew() -> None:
    model, kernel = network().float(), RepeatedKernel(X, Options("pntk", dtype=torch.float64))
    for seed in range(2):
        assert same(kernel(model), ntk(model, X, readout="pntk", dtype=torch.float64))
        with torch.no_grad():
            model[-1].weight.mul_(seed + 2)


class Branching(nn.Module):
    """A network that uses a layer only while a weight is positive."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gate, self.one, self.two = nn.Parameter(torch.ones(())), nn.Linear(36, 3), nn.Linear(36, 3)

    def forward(self, x: Tensor) -> Tensor:
        layer = self.one if self.gate > 0 else self.two
        return self.gate * torch.tanh(layer(x.flatten(1)))


def test_control_flow_that_depends_on_weights() -> None:
    model, kernel = Branching().double(), RepeatedKernel(X, Options("pntk"))
    kernel(model)
    with torch.no_grad():
        model.gate.fill_(-2.0)
    assert same(kernel(model), ntk(model, X, readout="pntk"))  # probed again


def test_weights_that_are_not_finite_are_refused() -> None:
    model, kernel = network(), RepeatedKernel(X, Options("pntk"))
    kernel(model)
    with torch.no_grad():
        model[-1].weight.fill_(float("nan"))
    with pytest.raises(TangentError, match=r"NaN|not finite"):
        kernel(model)


class Modes(nn.Module):
    """A network whose user changes what it does between two calls."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two, self.mode = nn.Linear(36, 4), nn.Linear(4, 3), "plain"

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.one(x.flatten(1)))
        if self.mode == "mixed":
            h = h + h.mean(0, keepdim=True)
        if self.mode == "random":
            h = h * torch.rand(4, dtype=h.dtype)
        return self.two(h)[:, : 1 if self.mode == "shorter" else 3]


@pytest.mark.parametrize(("mode", "reason"), [("mixed", "joins the batch"), ("random", "random numbers")])
def test_what_ntk_refuses_is_refused_later_as_well(mode: str, reason: str) -> None:
    model, kernel = Modes().double(), RepeatedKernel(X, Options("full"))
    kernel(model)
    model.mode = mode
    with pytest.raises(TangentError, match=reason):
        kernel(model)


def test_another_number_of_outputs() -> None:
    model, kernel = Modes().double(), RepeatedKernel(X, Options("full"))
    kernel(model)
    model.mode = "shorter"
    assert same(kernel(model), ntk(model, X))


def test_modes_and_modules_that_change() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 3)).double().eval()
    kernel = RepeatedKernel(X, Options("pntk"))
    kernel(model)
    model[3] = nn.Sigmoid()
    assert same(kernel(model), ntk(model, X, readout="pntk"))
    model.train()
    with pytest.raises(TangentError, match="drops units at random"):
        kernel(model)
    model.eval()
    assert same(kernel(model), ntk(model, X, readout="pntk"))


def test_a_copy_of_a_model_that_changes_its_precision() -> None:
    """A plan for the model itself does not fit its copy in another precision, nor the other way round."""
    model, kernel = network(), RepeatedKernel(X, Options("pntk", dtype=torch.float64))
    for precision in (torch.float64, torch.float32, torch.float64):
        model.to(precision)
        assert same(kernel(model), ntk(model, X, readout="pntk", dtype=torch.float64))
