"""Decisions of the probe and of the checks behind it, each on a network for which the other decision is wrong."""

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tangentlab
from tangentlab import TangentError
from tangentlab.kernels import _placement
from tangentlab.kernels._factorize import ControlFlowChanged
from tangentlab.kernels._options import Options
from tangentlab.kernels._placement import _compare_owners
from tangentlab.kernels._plan import make_plan
from tangentlab.kernels._problem import Problem
from tangentlab.kernels._verify import verify
from tangentlab.kernels.rules import RULES
from tangentlab.kernels.rules._einsum import Einsum
from tangentlab.kernels.rules._use import Uses
from tests.kernels.parts import Functional
from tests.kernels.test_probe import SINGLE, network, plan_of, probed, samples

EINSUM = RULES[torch.einsum]


def doubled(*args: Any) -> Uses:
    """A wrong rule, whose gradients are twice as large."""
    return [(p, replace(use, others=[2 * t for t in use.others])) for p, use in EINSUM(*args)]  # type: ignore


def test_a_sample_without_outputs_and_gradients() -> None:
    model = nn.Sequential(nn.Linear(4, 5, bias=False), nn.Tanh(), nn.Linear(5, 2, bias=False)).double()
    x = samples(5)
    x[-1] = 0
    found = probed(model, x)
    assert found.fallback == {}
    assert not found.unused


@pytest.mark.parametrize(("chosen", "blank"), [([20], False), ([20], True), ([20, 31], False)])
def test_wrong_rules_of_experts_that_few_samples_choose(
    chosen: list[int], blank: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each expert has one sample; with ``blank``, one more is routed to each and brings it nothing but zeros."""
    monkeypatch.setitem(RULES, torch.einsum, doubled)

    def forward(m: Any, x: Tensor) -> Tensor:
        experts = [
            (x[:, :1] == 10 + i).to(x) * torch.einsum("bi,oi->bo", x[:, 1:], w) for i, w in enumerate((m.a, m.b))
        ]
        return sum(experts, m.c(x[:, 1:]))

    model = Functional(forward, a=torch.randn(2, 3), b=torch.randn(2, 3), c=nn.Linear(3, 2)).double()
    x = samples(40)
    for expert, sample in enumerate(chosen):
        x[sample, 0] = 10 + expert
        if blank:
            x[sample - 8] = torch.tensor([10 + expert, 0, 0, 0])
    found = probed(model, x, lambda _: 1000)
    assert found.fallback == dict.fromkeys("ab"[: len(chosen)], "gradient check")


@pytest.mark.parametrize("room", [0, 1000])
def test_one_sample_among_many_takes_another_way(room: int) -> None:
    """The probe is repeated without it, and its batch is judged by itself."""
    model = Functional(lambda m, x: m.a(x.clone() if (x[:, 0] > 5).any() else x), a=nn.Linear(4, 2)).double()
    x = samples(30)
    x[7, 0] = 6
    assert probed(model, x, lambda _: room).fallback == {}
    expected = tangentlab.reference.ntk(model, x)
    assert float((tangentlab.ntk(model, x) - expected).norm() / expected.norm()) < 1e-12


@pytest.mark.parametrize("room", [0, 1000])
def test_a_sample_that_is_another_one_alone(room: int) -> None:
    model = Functional(lambda m, x: m.a(x) * (1 if len(x) > 1 else 2), a=nn.Linear(4, 2)).double()
    with pytest.raises(TangentError, match="when the other leaves the batch"):
        probed(model, samples(6), lambda _: room)


def test_wrong_factors_of_any_probed_sample_are_found() -> None:
    plan = plan_of(count=48)
    assert len(plan.left.findings.probed.samples) == 3
    one = plan.factorizer(plan.left, plan.budget(0))(plan.left.samples, range(48))
    verify(plan, one, range(48), one, range(48))
    for sample in plan.left.findings.probed.samples:
        for part in one.parts.values():
            for tensor in part.tensors().values():
                kept = tensor[sample].clone()
                tensor[sample] *= 1.001
                with pytest.raises(ControlFlowChanged):
                    verify(plan, one, range(48), one, range(48))
                tensor[sample] = kept


@pytest.mark.parametrize("probed_samples", [False, True])
def test_a_layer_that_cancels_is_held_to_the_size_of_the_whole(probed_samples: bool) -> None:
    """Of a layer whose two uses cancel nothing but rounding is left, of the size of the terms that cancel."""
    model = Functional(
        lambda m, x: m.big(100 * x) + F.linear(x, m.small.w) - F.linear(x * (1 + 1e-13), m.small.w),
        big=nn.Linear(4, 3, bias=False),
        small=Functional(lambda m, x: x, w=torch.randn(3, 4)),
    ).double()
    x = samples(12)
    options = Options(readout="full", batch_size=12)
    plan = make_plan(Problem.pose(model, x, None, options, kind="gram", by_layer=True), ahead=True)
    one = plan.factorizer(plan.left, plan.budget(0))(plan.left.samples, range(12))
    rows = range(12) if probed_samples else range(2, 9)
    chosen = one if probed_samples else one[2:9]
    verify(plan, chosen, rows, chosen, rows)


def test_rounding_of_many_samples_is_no_error_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each sample is held to its own size, however many others there are."""
    model, x = network(2).float(), samples(500).float()
    hidden = model[:2](x).detach().requires_grad_()  # type: ignore[index]
    values = model[2](hidden)  # type: ignore[index]
    noise = 1 + 4e-5 * torch.randn(500, 1, generator=torch.Generator().manual_seed(3))

    def gradients(values: Tensor, uses: Any, count: int) -> list[Tensor]:
        return [torch.stack([torch.autograd.grad(v.sum(), hidden, retain_graph=True)[0] for v in values.T], 1)]

    right = gradients(values, [], 500)
    monkeypatch.setattr(_placement, "output_gradients", lambda *args: [g * noise[:, None] for g in gradients(*args)])
    _compare_owners(SINGLE, values, [], right)  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [lambda g: g.float(), lambda g: g.unsqueeze(-1)], ids=["dtype", "shape"])
def test_gradients_that_are_not_the_parameters_own(change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The right numbers in another dtype or shape are no gradients of the parameter."""
    right = Einsum.gradient
    monkeypatch.setattr(Einsum, "gradient", lambda use, g: change(right(use, g)))
    model = Functional(
        lambda m, x: torch.einsum("bi,oi->bo", x[:, :1], m.w) + m.c(x), w=torch.randn(1, 1), c=nn.Linear(4, 1)
    ).double()
    x = samples(5).mul(4).round()  # exact in single precision, too
    assert probed(model, x).fallback == {"w": "gradient check"}
