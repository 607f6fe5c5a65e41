"""Every operation with a rule, with each of its options: the rule is taken, and it is right."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import resolve_name

import tangentlab
from tangentlab.kernels import _cost as cost
from tangentlab.kernels._layout import Layout
from tangentlab.kernels.rules import RULES, Call
from tangentlab.kernels.rules._broadcast import Broadcast
from tangentlab.kernels.rules._lookup import Lookup
from tangentlab.kernels.rules._outer import Outer
from tests.kernels.cases import build
from tests.kernels.parts import Case
from tests.kernels.rule_cases import OPERATIONS

# A wrong rule can be found out and made up for by the fallback: right numbers are not enough.
pytestmark = pytest.mark.filterwarnings("error:.*fallback:UserWarning")

EACH = [
    pytest.param(operation, case, id=f"{resolve_name(operation)} {number}")
    for operation, cases in OPERATIONS.items()
    for number, case in enumerate(cases)
]


def test_every_operation_is_here() -> None:
    """F.prelu is torch.prelu, and so on: operations are compared as they are registered."""
    assert set(RULES) == set(OPERATIONS)


@pytest.mark.parametrize(("operation", "case"), EACH)
def test_rule_is_taken_or_says_no(operation: Callable[..., Any], case: Case) -> None:
    """Where a parameter falls back, the rule has said so; it is not left to the check of its numbers."""
    model, x = build(case, 4, torch.float64)
    table = tangentlab.explain(model, x)
    fallen = table[table.form == "fallback"]
    assert set(fallen.parameters) == set(case.fallback)
    # Where x + p calls Tensor.add, the rule of Tensor.__add__ is met under that name.
    names = {resolve_name(other) for other, rule in RULES.items() if rule is RULES[operation]}
    shown = ", ".join(fallen.operation if case.fallback else table.operation)  # of a tied parameter, all of them
    assert names.intersection(shown.split(", "))
    assert "gradient check" not in set(table.operation)


@pytest.mark.parametrize(("operation", "case"), EACH)
@pytest.mark.parametrize("compact", [True, False], ids=["compact", "written out"])
def test_rule_is_right(operation: object, case: Case, compact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        cost, "compact_is_cheaper", lambda use, readouts, *_: compact and use.compact_cost(readouts) is not None
    )
    model, x = build(case, 4, torch.float64)
    expected = tangentlab.reference.ntk(model, x)
    found = tangentlab.ntk(model, x, batch_size=3)
    assert (found - expected).norm() <= 1e-11 * expected.norm()


def test_outputs_of_a_convolution_are_told() -> None:
    """The output's size stands in the use; of a transposed convolution, too."""
    x, w = torch.randn(3, 4, 5, 6), torch.nn.Parameter(torch.randn(2, 4, 3, 2))
    v = torch.nn.Parameter(torch.randn(4, 2, 3, 2))
    for operation, weight, size in ((torch.conv2d, w, (3, 5)), (torch.conv_transpose2d, v, (7, 7))):
        call = Call(operation(x, weight), Layout(0), 3, {id(weight)})
        ((_, use),) = RULES[operation](call, x, weight)
        assert use.outputs == size
        assert use.transposed is (operation is torch.conv_transpose2d)


@pytest.mark.parametrize("options", [{"training": True}, {"running_mean": None}, {"running_var": None}], ids=str)
def test_statistics_of_the_batch_have_no_rule(options: dict[str, Any]) -> None:
    arguments: dict[str, Any] = {"running_mean": torch.zeros(4), "running_var": torch.ones(4)} | options
    x, w = torch.randn(3, 4), torch.nn.Parameter(torch.randn(4))
    call = Call(x * w, Layout(0), 3, {id(w)})
    assert RULES[F.batch_norm](call, x, **arguments, weight=w) == []


@pytest.mark.parametrize("options", [{"max_norm": 1.0}, {"scale_grad_by_freq": True}], ids=str)
def test_embeddings_that_change_have_no_rule(options: dict[str, Any]) -> None:
    x, w = torch.arange(3), torch.nn.Parameter(torch.randn(4, 2))
    assert RULES[F.embedding](Call(F.embedding(x, w), Layout(0), 3, {id(w)}), x, w, **options) == []


@pytest.mark.parametrize("mode", ["floor", "trunc"])
def test_rounded_quotients_have_no_rule(mode: str) -> None:
    x, w = torch.randn(3, 4), torch.nn.Parameter(torch.rand(4) + 1)
    assert RULES[torch.div](Call(x / w, Layout(0), 3, {id(w)}), x, w, rounding_mode=mode) == []


X, P = torch.rand(3, 4, 5) + 1, torch.nn.Parameter(torch.rand(5) + 1)
W, H = torch.nn.Parameter(torch.randn(5, 5)), torch.nn.Parameter(torch.randn(4, 5, 5))


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        *((operation, (X, P)) for operation in (torch.add, torch.sub, torch.rsub, torch.mul, torch.div)),
        *((operation, (P, X)) for operation in (torch.add, torch.sub, torch.rsub, torch.mul, torch.div)),
        *((torch.matmul, arguments) for arguments in ((X, W), (W, X.mT), (X[:, :, None], H))),
        (F.linear, (X, W)),
        (torch.einsum, ("bti,oi->bto", X, W)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_only_parameters_have_uses(operation: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """An operand that is no parameter costs nothing: no use of it is made."""
    tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
    call = Call(operation(*arguments), Layout(0), 3, {id(a) for a in tensors if a.requires_grad})
    for tracked in ({id(a) for a in tensors if a.requires_grad}, set()):
        uses = RULES[operation](replace(call, tracked=tracked), *arguments)
        assert [id(tensor) for tensor, _ in uses] == [id(a) for a in tensors if id(a) in tracked]


@pytest.mark.parametrize(
    ("operation", "arguments", "axis"),
    [
        (F.linear, (X, P), 0),
        (torch.einsum, ("...i,oi->...o", X, W), 0),
        (torch.einsum, ("bti,ii->bti", X, W), 0),
        (torch.Tensor.repeat, (P[None], 3, 2), 0),
        (torch.conv1d, (X.permute(2, 1, 0), torch.nn.Parameter(torch.randn(2, 4, 1))), 2),
        (torch.conv_transpose1d, (X.permute(2, 1, 0), torch.nn.Parameter(torch.randn(4, 2, 1))), 2),
        (torch.matmul, (X, P), 0),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_no_uses(operation: Callable[..., Any], arguments: tuple[Any, ...], axis: int) -> None:
    """Where a rule does not know a case it gives no uses."""
    tracked = {id(a) for a in arguments if isinstance(a, torch.Tensor)}
    call = Call(operation(*arguments), Layout(axis), 3, tracked)
    assert RULES[operation](call, *arguments) == []


@pytest.mark.parametrize(
    "operation",
    [F.layer_norm, F.rms_norm, F.group_norm, F.instance_norm, torch.conv_transpose1d],
    ids=lambda operation: operation.__name__,
)
def test_defaults_are_those_of_the_operation(operation: Callable[..., Any]) -> None:
    """Where an option is left out, a rule takes what the operation takes."""
    found = {name: p.default for name, p in inspect.signature(RULES[operation]).parameters.items()}
    if operation is torch.conv_transpose1d:  # has no signature that Python can read
        for number in (1, 2, 3):
            for name, expected in {"bias": None, "stride": 1, "padding": 0, "dilation": 1, "groups": 1}.items():
                convolve = getattr(torch, f"conv_transpose{number}d")
                assert inspect.signature(RULES[convolve]).parameters[name].default == expected
        return
    for name, parameter in inspect.signature(operation).parameters.items():
        if parameter.default is not inspect.Parameter.empty and parameter.default != found[name]:
            assert name in ("running_mean", "running_var", "weight", "bias")
            assert found[name] in (None, inspect.Parameter.empty)


def test_running_statistics_are_left_alone() -> None:
    """An instance normalization by its input's statistics would update the running ones, were they given."""
    x, w = torch.randn(2, 4, 3), torch.nn.Parameter(torch.randn(4))
    mean, var = torch.zeros(4), torch.ones(4)
    ((_, use),) = RULES[F.instance_norm](Call(x, Layout(0), 2, {id(w)}), x, mean, var, w, use_input_stats=True)
    g = torch.randn(2, 1, 1, 4, 3)
    expected = (g.squeeze(2) * F.instance_norm(x).unsqueeze(1)).sum(3)
    torch.testing.assert_close(use.gradient(g), expected)
    assert torch.equal(mean, torch.zeros(4))
    assert torch.equal(var, torch.ones(4))


MEAN = torch.arange(4, dtype=torch.float64)
VARIANCE = MEAN + 1
SAMPLES_FIRST = [Layout(0), Layout(0, 3), Layout(0, 3, minor=True)]
LAST_AXIS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (F.layer_norm, lambda x, w: (x, (4,), w)),
    (F.rms_norm, lambda x, w: (x, (4,), w)),
    (torch.mul, lambda x, w: (x, w)),
    (torch.div, lambda x, w: (x, w)),
    (torch.div, lambda x, w: (w, x)),
]
CHANNELS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (F.batch_norm, lambda x, w: (x, MEAN, VARIANCE, w)),
    (F.group_norm, lambda x, w: (x, 2, w)),
    (F.instance_norm, lambda x, w: (x, None, None, w)),
    (F.instance_norm, lambda x, w: (x, MEAN, VARIANCE, w, None, False)),
    (F.prelu, lambda x, w: (x, w)),
]


@pytest.mark.parametrize(
    ("operation", "arguments", "layout"),
    [
        *((*each, layout) for each in LAST_AXIS for layout in [*SAMPLES_FIRST, Layout(1), Layout(1, 3, minor=True)]),
        *((*each, layout) for each in CHANNELS for layout in SAMPLES_FIRST),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize("rows", [slice(2, 3), slice(1, 4)])
def test_some_samples_have_the_gradients_that_they_have_among_all(
    operation: Callable[..., Any], arguments: Callable[..., Any], layout: Layout, rows: slice
) -> None:
    sizes = [2, 4, 6, 4] if layout.axis == 0 else [2, 5, 4]
    sizes[layout.axis] = 5 * layout.inner
    x, w = torch.rand(sizes, dtype=torch.float64) + 0.5, torch.rand(4, dtype=torch.float64) + 1
    output = operation(*arguments(x, w))
    ((_, use),) = RULES[operation](Call(output, layout, 5, {id(w)}), *arguments(x, w))
    g = layout.split(torch.randn(output.shape, dtype=torch.float64), 5).unsqueeze(1)
    torch.testing.assert_close(use[rows].gradient(g[rows]), use.gradient(g)[rows], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(use[1:4][0:2].gradient(g[1:3]), use.gradient(g)[1:3], rtol=1e-12, atol=1e-12)


def test_uses_of_one_weight_are_joined() -> None:
    """Positions one after the other where all uses are alike; else there is no common use."""
    a, b = torch.randn(2, 3, 5), torch.randn(2, 1, 5)
    one, two, other = Outer(W.shape, a), Outer(W.shape, b), Outer(W.shape, a, transposed=True)
    assert one.merge([one]) is one
    assert one.merge([one, other]) is None
    assert one.merge([one, two, other]) is None
    g = [torch.randn(2, 4, 3, 5), torch.randn(2, 4, 1, 5)]
    for first, second in ((one, two), (other, Outer(W.shape, b, transposed=True))):
        joined = first.merge([first, second])
        assert joined is not None
        assert joined.transposed == first.transposed
        assert joined.positions == 4
        torch.testing.assert_close(
            joined.gradient(joined.join(g)), first.gradient(first.join(g[:1])) + second.gradient(g[1])
        )


def test_lookups_of_one_table_are_joined() -> None:
    index = torch.tensor([[0, 2, 2], [1, 0, 3]])
    one, two = Lookup(torch.Size((4, 5)), index, 2), Lookup(torch.Size((4, 5)), index[:, :2], 0)
    assert one.merge([one]) is one
    g = [torch.randn(2, 2, 1, 3, 5), torch.randn(2, 2, 1, 2, 5)]
    joined = one.merge([one, two])
    assert joined is not None
    assert joined.index.shape == (2, 5)
    torch.testing.assert_close(joined.gradient(joined.join(g)), one.gradient(g[0]) + two.gradient(g[1]))


def test_other_uses_are_not_joined() -> None:
    one, two = (Broadcast(torch.Size((5,)), (1,)) for _ in range(2))
    assert one.merge([one]) is one
    assert one.merge([one, two]) is None
    g = torch.randn(2, 3, 1, 5)
    assert one.join([g]) is g
    assert torch.equal(one.features(g), g.squeeze(2))


@pytest.mark.parametrize("scale", [0, 1, 2, -0.5])
@pytest.mark.parametrize("shape", [(), (1,), (5,), (4, 1), (4, 5)], ids=str)
def test_spread_parameters(scale: float, shape: tuple[int, ...]) -> None:
    """A parameter along the last axes of the output, its gradient summed over the others and scaled."""
    h, g = torch.randn(3, 4, 5), torch.randn(3, 2, 4, 5)
    use = Broadcast.aligned(torch.zeros(shape), torch.zeros(4, 5), lambda rows: h[rows], scale)
    p = torch.zeros(shape, requires_grad=True)
    for n in range(3):
        for r in range(2):
            (expected,) = torch.autograd.grad((scale * p * h[n] * g[n, r]).sum(), p)
            torch.testing.assert_close(use.gradient(g)[n, r], expected)


@pytest.mark.parametrize("alpha", [0, 1, 2, -0.5])
def test_scaled_products(alpha: float) -> None:
    x, w, b = torch.randn(3, 5), torch.nn.Parameter(torch.randn(5, 4)), torch.nn.Parameter(torch.randn(4))
    call = Call(torch.addmm(b, x, w, alpha=alpha), Layout(0), 3, {id(w), id(b)})
    (_, product), (_, term) = RULES[torch.addmm](call, b, x, w, alpha=alpha)
    g = torch.randn(3, 2, 1, 4)
    torch.testing.assert_close(product.gradient(g), alpha * torch.einsum("ni,nrto->nrio", x, g))
    torch.testing.assert_close(term.gradient(g), g.squeeze(2))


@pytest.mark.parametrize("h", [None, 3.0])
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_a_bias_has_the_sum_of_the_output_gradients(h: float | None, scale: float) -> None:
    """Only such a use may join the factor of the weight, which has these sums already."""
    factor = None if h is None else lambda rows: torch.full((2, 4, 3), h)[rows]
    use = Broadcast.aligned(torch.zeros(3), torch.zeros(2, 4, 3), factor, scale)
    use = replace(use, axes=(1,))
    g = torch.randn(2, 5, 4, 3)
    assert use.is_bias == torch.allclose(use.gradient(g), g.sum(2))
