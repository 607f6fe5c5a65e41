"""What cannot be linearized is refused, with what, why and the remedy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tangentlab import TangentError
from tangentlab.linearized import linearization_error, linearize
from tests.linearized.reference import difference, flat, jacobian, move


class Functional(nn.Module):
    """A linear layer and a function of its output."""

    def __init__(self, function: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 6)
        self.function = function
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, x: Tensor) -> Any:
        return self.function(self, self.layer(x))


REFUSED_AT_ONCE: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "dropout": (lambda: nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5)), r"'?1'? \(Dropout\) draws random"),
    "dropout 2d": (lambda: nn.Sequential(nn.Conv2d(4, 6, 1), nn.Dropout2d(0.1)), "Dropout2d"),
    "attention dropout": (lambda: nn.MultiheadAttention(4, 2, dropout=0.1), "MultiheadAttention"),
    "recurrent dropout": (lambda: nn.GRU(4, 4, num_layers=2, dropout=0.1), "GRU"),
    "rrelu": (lambda: nn.Sequential(nn.Linear(4, 6), nn.RReLU()), "RReLU"),
    "lazy": (lambda: nn.Sequential(nn.LazyLinear(3)), r"0\.weight.*has not been created"),
    "batch norm without statistics": (
        lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, track_running_stats=False)),
        "no running statistics",
    ),
    "no parameters": (lambda: nn.ReLU(), "no parameters"),
    "linearized": (lambda: linearize(nn.Linear(4, 2)), "already linearized"),
    "compiled": (lambda: torch.compile(nn.Linear(4, 2)), "compiled"),
    "complex": (lambda: nn.Linear(4, 2, dtype=torch.complex64), "complex64"),
    "old weight norm": (lambda: _after_a_call(nn.utils.weight_norm(nn.Linear(4, 2))), "cannot be copied"),
}


def _after_a_call(network: nn.Module) -> nn.Module:
    network(torch.randn(2, 4))
    return network


@pytest.mark.parametrize("name", REFUSED_AT_ONCE)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_refused_at_once(name: str) -> None:
    make, message = REFUSED_AT_ONCE[name]
    with pytest.raises(TangentError, match=message) as refusal:
        linearize(make())
    assert refusal.value.remedy


REFUSED_WHEN_CALLED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "functional dropout": (lambda: Functional(lambda m, x: F.dropout(x, 0.5, m.training)), "drew random numbers"),
    "noise": (lambda: Functional(lambda m, x: x + torch.randn_like(x)), "drew random numbers"),
    "functional batch norm": (
        lambda: Functional(lambda m, x: F.batch_norm(x, None, None, training=True)),
        "statistics of the batch",
    ),
    "spectral norm in training mode": (
        lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)),
        "changed its buffer",
    ),
    "a parameter created at the first call": (lambda: Functional(_create), "created parameters.*late"),
    "no tensor": (lambda: Functional(lambda m, x: "text"), "no floating-point tensor"),
    "outputs that are NaN": (lambda: Functional(lambda m, x: (x - x) / (x - x)), "outputs hold NaN"),
    "one output that is NaN": (
        lambda: Functional(lambda m, x: (x, torch.where(_FIRST, (-x * x).log(), x))),
        "outputs hold NaN",
    ),
    "outputs that are infinite": (lambda: Functional(lambda m, x: (1e30 * x) * 1e30), "outputs hold NaN or infinite"),
    "outputs plus infinity": (lambda: Functional(lambda m, x: x + torch.inf), "outputs hold NaN or infinite"),
    "NaN that no weight has a part in": (lambda: Functional(lambda m, x: (x, _FIRST / _FIRST)), "outputs hold NaN"),
    "a derivative that is not finite": (lambda: Functional(lambda m, x: (x - x.detach()).sqrt()), "gradients hold NaN"),
    "a backward pass that raises": (lambda: Functional(lambda m, x: _Raises.apply(x)), "cannot differentiate.*not now"),
    "only integers": (lambda: Functional(lambda m, x: x.argmax(1)), "no floating-point tensor"),
    "max norm": (lambda: Functional(lambda m, x: F.embedding(_ROWS, m.layer.weight, max_norm=1.0)), "max_norm"),
    "scaled by frequency": (
        lambda: Functional(lambda m, x: F.embedding(_ROWS, m.layer.weight, scale_grad_by_freq=True)),
        "scale_grad_by_freq",
    ),
    "bag of maxima": (
        lambda: Functional(lambda m, x: F.embedding_bag(_ROWS.view(1, 2), m.layer.weight, mode="max")),
        "maximum",
    ),
    "neither forwards nor twice backwards": (
        lambda: Functional(lambda m, x: torch.cdist(_Twice.apply(x), m.layer.weight.t()[:, :1].expand(4, 6))),
        "neither forwards.*\n.*_cdist_backward",
    ),
}
_ROWS = torch.tensor([0, 1])
_FIRST = torch.arange(6) == 0


class _Twice(torch.autograd.Function):
    """Differentiable twice backwards, not forwards."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * g * x


class _Once(_Twice):
    """Differentiable once, backwards."""

    backward = staticmethod(torch.autograd.function.once_differentiable(_Twice.backward))


class _Raises(_Twice):
    """Its backward pass raises what is no RuntimeError."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        raise AssertionError("not now")


def _create(module: nn.Module, x: Tensor) -> Tensor:
    if not hasattr(module, "late"):
        module.late = nn.Parameter(torch.ones(6))
    return x * module.late


@pytest.mark.parametrize("name", REFUSED_WHEN_CALLED)
def test_refused_when_called(name: str) -> None:
    make, message = REFUSED_WHEN_CALLED[name]
    lin = linearize(make())
    with pytest.raises(TangentError, match=message) as refusal:
        lin(torch.randn(3, 4))
    assert refusal.value.remedy


def test_outputs_that_are_masked_by_infinity_are_fine() -> None:
    """They do not depend on the weights."""
    network = Functional(lambda m, x: x.masked_fill(_FIRST, -torch.inf))
    x = torch.randn(3, 4)
    lin = linearize(network)
    torch.testing.assert_close(lin(x), network(x))
    assert bool(torch.isinf(lin(x)[:, 0]).all())


def test_a_sum_of_gradients_too_large_for_half_precision_is_no_reason_to_refuse() -> None:
    network = nn.Linear(4, 6, bias=False).half()
    x = torch.full((50, 4), 60000.0).half()
    with torch.no_grad():
        network.weight.fill_(0.1)
    torch.testing.assert_close(linearize(network)(x), network(x))


def test_dropout_is_fine_in_evaluation_mode() -> None:
    network = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5)).eval()
    x = torch.randn(3, 4)
    lin = linearize(network).train()
    torch.testing.assert_close(lin(x), network(x))
    linearize(nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.0)))


def test_a_frozen_module_put_into_training_mode_is_noticed() -> None:
    lin = linearize(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6)))
    lin.get_submodule("1").train()
    with pytest.raises(TangentError, match=r"BatchNorm1d.*training mode"):
        lin(torch.randn(3, 4))


def _no_forward_mode() -> nn.Module:
    torch.manual_seed(0)
    return Functional(lambda m, x: m.head(x + _Twice.apply(m.middle(x))), middle=nn.Linear(6, 6), head=nn.Linear(6, 2))


@pytest.mark.parametrize("bias", [True, False])
def test_operations_without_a_forward_mode_go_backwards_twice(bias: bool) -> None:
    network = _no_forward_mode().double()
    x = torch.randn(3, 4, dtype=torch.float64)
    start, rows = jacobian(network, x)
    lin = linearize(network, bias=bias)
    move(lin)
    expected = start * bias + rows @ flat(lin.displacement().values())
    output = lin(x)
    assert difference(output.detach().reshape(-1), expected) < 1e-10
    output.square().sum().backward()
    assert difference(flat(p.grad for p in lin.parameters()), 2 * rows.T @ expected) < 1e-10
    with torch.no_grad():
        assert difference(lin(x).reshape(-1), expected) < 1e-10


def test_a_function_differentiable_once_is_not_silently_left_out() -> None:
    torch.manual_seed(0)
    network = Functional(
        lambda m, x: m.head(x + _Once.apply(m.middle(x))), middle=nn.Linear(6, 6), head=nn.Linear(6, 2)
    )
    lin = linearize(network)
    move(lin)
    with pytest.raises(TangentError, match=r"neither forwards(.|\n)*only once"):
        lin(torch.randn(3, 4))


def test_input_gradients_without_a_forward_mode_are_refused() -> None:
    lin = linearize(_no_forward_mode())
    with pytest.raises(TangentError, match="custom autograd function"):
        lin(torch.randn(3, 4, requires_grad=True))


@pytest.mark.parametrize("activation", [nn.Tanh(), nn.ReLU()])
def test_checkpointed_blocks_are_run_again_at_the_base_point(activation: nn.Module) -> None:
    """With the displaced weights they would give wrong gradients, and no error where only rules apply."""
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(6, 6), activation, nn.Linear(6, 6), activation)
    network = Functional(lambda m, x: m.body(checkpoint(m.body, x, use_reentrant=False)), body=body).double()
    x = torch.randn(3, 4, dtype=torch.float64)
    plain = Functional(lambda m, x: m.body(m.body(x)), body=body).double()
    plain.load_state_dict(network.state_dict())
    start, rows = jacobian(plain, x)
    lin = linearize(network)
    move(lin)
    output = lin(x)
    expected = start + rows @ flat(lin.displacement().values())
    assert difference(output.detach().reshape(-1), expected) < 1e-10
    output.square().sum().backward(retain_graph=True)
    assert difference(flat(p.grad for p in lin.parameters()), 2 * rows.T @ expected) < 1e-10
    with pytest.raises(TangentError, match="gradient of a gradient"):
        torch.autograd.grad(output.square().sum(), list(lin.parameters()), create_graph=True)


def test_nested_dual_levels_are_refused() -> None:
    lin = linearize(nn.Linear(4, 2))
    with torch.autograd.forward_ad.dual_level(), pytest.raises(TangentError, match="dual_level"):
        lin(torch.randn(3, 4))


@pytest.mark.parametrize(
    ("at", "message"),
    [
        ({}, "missing: 0.bias, 0.weight"),
        ({"0.weight": torch.zeros(2, 4), "0.bias": torch.zeros(2), "1.weight": torch.zeros(1)}, "unknown: 1.weight"),
        ({"0.weight": torch.zeros(3, 4), "0.bias": torch.zeros(2)}, r"another shape: 0.weight \(3, 4\) for \(2, 4\)"),
        (nn.Linear(4, 2), "missing: 0.bias, 0.weight; unknown"),
        (3, "int, which has no weights"),
        ("nowhere.pt", "nowhere.pt"),
    ],
)
@pytest.mark.parametrize("argument", ["at", "theta0"])
def test_weights_that_do_not_fit(at: Any, message: str, argument: str) -> None:
    with pytest.raises(TangentError, match=message) as refusal:
        linearize(nn.Sequential(nn.Linear(4, 2)), **{argument: at})
    assert argument in str(refusal.value)


def test_files_without_weights(tmp_path: Path) -> None:
    torch.save([1, 2], tmp_path / "list.pt")
    (tmp_path / "text.pt").write_text("no weights")
    with pytest.raises(TangentError, match="holds list"):
        linearize(nn.Linear(4, 2), at=tmp_path / "list.pt")
    with pytest.raises(TangentError, match="cannot be read"):
        linearize(nn.Linear(4, 2), at=tmp_path / "text.pt")


def test_other_refusals() -> None:
    with pytest.raises(TangentError, match="policy 'train'"):
        linearize(nn.Linear(4, 2), batch_norm="train")  # type: ignore[arg-type]
    with pytest.raises(TangentError, match="is not a torch"):
        linearize(lambda x: x)  # type: ignore[arg-type]
    with pytest.raises(TangentError, match="not linearized"):
        linearization_error(nn.Linear(4, 2), torch.randn(3, 4))  # type: ignore[arg-type]
    with pytest.raises(TangentError, match=r"lacks 1 parameters.*weight"):
        linearize(nn.Linear(4, 2, bias=False)).merge(into=nn.Linear(4, 3))
