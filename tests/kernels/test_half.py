"""Half precision: factors of 16 bits, sums in float32, and a refusal where digits are lost."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tangentlab
from tangentlab.kernels import compute_factors
from tangentlab.kernels._network import Network
from tests.kernels.test_exact import force

HALVES = [torch.bfloat16, torch.float16]


def network(scale: float = 1.0) -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(2, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.ReLU(), nn.Flatten()
    model = nn.Sequential(*layers, nn.Linear(128, 20), nn.ReLU(), nn.Linear(20, 3))
    with torch.no_grad():
        model[7].weight.mul_(scale)
    return model


X = torch.randn(6, 2, 6, 6, generator=torch.Generator().manual_seed(1))


def error(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected).norm() / expected.norm())


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("options", [{}, {"readout": "pntk"}, {"diagonal": True}, {"readout": "trace"}], ids=str)
def test_kernels_are_in_single_precision(dtype: torch.dtype, options: dict[str, Any]) -> None:
    model = network()
    found = tangentlab.ntk(model, X, dtype=dtype, **options)
    assert found.dtype == torch.float32
    assert error(found, tangentlab.ntk(model, X, dtype=torch.float64, **options)) < 0.02
    assert next(model.parameters()).dtype == torch.float32


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_factors_take_half_of_the_memory_and_sums_are_in_float32(dtype: torch.dtype) -> None:
    """The kernel is that of the rounded factors, added up in float32: nothing is rounded to 16 bits again."""
    model = network()
    factors = compute_factors(model, X, "pntk", dtype=dtype)
    assert {t.dtype for part in factors.parts.values() for t in part.tensors().values()} == {dtype}
    exact = torch.zeros(6, 6, dtype=torch.float64)
    factors.cast(torch.float64).add_gram(factors.cast(torch.float64), exact)
    assert error(tangentlab.ntk(model, X, readout="pntk", dtype=dtype), exact) < 1e-6


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_gradients_of_two_sides_written_out_late(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients of both sides are written out in float32."""
    force(monkeypatch, True, True)
    model, x2 = network(), 0.5 * X[:4].flip(3)
    found = tangentlab.ntk(model, X, x2, dtype=dtype)
    assert error(found, tangentlab.ntk(model, X, x2, dtype=torch.float64)) < 0.02


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_operators_layers_and_sketches(dtype: torch.dtype) -> None:
    model = network()
    kernel = tangentlab.ntk(model, X, dtype=dtype).flatten(2).flatten(0, 1)
    operator, v = tangentlab.NTKOperator(model, X, dtype=dtype), torch.eye(18)
    assert operator.dtype == torch.float32
    assert error(operator @ v, kernel.double()) < 1e-5
    assert error(operator.diagonal(), kernel.double().diagonal()) < 1e-5
    assert error(operator.quadratic_form(v), kernel.double().diagonal()) < 1e-5
    layers = tangentlab.ntk(model, X, dtype=dtype, per_layer=True)
    assert error(sum(layers.values()).flatten(2).flatten(0, 1), kernel.double()) < 1e-5
    assert tangentlab.sketch(model, X, 64, dtype=dtype).features.dtype == torch.float32


def test_gradients_that_vanish_in_float16_are_refused() -> None:
    model = network(1e-8)
    with pytest.raises(tangentlab.TangentError, match=r"In float16 the kernel of a few samples is"):
        tangentlab.ntk(model, X, parameters="0", dtype=torch.float16)
    found = tangentlab.ntk(model, X, parameters="0", dtype=torch.bfloat16)
    assert error(found, tangentlab.ntk(model, X, parameters="0", dtype=torch.float64)) < 0.02


def test_gradients_that_overflow_in_float16_are_refused() -> None:
    class Large(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.full((4,), 1e-3))

        def forward(self, x: Tensor) -> Tensor:
            return ((x * 300 * self.w) * 300).sum(1, keepdim=True)

    x = torch.ones(5, 4)
    with pytest.raises(tangentlab.TangentError, match=r"float16|infinite"):
        tangentlab.ntk(Large(), x, dtype=torch.float16)
    torch.testing.assert_close(
        tangentlab.ntk(Large(), x, dtype=torch.bfloat16), torch.full((5, 1, 5, 1), 4 * 9e4**2), rtol=0.03, atol=0
    )


def test_a_model_that_is_in_half_precision_already() -> None:
    model = network().bfloat16()
    found = tangentlab.ntk(model, X.bfloat16())
    assert found.dtype == torch.float32
    assert error(found, tangentlab.ntk(model, X, dtype=torch.float64)) < 0.02


@pytest.mark.parametrize("allowed", ["matmul", "cudnn", None])
def test_tensor_float_is_rounding_and_never_switched_on(allowed: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU whose products PyTorch may round to ten bits, a difference of 1e-3 is no false alarm."""
    from tangentlab.kernels import _network

    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    try:
        torch.backends.cuda.matmul.allow_tf32 = allowed == "matmul"
        torch.backends.cudnn.allow_tf32 = allowed == "cudnn"
        assert _network._tensor_float_rounding() == (2.0**-10 if allowed else 0.0)
        tangentlab.ntk(network(), X)
        assert Network(network()).rounding == torch.finfo(torch.float32).eps  # nothing of it on the CPU
        now = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
        assert now == (allowed == "matmul", allowed == "cudnn")
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
