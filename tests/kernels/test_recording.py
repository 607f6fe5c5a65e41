"""What is seen of a forward pass: which uses of parameters are recognized, and that nothing else is taken for one.

Every kernel is compared with its definition, and none may come by a detour: ``explain`` says how it is computed, and a
warning that the rules were left is an error here.
"""

import warnings
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tangentlab
from tangentlab import TangentError
from tests.kernels.parts import Functional, OwnFunction

D = 12


def samples(count: int = 7, seed: int = 3) -> Tensor:
    return torch.randn(count, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def network(forward: Callable[..., Any], **parts: Any) -> nn.Module:
    torch.manual_seed(0)
    parts = parts or {"w": torch.randn(D, D), "v": torch.randn(D, D)}
    return Functional(forward, **parts).double().eval()


def seen(model: nn.Module, x: Any = None) -> pd.DataFrame:
    """The plan, by parameter, of a kernel that is right and was computed as planned."""
    x = samples() if x is None else x
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = tangentlab.ntk(model, x, batch_size=4)
    expected = tangentlab.reference.ntk(model, x)
    assert (found - expected).norm() <= 1e-11 * expected.norm()
    table = tangentlab.explain(model, x)
    return table.assign(parameters=table.parameters.str.split(", ")).explode("parameters").set_index("parameters")


REORDERINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "t": lambda w: w.t(),
    "torch.t": torch.t,
    "T": lambda w: w.T,
    "mT": lambda w: w.mT,
    "H": lambda w: w.H,
    "mH": lambda w: w.mH,
    "adjoint": lambda w: w.adjoint(),
    "transpose": lambda w: w.transpose(0, 1),
    "torch.transpose": lambda w: torch.transpose(w, 0, 1),
    "transpose by name": lambda w: w.transpose(dim0=0, dim1=1),
    "permute": lambda w: w.permute(1, 0),
    "torch.permute": lambda w: torch.permute(w, dims=(1, 0)),
    "movedim": lambda w: w.movedim(0, 1),
    "torch.movedim": lambda w: torch.movedim(w, source=0, destination=1),
    "moveaxis": lambda w: w.moveaxis(0, 1),
    "swapaxes": lambda w: w.swapaxes(0, 1),
    "torch.swapdims": lambda w: torch.swapdims(w, 0, 1),
    "reshape": lambda w: w.reshape(D // 2, 2 * D).reshape(D, D),
    "torch.reshape": lambda w: torch.reshape(torch.reshape(w, (2 * D, D // 2)), (D, D)),
    "view": lambda w: w.view(-1).view(D, D),
    "view_as": lambda w: w.view(-1).view_as(torch.zeros(D, D)),
    "flatten": lambda w: w.flatten().unflatten(0, (D, D)),
    "torch.flatten": lambda w: torch.unflatten(torch.flatten(w, start_dim=0), 0, (D, D)),
    "squeeze": lambda w: w.unsqueeze(0).squeeze(0),
    "torch.squeeze": lambda w: torch.squeeze(torch.unsqueeze(w, dim=1), dim=1),
    "contiguous": lambda w: w.contiguous(),
    "contiguous transpose": lambda w: w.t().contiguous(),
    "clone": lambda w: w.clone(),
    "torch.clone": torch.clone,
    "flip": lambda w: w.flip(0),
    "torch.flip": lambda w: torch.flip(w, (0, 1)),
    "roll": lambda w: w.roll(3, 1),
    "torch.roll": lambda w: torch.roll(w, shifts=2, dims=0),
    "conj": lambda w: w.conj(),
    "positive": lambda w: +w,
}
SCALINGS: dict[str, Callable[[Tensor], Tensor]] = {
    "negative": lambda w: -w,
    "torch.neg": torch.neg,
    "torch.negative": torch.negative,
    "times a number": lambda w: w * 0.3,
    "a number times it": lambda w: 0.3 * w,
    "torch.mul": lambda w: torch.mul(w, 3),
    "torch.multiply": lambda w: torch.multiply(w, -3),
    "times zero": lambda w: w * 0.0,
    "times a tensor": lambda w: w * torch.tensor(0.3).double(),
    "a tensor times it": lambda w: torch.tensor(0.3).double() * w,
    "over a number": lambda w: w / 4,
    "torch.div": lambda w: torch.div(w, 0.4),
    "torch.divide": lambda w: torch.divide(w, 0.4),
    "torch.true_divide": lambda w: torch.true_divide(w, torch.tensor(5.0).double()),
    "again and again": lambda w: ((w * 2) / 5 * 0.7).t() * -3,
}


@pytest.mark.parametrize("name", [*REORDERINGS, *SCALINGS])
def test_a_multiple_of_a_reordered_parameter_is_as_cheap_as_the_parameter(name: str) -> None:
    """<s P g, s P h> = s^2 <g, h>: no gradient is written out, also where the parameter is used as it is beside it."""
    made = (REORDERINGS | SCALINGS)[name]
    plan = seen(network(lambda m, x: torch.tanh(x @ made(m.w)) @ m.v))
    assert (plan.form == "compact").all()
    twice = seen(network(lambda m, x: torch.tanh(x @ made(m.w)) @ made(m.w) + x @ m.v))
    assert (twice.form != "fallback").all()
    seen(network(lambda m, x: torch.tanh(x @ made(m.w)) @ m.w))


OTHERS: dict[str, Callable[[nn.Module], Tensor]] = {
    "a number over it": lambda m: 2.0 / (m.w + 5),
    "a tensor over it": lambda m: torch.div(torch.tensor(2.0).double(), m.w + 5),
    "the parameter itself below the bar": lambda m: torch.div(torch.tensor(2.0).double(), m.w),
    "squared": lambda m: m.w * m.w,
    "two parameters": lambda m: m.w * m.v,
    "times a vector": lambda m: m.w * torch.linspace(-1, 2, D).double(),
    "over a vector": lambda m: m.w / torch.linspace(1, 2, D).double(),
    "times one entry": lambda m: m.w * torch.tensor([0.5]).double(),
    "with another factor inside": lambda m: m.w.sub(m.v, alpha=0.5),
    "rounded and itself": lambda m: torch.div(m.w, 0.3, rounding_mode="floor") + m.w,
    "some rows": lambda m: torch.cat([m.w[:3], m.v[3:]]),
    "rows twice": lambda m: m.w[:6].repeat(2, 1),
    "a part": lambda m: torch.cat([m.w.flatten()[:D].view(1, D)] * D),
    "a function": lambda m: torch.tanh(m.w),
    "a function of a multiple": lambda m: torch.tanh(2 * m.w) * 3,
    "times a scale that is learned": lambda m: m.w * m.v[0, 0],
    "halves": lambda m: torch.cat(m.w.chunk(2)[::-1]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_function_of_parameters_is_recognized_and_written_out(name: str) -> None:
    made = OTHERS[name]
    plan = seen(network(lambda m, x: torch.tanh(x @ made(m)) + x @ m.v))
    assert "gradient check" not in set(plan.operation)
    assert (plan.form != "fallback").all()
    assert plan.form.w == "gradient"


def test_a_scale_from_the_samples_is_no_constant() -> None:
    """A scalar that the parameters of another layer made, and one with a graph of its own."""
    model = network(lambda m, x: torch.stack([row @ (m.w * (row @ m.v).sum().tanh()) for row in x]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = tangentlab.ntk(model, samples())
    expected = tangentlab.reference.ntk(model, samples())
    assert (found - expected).norm() <= 1e-11 * expected.norm()


def test_division_by_zero_is_the_models_own_affair() -> None:
    """Its result is thrown away."""

    def forward(m: Any, x: Tensor) -> Tensor:
        _ = m.w / 0, m.w / torch.tensor(0.0).double(), torch.div(m.w, 0.0)
        return torch.tanh(x @ m.w) @ m.v

    assert (seen(network(forward)).form == "compact").all()


def test_what_has_no_gradient_is_no_use() -> None:
    """Comparisons, indices and detached values of a parameter, on the way to a use that has one."""

    def forward(m: Any, x: Tensor) -> Tensor:
        mask, largest = m.w > 0, m.w.argmax(1)
        with torch.no_grad():
            size = m.w.t().norm()
        values, order = m.v.detach().sort()
        return torch.tanh(x @ m.w) @ m.v * mask.any() + (largest.sum() + size + values[0, 0] + order[0, 0]) * x

    assert (seen(network(forward)).form == "compact").all()


@pytest.mark.parametrize("need_weights", [True, False])
def test_attention_is_seen_inside(need_weights: bool) -> None:
    """torch offers it to a mode as a whole."""
    attention = nn.MultiheadAttention(D, 2, batch_first=True)
    model = network(
        lambda m, x: (
            m.a(x.view(-1, 1, D), x.view(-1, 1, D), x.view(-1, 1, D), need_weights=need_weights)[0].flatten(1) @ m.v
        ),
        a=attention,
        v=torch.randn(D, D),
    )
    plan = seen(model)
    assert (plan.form != "fallback").all()
    assert plan.form["a.out_proj.weight"] == "compact"


def test_arguments_by_name() -> None:
    def forward(m: Any, x: Tensor) -> Tensor:
        hidden = F.linear(input=x, weight=m.w, bias=m.b).tanh()
        normed = F.layer_norm(hidden, normalized_shape=(D,), weight=m.s, bias=m.b)
        return torch.matmul(input=normed, other=m.v).sum(dim=1, keepdim=True)

    parts = {"w": torch.randn(D, D), "v": torch.randn(D, D), "b": torch.randn(D), "s": torch.randn(D)}
    plan = seen(network(forward, **parts))
    assert (plan.form != "fallback").all()


@pytest.mark.parametrize("way", ["type_as", "to", "expand_as", "view_as", "reshape_as", "broadcast_to"])
def test_the_look_of_the_samples_is_none_of_their_content(way: str) -> None:
    ways: dict[str, Callable[[Any, Tensor], Tensor]] = {
        "type_as": lambda m, x: m.b.type_as(x),
        "to": lambda m, x: m.b.to(x),
        "expand_as": lambda m, x: m.b.expand_as(x),
        "view_as": lambda m, x: m.b.view_as(x[0]),
        "reshape_as": lambda m, x: m.b.reshape_as(x[0]),
        "broadcast_to": lambda m, x: m.b.broadcast_to(x.shape),
    }
    plan = seen(network(lambda m, x: torch.tanh(x + ways[way](m, x)) @ m.v, b=torch.randn(D), v=torch.randn(D, D)))
    assert (plan.form != "fallback").all()


def test_rows_of_a_parameter_that_the_samples_choose() -> None:
    """As many rows whatever the number of samples, but which ones is in the data."""

    def forward(m: Any, x: Tensor) -> Tensor:
        large = (x[:, 0] > 100).sum()
        return torch.tanh(x @ m.w[large + torch.arange(D)]) @ m.v

    model = network(forward, w=torch.randn(D + 3, D), v=torch.randn(D, D))
    found, expected = tangentlab.ntk(model, samples()), tangentlab.reference.ntk(model, samples())
    assert (found - expected).norm() <= 1e-11 * expected.norm()
    plan = tangentlab.explain(model, samples()).set_index("parameters")
    assert (plan.form.w, plan.form.v) == ("fallback", "compact")


IN_PLACE: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "scaled": lambda m, x: x @ (m.w * 1.0).mul_(3),
    "assigned": lambda m, x: _assigned(m, x),
    "through a view": lambda m, x: _through_a_view(m, x),
    "after a use": lambda m, x: _after_a_use(m, x),
}


def _assigned(m: Any, x: Tensor) -> Tensor:
    copy = m.w * 2.0
    copy[0] = 0
    return x @ copy


def _through_a_view(m: Any, x: Tensor) -> Tensor:
    copy = m.w * 2.0
    copy.t()[0].mul_(5)
    return x @ copy


def _after_a_use(m: Any, x: Tensor) -> Tensor:
    copy = m.w * 2.0
    first = x + copy[0]
    copy.zero_()
    return first + x @ copy


@pytest.mark.parametrize("name", IN_PLACE)
def test_a_copy_that_is_changed_in_place(name: str) -> None:
    model = network(lambda m, x: torch.tanh(IN_PLACE[name](m, x)) @ m.v)
    x = samples()
    found, expected = tangentlab.ntk(model, x), tangentlab.reference.ntk(model, x)
    assert (found - expected).norm() <= 1e-11 * expected.norm()
    plan = tangentlab.explain(model, x)
    assert set(plan[plan.parameters == "v"].form) == {"compact"}


def test_an_output_that_is_changed_in_place() -> None:
    def forward(m: Any, x: Tensor) -> Tensor:
        hidden = F.linear(x, m.w)
        hidden[:, 0] *= 2
        other = F.linear(x, m.v).unsqueeze(1)
        other.add_(1)
        rows = m.w[:7].expand(len(x), 7, D)[:, 0]
        return hidden.tanh() + other.squeeze(1) + rows.mul(x)

    assert (seen(network(forward)).form != "fallback").all()


def test_a_layer_that_is_computed_and_not_used() -> None:
    """Its rule is met, plain differentiation has nothing of it, and the kernel neither."""

    def forward(m: Any, x: Tensor) -> Tensor:
        _ = x @ m.v
        return torch.tanh(x @ m.w)

    assert seen(network(forward)).form.w == "compact"
    partly = network(lambda m, x: torch.tanh(x @ m.w) + (x @ m.v).detach())
    assert seen(partly).form.w == "compact"


def test_a_loop_over_samples_is_called_so() -> None:
    model = network(lambda m, x: torch.stack([torch.tanh(row @ m.w) @ m.v for row in x]))
    plan = tangentlab.explain(model, samples())
    assert set(plan.form) == {"fallback"}
    assert set(plan.operation) == {"changing control flow"}
    found, expected = tangentlab.ntk(model, samples()), tangentlab.reference.ntk(model, samples())
    assert (found - expected).norm() <= 1e-11 * expected.norm()


def test_hidden_code_is_called_so() -> None:
    model = network(lambda m, x: torch.tanh(x @ m.v) + OwnFunction.apply(x, m.w))
    plan = tangentlab.explain(model, samples()).set_index("parameters")
    assert plan.operation.w == "hidden code"
    assert plan.form.v == "compact"
    found, expected = tangentlab.ntk(model, samples()), tangentlab.reference.ntk(model, samples())
    assert (found - expected).norm() <= 1e-11 * expected.norm()


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_few_samples(count: int) -> None:
    assert (seen(network(lambda m, x: torch.tanh(x @ m.w) @ m.v), samples(count)).form == "compact").all()


def test_a_batch_of_one_is_no_other_network() -> None:
    model = network(lambda m, x: torch.tanh(x @ m.w) * (2 if len(x) == 1 else 1))
    with pytest.raises(TangentError, match=r"change by 5\.0e-01 \(relative\) when the other leaves the batch"):
        tangentlab.ntk(model, samples())
    third = network(lambda m, x: torch.tanh(x @ m.w) * (2 if len(x) > 2 else 1))
    with pytest.raises(TangentError, match=r"change by 5\.0e-01 \(relative\) when a third joins"):
        tangentlab.ntk(third, samples())


class Noise(torch.autograd.Function):
    """Draws random numbers out of sight."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x + torch.rand(())

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g


def test_random_numbers_of_hidden_code_are_refused() -> None:
    with pytest.raises(TangentError, match="random"):
        tangentlab.ntk(network(lambda m, x: torch.tanh(Noise.apply(x @ m.w))), samples())


class Broken(torch.autograd.Function):
    """Cannot be differentiated."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        raise RuntimeError("no derivative is known\nnor wanted")


def test_the_reason_why_torch_cannot_differentiate_is_told() -> None:
    with pytest.raises(TangentError, match=r"cannot differentiate the model: no derivative is known\n") as refusal:
        tangentlab.ntk(network(lambda m, x: Broken.apply(x @ m.w)), samples())
    assert "nor wanted" not in str(refusal.value)
