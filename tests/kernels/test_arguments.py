"""Operations whose further arguments change what they compute: no rule and no shortcut may overlook them."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import tangentlab
from tests.kernels.parts import Functional

DERIVED = {
    "div floor": lambda p: torch.div(p, 1e-6, rounding_mode="floor") * 1e-6,
    "div trunc": lambda p: torch.div(p, 1e7, rounding_mode="trunc"),
    "divide": lambda p: torch.divide(p, 1e7, rounding_mode="floor"),
    "method": lambda p: p.div(1e7, rounding_mode="floor"),
    "remainder": lambda p: p % 1e-6,
    "mul by keyword": lambda p: torch.mul(input=p, other=2.0),
    "div by keyword": lambda p: torch.div(input=p, other=2.0),
    "mul into": lambda p: torch.mul(p.detach(), 2.0) + p,
    "flip by keyword": lambda p: torch.flip(p, dims=(0,)),
    "roll by keyword": lambda p: torch.roll(p, shifts=1, dims=0),
    "clone": lambda p: p.clone(memory_format=torch.contiguous_format),
    "view as type": lambda p: p.view(torch.int64).view(torch.float64) + 0 * p,
}


@pytest.mark.parametrize("name", DERIVED)
def test_functions_of_a_parameter(name: str) -> None:
    """By layer, since what is wrong may be small beside the rest, and in single precision, where little shows."""
    torch.manual_seed(0)
    make = DERIVED[name]
    model = Functional(
        lambda m, x: F.linear(x, make(m.p)) + F.linear(x, m.q), p=torch.randn(3, 4), q=torch.randn(3, 4)
    ).double()
    x = torch.randn(6, 4).double()
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        if name == "view as type" and dtype is torch.float32:
            continue
        layers = tangentlab.ntk(model.to(dtype), x.to(dtype), per_layer=True)
        for layer, kernel in layers.items():
            expected = tangentlab.reference.ntk(model, x.to(dtype), parameters=[layer])
            assert float((kernel - expected).norm()) <= tolerance * float(expected.norm())


def test_a_layer_much_smaller_than_the_rest_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that is wrong on a layer whose share of the kernel is 1e-4, in single precision."""
    from tangentlab.kernels.factors import Hadamard

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
    with torch.no_grad():
        model[2].weight *= 1e-2
    x = torch.randn(40, 4)
    exact = {
        layer: tangentlab.reference.ntk(model, x, readout=0, parameters=[layer], dtype=torch.float64)
        for layer in ("0", "2")
    }
    assert float(exact["0"].norm() / exact["2"].norm()) < 2e-3
    right = Hadamard.add_gram

    def wrong(self: Any, other: Any, total: Any) -> None:
        if self.a.shape[1] == 4:
            self = Hadamard(1.5 * self.a, self.g, self.bias)
        right(self, other, total)

    monkeypatch.setattr(Hadamard, "add_gram", wrong)
    with pytest.warns(UserWarning, match="fallback"):
        layers: dict[str, Tensor] = tangentlab.ntk(model, x, readout=0, per_layer=True)
    for layer, kernel in layers.items():
        assert float((kernel.double() - exact[layer]).norm() / exact[layer].norm()) < 1e-5
