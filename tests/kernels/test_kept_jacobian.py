"""Products with the Jacobian of kept factors, with parameters in their own order."""

import pytest
import torch
from torch import Tensor, nn

import tangentlab
from tangentlab.kernels import _jacobian
from tangentlab.kernels._jacobian import KeptJacobian, keep_jacobian
from tangentlab.kernels._memory import Budget
from tangentlab.kernels._options import Options
from tangentlab.kernels._products import Products
from tests.kernels.cases import CASES, Case, build
from tests.kernels.parts import Functional
from tests.kernels.test_exact import FORMS, force, relative
from tests.kernels.test_options import MATRIX, images, network


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    force(monkeypatch, FORMS[request.param])
    return request.param


def reference(model: nn.Module, x: object, readout: object = "full") -> Tensor:
    """J, (N R, P), by plain differentiation."""
    parts = tangentlab.reference.jacobian(model, x, readout=readout)
    return torch.cat([part.reshape(part.shape[0] * part.shape[1], -1) for part in parts.values()], 1)


def assert_products(found: KeptJacobian, expected: Tensor) -> None:
    assert found.shape == tuple(expected.shape)
    u, v = (torch.randn(size, 3, dtype=torch.float64) for size in reversed(expected.shape))
    assert relative(found @ u, expected @ u) < 1e-10
    assert relative(found.rmatmul(v), expected.T @ v) < 1e-10


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_products_of_every_rule(case: Case, form: str) -> None:
    model, x = build(case, 5, torch.float64)
    found = keep_jacobian(model, x, Options())
    if found is None:  # the gradients of scaled parameters
        assert case.name in ("NTK parameterization", "scaled layer applied twice")
    else:
        assert_products(found, reference(model, x))


@pytest.mark.parametrize("readout", ["pntk", 1, MATRIX], ids=str)
def test_readouts(readout: object) -> None:
    model, x = network(), images(5)
    found = keep_jacobian(model, x, Options(readout, batch_size=2))
    assert found is not None
    assert_products(found, reference(model, x, readout))


def test_many_vectors_take_little_memory_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = network(), images(7)
    found = keep_jacobian(model, x, Options())
    assert found is not None
    monkeypatch.setattr(Products, "_share", 500)  # a sample or two at a time
    assert_products(found, reference(model, x))


def test_some_parameters_and_unused_ones() -> None:
    torch.manual_seed(0)
    model = Functional(
        lambda m, x: m.b(torch.tanh(m.a(x))), a=nn.Linear(4, 5), unused=nn.Linear(2, 2), b=nn.Linear(5, 2)
    )
    x = torch.randn(6, 4, dtype=torch.float64)
    model = model.double()
    found = keep_jacobian(model, x, Options(parameters=["a.bias", "unused", "b.weight"]))
    assert found is not None
    parts = tangentlab.reference.jacobian(model, x, parameters=["a.bias", "unused", "b.weight"])
    assert_products(found, torch.cat([part.reshape(part.shape[0] * part.shape[1], -1) for part in parts.values()], 1))


def test_a_reordered_parameter_is_left_to_passes() -> None:
    torch.manual_seed(0)
    model = Functional(lambda m, x: torch.tanh(x @ m.a.weight.reshape(4, 5)), a=nn.Linear(4, 5, bias=False)).double()
    assert keep_jacobian(model, torch.randn(3, 4, dtype=torch.float64), Options()) is None


def test_factors_that_do_not_fit_are_left_to_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = network(), images(5)
    monkeypatch.setattr(Budget, "resident", 2)
    assert keep_jacobian(model, x, Options()) is None
    monkeypatch.undo()
    monkeypatch.setattr(_jacobian, "_SHARE", 0.0)
    assert keep_jacobian(model, x, Options()) is None
