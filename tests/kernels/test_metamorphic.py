"""What must hold for the kernel of any network, on random ones; many more are tried by ``make soak``."""

import zlib
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, seed, settings
from torch import Tensor, nn

import tangentlab
from tangentlab import NTKOperator
from tangentlab.store import StoredKernel
from tests.kernels.architectures import Architecture, Step
from tests.kernels.case import Case
from tests.kernels.properties import PROPERTIES
from tests.kernels.strategies import QUICK, architectures, check

pytestmark = pytest.mark.filterwarnings("ignore:The rules do not describe", "ignore::DeprecationWarning")
EXAMPLES = {
    "definition": 1,
    "labeled": 1,
    "stored": 3,
    "sketched": 4,
    "converted": 8,
    "summed": 8,
    "layers": 8,
    "layers_single": 8,
}


@pytest.mark.parametrize("name", PROPERTIES)
def test_property(name: str) -> None:
    @seed(zlib.crc32(name.encode()))  # other networks for each property
    @given(architectures())
    @settings(QUICK, derandomize=False, max_examples=EXAMPLES.get(name, 12))
    def holds(architecture: Architecture) -> None:
        check(architecture, name)

    holds()


PLAIN = Architecture(
    (Step("linear", {"bias": True}, "tanh"), Step("linear", {"bias": True}, "tanh", "residual")),
    positions=2,
    outputs=2,
    samples=4,
)


@pytest.mark.parametrize("name", PROPERTIES)
def test_properties_hold_without_refusal(name: str) -> None:
    assert check(PLAIN, name)


def off(kernel: Any) -> Any:
    """A kernel with one entry, of the last sample with itself, that is one percent too large."""
    if isinstance(kernel, dict):
        return {name: off(part) for name, part in kernel.items()}
    wrong = kernel.clone(memory_format=torch.contiguous_format)
    wrong.view(-1)[-1] *= 1.01
    return wrong


class Louder(nn.Module):
    """A network whose outputs are one percent too large."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        return self.network.named_parameters(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return 1.01 * self.network(*args, **kwargs)


def plant(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make what a property checks wrong by 1 % in one place."""
    ntk, product, read, sketch = tangentlab.ntk, NTKOperator.__matmul__, StoredKernel.read, tangentlab.sketch
    linearize = tangentlab.linearize

    def louder(*args: Any, **kwargs: Any) -> Any:
        sketched = sketch(*args, **kwargs)
        return replace(sketched, features=sketched.features * (1.01 if kwargs.get("batch_size") == 1 else 1))

    match name:
        case "operator":
            monkeypatch.setattr(NTKOperator, "__matmul__", lambda self, v: off(product(self, v)))
        case "stored":
            monkeypatch.setattr(StoredKernel, "read", lambda self: off(read(self)))
        case "sketched":
            monkeypatch.setattr(tangentlab, "sketch", louder)
        case "linearized_gradients" | "linearized_values":
            monkeypatch.setattr(tangentlab, "linearize", lambda model: Louder(linearize(model)))
        case _:
            monkeypatch.setattr(tangentlab, "ntk", lambda *args, **kwargs: off(ntk(*args, **kwargs)))


@pytest.mark.parametrize("name", PROPERTIES)
def test_every_property_finds_what_is_wrong(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(name, monkeypatch)
    with pytest.raises(AssertionError, match="off by"):
        check(PLAIN, name)


def test_a_changed_model_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    ntk = tangentlab.ntk

    def careless(model: nn.Module, *args: Any, **kwargs: Any) -> Any:
        next(model.parameters()).requires_grad_(False)
        return ntk(model, *args, **kwargs)

    case = Case(PLAIN)
    monkeypatch.setattr(tangentlab, "ntk", careless)
    monkeypatch.setattr(Case, "agree", lambda *args, **kwargs: None)
    with pytest.raises(AssertionError, match="the model was changed: flag of"):
        case.check(PROPERTIES["definition"])
