"""What is refused, and that the message says what, why and the remedy."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset

import tangentlab
from tests.kernels.parts import Functional


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))


X = torch.randn(6, 4)


def with_norm(**options: Any) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5, **options), nn.Linear(5, 3))


def frozen() -> nn.Module:
    return net().requires_grad_(False)


def nan_weights() -> nn.Module:
    model = net()
    with torch.no_grad():
        model[0].weight[0, 0] = float("nan")
    return model


class Counting(nn.Module):
    """Changes a buffer at every call."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.a(x)


def functional(forward: Callable[..., Any]) -> nn.Module:
    return Functional(forward, a=nn.Linear(4, 3))


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[Tensor]:
        return iter(X)


class Ragged(Dataset):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Tensor:
        return torch.ones(index + 1)


REFUSALS: dict[str, tuple[Callable[[], nn.Module], Any, dict[str, Any], str, str]] = {
    "batch norm in training mode": (lambda: with_norm().train(), X, {}, "statistics of the batch", "eval()"),
    "batch norm without running statistics": (
        lambda: with_norm(track_running_stats=False).eval(),
        X,
        {},
        "statistics of the batch",
        "track_running_stats=True",
    ),
    "functional batch norm": (
        lambda: functional(lambda m, x: F.batch_norm(m.a(x), None, None, training=True)),
        X,
        {},
        "when a third joins",
        "GroupNorm",
    ),
    "mean over the batch": (lambda: functional(lambda m, x: m.a(x - x.mean(0))), X, {}, "when a third joins", "axis"),
    "dropout in training mode": (
        lambda: nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)).train(),
        X,
        {},
        "drops units at random",
        "eval()",
    ),
    "functional dropout": (lambda: functional(lambda m, x: F.dropout(m.a(x), 0.5)), X, {}, "random numbers", "eval()"),
    "noise": (lambda: functional(lambda m, x: m.a(x + torch.randn_like(x))), X, {}, "random numbers", "noise"),
    "a buffer that changes": (Counting, X, {}, "changes the buffer calls", "eval()"),
    "NaN inputs": (net, torch.full((3, 4), float("nan")), {}, "x1 holds NaN", "nan_to_num"),
    "infinite inputs later on": (
        net,
        torch.cat([X, torch.full((1, 4), float("inf"))]),
        {"batch_size": 2},
        "x1 holds NaN or infinite",
        "Clean",
    ),
    "infinite outputs": (lambda: functional(lambda m, x: m.a(x) / 0), X, {}, "outputs hold NaN or infinite", "weights"),
    "NaN weights": (nan_weights, X, {}, "0.weight holds NaN", "finite"),
    "one sample without its axis": (net, X[0], {}, "float32 (2,)", "x[None]"),
    "a list of dicts": (net, [{"x": row} for row in X], {}, "a list of 6 dicts", "default_collate"),
    "output that is a name": (net, X, {"output": "logits"}, "output= is 'logits'", "lambda"),
    "no such device": (net, X, {"device": "nowhere"}, "device is 'nowhere'", "cpu"),
    "empty batch": (net, X[:0], {}, "x1 is empty", "at least one"),
    "wrong feature size": (net, torch.randn(3, 7), {}, "fails on a batch of 2 samples, float32 (2, 7)", "model(x)"),
    "wrong dtype": (net, X.double(), {}, "float64", "dtype="),
    "integer input": (net, torch.ones(3, 4, dtype=torch.long), {}, "int64", "dtype="),
    "meta model": (lambda: net().to("meta"), X, {}, "meta", "load its weights"),
    "meta data": (net, X.to("meta"), {}, "x1 is on the meta device", "CPU"),
    "second set of another shape": (
        net,
        X,
        {"x2": torch.randn(3, 5)},
        "fails on a batch of 2 samples, float32 (2, 5)",
        "",
    ),
    "second set empty": (net, X, {"x2": X[:0]}, "x2 is empty", ""),
    "tuple of different lengths": (net, (X, X[:2]), {}, "different numbers of samples: [2, 6]", "equal"),
    "input that cannot be counted": (net, "data", {}, "type str", "a Dataset"),
    "unknown readout": (net, X, {"readout": "logits"}, "no readout 'logits'", "'pntk'"),
    "readout index out of range": (net, X, {"readout": 3}, "output that does not exist", "range"),
    "readout matrix of the wrong size": (net, X, {"readout": torch.ones(2, 3)}, "float32 (2, 3)", "transpose"),
    "readout of one combination": (net, X, {"readout": torch.ones(3)}, "float32 (3,)", "readout[:, None]"),
    "readout that is a float": (net, X, {"readout": 0.5}, "type float", "tensor"),
    "readout with NaN": (net, X, {"readout": torch.full((3, 1), float("nan"))}, "readout matrix holds NaN", "finite"),
    "no trainable parameter": (frozen, X, {}, "no trainable parameter", "requires_grad_"),
    "no parameter": (nn.ReLU, X, {}, "no parameter", ""),
    "unknown parameter": (net, X, {"parameters": "7.weight"}, "No parameter is called '7.weight'", "0.weight"),
    "foreign parameter": (net, X, {"parameters": [nn.Parameter(torch.ones(1))]}, "not the model's", ""),
    "no parameter chosen": (net, X, {"parameters": lambda n, p: False}, "chooses none", "Widen"),
    "budget too small": (net, X, {"memory_budget": 100}, "budget of 100 B is too small for one tile", "at least"),
    "budget of nonsense": (net, X, {"memory_budget": "lots"}, "memory_budget is 'lots'", "4GiB"),
    "batch size zero": (net, X, {"batch_size": 0}, "batch_size is 0", "positive"),
    "integer precision": (net, X, {"dtype": torch.int32}, "torch.int32", "float64"),
    "two outputs": (lambda: functional(lambda m, x: (m.a(x), x)), X, {}, "returns tuple", "output="),
    "outputs summed over samples": (lambda: functional(lambda m, x: m.a(x).sum(0)), X, {}, "shape (3,)", "one row"),
    "integer outputs": (lambda: functional(lambda m, x: m.a(x).argmax(1)), X, {}, "int64", "logits"),
    "detached outputs": (lambda: functional(lambda m, x: m.a(x).detach()), X, {}, "do not depend", "detach()"),
    "lazy parameters": (lambda: nn.LazyLinear(3), X, {}, "has no shape yet", "Run the model once"),
    "complex parameters": (
        lambda: nn.Linear(4, 3, dtype=torch.complex64),
        X.to(torch.complex64),
        {},
        "complex",
        "real",
    ),
    "not a module": (lambda: lambda x: x, X, {}, "type function", "Wrap"),
    "inputs cumulated over the batch": (
        lambda: functional(lambda m, x: m.a(x.cumsum(0))),
        X,
        {},
        "when a third joins the batch",
        "first axis",
    ),
    "no parameter in a list": (net, X, {"parameters": []}, "chooses none", "Widen"),
    "parameters that are a number": (net, X, {"parameters": 3}, "parameters= is 3", "names"),
    "infinite budget": (net, X, {"memory_budget": float("inf")}, "memory_budget is inf", "4GiB"),
    "unknown device": (net, X, {"device": "nope"}, "device is 'nope'", "cpu"),
    "dtype by name": (net, X, {"dtype": "float32"}, "dtype is float32", "torch.float32"),
    "outputs without entries": (lambda: functional(lambda m, x: m.a(x)[:, :0]), X, {}, "shape (2, 0)", "outputs"),
    "sparse input": (net, X.to_sparse(), {}, "x1 is sparse", "to_dense"),
    "iterable data set": (net, Stream(), {}, "IterableDataset", "DataLoader"),
    "ragged data set": (net, Ragged(), {}, "do not make a batch", "Pad"),
    "table that renormalises itself": (
        lambda: nn.Embedding(5, 3, max_norm=1.0),
        torch.arange(4),
        {},
        "max_norm",
        "None",
    ),
    "small budget for a diagonal": (net, X, {"diagonal": True, "memory_budget": 1}, "too small", "at least"),
    "gradients that are not finite": (
        lambda: functional(
            lambda m, x: (m.a(x) * 0).abs().sqrt() if len(x) == 0 else (m.a(x) * (x[:, :1] != 7)).abs().sqrt()
        ),
        torch.cat([X[:2], torch.full((1, 4), 7.0), X[2:]]),
        {},
        "The kernel holds NaN",
        "float64",
    ),
    "diagonal of two sets": (net, X, {"x2": X.clone(), "diagonal": True}, "diagonal=True", "Leave x2 out"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusal(name: str) -> None:
    make, x, options, what, remedy = REFUSALS[name]
    with pytest.raises(tangentlab.TangentError) as caught:
        tangentlab.ntk(make(), x, **options)
    assert what in caught.value.what
    assert caught.value.remedy
    assert remedy in str(caught.value)


def test_two_precisions_in_one_model() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Functional(lambda m, x: m.a(x.double()), a=nn.Linear(4, 3).double()))
    with pytest.raises(tangentlab.TangentError, match="float32, float64"):
        tangentlab.ntk(model, X)
    assert tangentlab.ntk(model, X, parameters="1").dtype == torch.float64


@pytest.mark.parametrize("options", [{}, {"per_layer": True}, {"diagonal": True}, {"readout": "pntk"}])
def test_parameters_that_the_network_does_not_use(options: dict[str, Any]) -> None:
    model = nn.ModuleDict({"used": nn.Linear(4, 3), "idle": nn.Linear(4, 3)})
    model.forward = lambda x: model["used"](x)  # type: ignore[method-assign]
    x = torch.randn(5, 4)
    with pytest.raises(tangentlab.TangentError, match="do not depend on the chosen parameters"):
        tangentlab.ntk(model, x, parameters=["idle"], **options)
    with pytest.raises(tangentlab.TangentError, match="do not depend on the chosen parameters"):
        tangentlab.NTKOperator(model, x, parameters=["idle"]) @ torch.ones(15)
    both = tangentlab.ntk(model, x, parameters=["used.bias", "idle"], readout="trace")
    torch.testing.assert_close(both, torch.full((5, 5), 3.0))


def test_frozen_parameter_by_name() -> None:
    model = net()
    model[0].requires_grad_(False)
    with pytest.raises(tangentlab.TangentError, match=r"0\.weight is frozen"):
        tangentlab.ntk(model, X, parameters="0.weight")


def test_a_wrong_rule_never_becomes_a_wrong_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe notices a rule that gives wrong gradients and takes the fallback."""
    from tangentlab.kernels.rules._outer import Outer

    right = Outer.gradient
    monkeypatch.setattr(Outer, "gradient", lambda self, g: 1.01 * right(self, g))
    model = net()
    table = tangentlab.explain(model, X)
    assert set(table[table.form == "fallback"].operation) == {"gradient check"}
    expected = tangentlab.reference.ntk(model, X)
    assert (tangentlab.ntk(model, X) - expected).norm() < 1e-5 * expected.norm()


def test_a_wrong_factor_never_becomes_a_wrong_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last check compares the kernel of a few samples with plain differentiation."""
    from tangentlab.kernels.factors import Hadamard

    right = Hadamard.add_gram
    monkeypatch.setattr(
        Hadamard, "add_gram", lambda self, other, total: right(self, other, total) or total.out.mul_(1.01)
    )
    model = net()
    expected = tangentlab.reference.ntk(model, X)
    with pytest.warns(UserWarning, match="fallback"):
        found = tangentlab.ntk(model, X)
    assert (found - expected).norm() < 1e-5 * expected.norm()
    assert (tangentlab.ntk(model, X, check=False) - expected).norm() > 1e-3 * expected.norm()


def test_inference_mode() -> None:
    with torch.inference_mode():
        for compute in (tangentlab.ntk, tangentlab.reference.ntk):
            with pytest.raises(tangentlab.TangentError, match="inference_mode"):
                compute(net(), X)


def test_a_refusal_leaves_no_trace() -> None:
    model, noisy = Counting(), functional(lambda m, x: m.a(x + torch.randn_like(x)))
    state = torch.get_rng_state()
    for bad in (model, noisy):
        with pytest.raises(tangentlab.TangentError):
            tangentlab.ntk(bad, X)
    assert model.calls == 0
    assert torch.equal(state, torch.get_rng_state())
