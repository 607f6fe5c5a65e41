"""The probe and the last check, number by number: what a kernel must be, which samples say so, what they find."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tangentlab
from tangentlab import TangentError
from tangentlab.kernels import _agreement
from tangentlab.kernels._factorize import ControlFlowChanged
from tangentlab.kernels._findings import Findings
from tangentlab.kernels._options import Options
from tangentlab.kernels._placement import Misplaced, _compare_outputs, _compare_owners, _weightings
from tangentlab.kernels._plan import Plan, make_plan
from tangentlab.kernels._probe import probe
from tangentlab.kernels._problem import Problem
from tangentlab.kernels._verify import verify, verify_kernels
from tests.kernels.parts import Functional


def network(outputs: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, outputs)).double()


def samples(count: int, seed: int = 1) -> Tensor:
    return torch.randn(count, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def probed(model: nn.Module, x: Any, room: Callable[[int], int] = lambda _: 0, **options: Any) -> Findings:
    problem = Problem.pose(model, x, options=Options(**{"readout": "full", **options}), kind="gram")
    return probe(problem.network, problem.samples[0], room)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize(
    ("count", "chosen"),
    [
        (1, [0]),
        (2, [1, 0]),
        (15, [14, 0, 7]),
        (31, [30, 0, 15]),
        (33, [32, 0, 16]),
        (48, [47, 0, 23]),
        (99, [98, 0, 49]),
    ],
)
@pytest.mark.parametrize("room", [0, 1000])
@pytest.mark.parametrize("large", [False, True])
def test_what_the_kernel_of_the_probed_samples_must_be(
    count: int, chosen: list[int], outputs: int, room: int, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """|J^T w|^2 of every parameter, w the product of a weight for each sample and one for each readout.

    Of a large network, few samples are compared if there are few.
    """
    model, x = network(outputs), samples(count)
    if large:
        monkeypatch.setattr(_agreement, "_SMALL", 0)
        chosen = chosen if count >= 48 else chosen[:2]
    found = probed(model, x, lambda _: room).probed
    if room and len(chosen) > 2:  # the second pass has all samples
        chosen = [*chosen[:2], count // 2]
    assert list(found.samples) == chosen
    assert len(set(found.weights.tolist())) == len(chosen)
    assert float(found.weights[0]) == float(found.readouts[0]) == 1.0
    assert bool(((found.weights >= 0.5) & (found.weights <= 1.5)).all())
    total = (found.weights.unsqueeze(1) * model(x[chosen]) * found.readouts).sum()
    gradients = torch.autograd.grad(total, list(model.parameters()))
    for (name, _), gradient in zip(model.named_parameters(), gradients, strict=True):
        assert found.squares[name] == pytest.approx(float(gradient.square().sum()), rel=1e-10)


@pytest.mark.parametrize(
    ("count", "size", "batch"),
    [(6, 0, None), (6, 2, None), (6, 3, [0, 1, 5]), (6, 5, [0, 1, 2, 3, 5]), (6, 99, [0, 1, 2, 3, 4, 5])],
)
def test_the_second_pass_is_the_first_batch(count: int, size: int, batch: list[int] | None) -> None:
    asked: list[int] = []

    def room(activations: int) -> int:
        asked.append(activations)
        return size

    model, x = network(), samples(count)
    found = probed(model, x, room)
    floats = 5 + 5 + 3
    assert asked == [8 * floats] == [found.activation_bytes]
    assert [list(first.samples) for first in found.first] == ([] if batch is None else [batch])
    if batch is None:
        return
    (first,) = found.first
    for seen, g in zip(first.uses, first.grads, strict=True):
        assert g.shape[:2] == (len(batch), 3)
        (name,) = seen.source.parameters
        expected = torch.autograd.grad(model(x[batch[:1]])[0, 1], dict(model.named_parameters())[name])[0]
        torch.testing.assert_close(seen[:1].use.gradient(g[:1])[0, 1], expected, rtol=1e-12, atol=1e-14)
    assert found.take_first(range(1, count)) is None  # the first sample is not among these
    assert found.first == []
    assert found.take_first(range(count)) is None  # it was given up


def test_the_first_batch_has_the_uses_that_a_recording_keeps() -> None:
    model, x = network(), samples(6)
    found = probed(model, x, lambda _: 4).without({"0.weight": "a reason"}, frozenset(["2.bias"]))
    assert found.skipped == {"0.weight", "2.bias"}
    assert {seen.source.parameters for seen in found.uses} == {("0.bias",), ("2.weight",)}
    first = found.take_first(range(6))
    assert first is not None
    assert [seen.source.parameters for seen in first.uses] == [seen.source.parameters for seen in found.uses]
    assert len(first.grads) == 2
    everything = dict.fromkeys(dict(model.named_parameters()), "a reason")
    nothing = probed(model, x, lambda _: 4).without(everything, frozenset())
    first = nothing.take_first(range(6))
    assert first is not None
    assert (len(first.uses), len(first.grads)) == (0, 0)


def test_parameters_without_a_rule_or_without_a_use() -> None:
    model = Functional(
        lambda self, x: torch.tanh(x @ torch.matrix_exp(self.a)) @ self.b,
        a=torch.randn(4, 4) / 4,
        b=torch.randn(4, 2),
        c=torch.randn(3),
    ).double()
    found = probed(model, samples(5))
    assert found.unused == {"c"}
    assert found.fallback == {}
    assert not found.opaque
    assert len(found.trusted) == 1
    table = Functional(lambda self, x: torch.cdist(x, self.a), a=torch.randn(3, 4)).double()
    found = probed(table, samples(5))
    assert list(found.fallback) == ["a"]
    assert "cdist" in found.fallback["a"]
    assert found.uses == []
    with pytest.raises(TangentError, match="do not depend on the chosen parameters"):
        probed(model, samples(5), parameters=["c"])


def plan_of(by_layer: bool = False, x2: Tensor | None = None, count: int = 50) -> Plan:
    options = Options(readout="full", batch_size=count)
    return make_plan(Problem.pose(network(), samples(count), x2, options, kind="gram", by_layer=by_layer), ahead=True)


@pytest.mark.parametrize("by_layer", [False, True])
def test_any_wrong_entry_of_the_probed_samples_is_found(by_layer: bool) -> None:
    plan = plan_of(by_layer)
    model, x = plan.network.model, samples(50)
    kernels = tangentlab.ntk(model, x, readout="full", per_layer=by_layer)
    kernels = kernels if by_layer else {"": kernels}
    flat = {layer: kernel.reshape(150, 150).clone() for layer, kernel in kernels.items()}
    verify_kernels(plan, flat)
    at = plan.left.findings.probed.samples
    assert len(at) == 3
    for layer, kernel in flat.items():
        for n in at:
            for m in at:
                wrong = kernel.clone()
                wrong[3 * n, 3 * m + 2] += 1e-4 * kernel.diagonal().max()
                with pytest.raises(ControlFlowChanged):
                    verify_kernels(plan, flat | {layer: wrong})
    if by_layer:  # an error that cancels in the sum of all layers
        one, two = list(flat)
        moved = 1e-4 * flat[one].diagonal().min() * torch.ones_like(flat[one])
        with pytest.raises(ControlFlowChanged):
            verify_kernels(plan, {one: flat[one] + moved, two: flat[two] - moved})


@pytest.mark.parametrize("by_layer", [False, True])
@pytest.mark.parametrize("cross", [False, True])
def test_wrong_factors_of_the_first_or_the_last_sample_are_found(cross: bool, by_layer: bool) -> None:
    plan = plan_of(by_layer, samples(50, seed=2) if cross else None, count=12)
    one = plan.factorizer(plan.left, plan.budget(0))(plan.left.samples, range(12))
    columns = range(50) if cross else range(12)
    two = plan.factorizer(plan.right, plan.budget(0))(plan.right.samples, columns) if cross else one
    verify(plan, one, range(12), two, columns)
    some = range(3, 9)  # none of the probed samples
    verify(plan, one[3:9], some, two if cross else one[3:9], columns if cross else some)
    for sample in (0, 11):
        for part in one.parts.values():
            for tensor in part.tensors().values():
                kept = tensor[sample].clone()
                tensor[sample] *= 1.001
                with pytest.raises(ControlFlowChanged):
                    verify(plan, one, range(12), two, columns)
                tensor[sample] = kept
    verify(plan, one, range(12), two, columns)


def test_kernels_by_plain_differentiation_need_no_check() -> None:
    plan = plan_of().falling_back()
    verify_kernels(plan, {"": torch.full((150, 150), torch.nan)})


def test_kernels_with_one_parameter_in_the_fallback_are_checked() -> None:
    model = Functional(
        lambda self, x: torch.cdist(x, self.a) @ self.b, a=torch.randn(3, 4), b=torch.randn(3, 2)
    ).double()
    x, options = samples(6), Options(readout="full", batch_size=6)
    plan = make_plan(Problem.pose(model, x, None, options, kind="gram"), ahead=True)
    assert {group.form == "fallback" for group in plan.left.groups} == {False, True}
    kernel = tangentlab.ntk(model, x, readout="full").reshape(12, 12).clone()
    verify_kernels(plan, {"": kernel})
    one = plan.factorizer(plan.left, plan.budget(0))(plan.left.samples, range(6))
    verify(plan, one, range(6), one, range(6))
    with pytest.raises(ControlFlowChanged):
        verify_kernels(plan, {"": 1.001 * kernel})
    for part in one.parts.values():
        for tensor in part.tensors().values():
            tensor *= 1.001
    with pytest.raises(ControlFlowChanged):
        verify(plan, one, range(6), one, range(6))


@pytest.mark.parametrize("distinct", [1, 2, 16, 4096])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 16, 17, 100, 300])
def test_weights_tell_all_samples_apart(count: int, distinct: int) -> None:
    weights = torch.stack(list(_weightings(count, distinct)), 1)
    assert len(torch.unique(weights, dim=0)) == count
    assert 1 / 16 <= float(weights.abs().min()) <= float(weights.abs().max()) <= 16
    digits = max(2, min(distinct, count))
    assert digits ** (weights.shape[1] - 1) < max(2, count) <= digits ** weights.shape[1]
    distances = (weights.unsqueeze(0) - weights.unsqueeze(1)).abs().amax(2) + torch.eye(count)
    assert float(distances.min()) >= 0.9 * min(1.0, 2 ** (16 / max(2, min(distinct, count))) - 1) / 16


SINGLE = SimpleNamespace(tolerance=lambda double, single, half: single, rounding=1.2e-7)


def test_outputs_of_one_sample_among_many() -> None:
    alone = torch.randn(1000, 2, generator=torch.Generator().manual_seed(0))
    _compare_outputs(SINGLE, alone, alone * (1 + 1e-5))  # type: ignore[arg-type]
    for sample in (0, 999):
        wrong = alone.clone()
        wrong[sample, 1] += 1e-3 * alone.norm(dim=1).max()
        with pytest.raises(Misplaced):
            _compare_outputs(SINGLE, alone, wrong)  # type: ignore[arg-type]
    small = torch.cat([alone, torch.full((1, 2), 1e-9)])  # readouts that cancel are rounding
    _compare_outputs(SINGLE, small, small + torch.tensor(1e-8))  # type: ignore[arg-type]


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("pair", [(0, 1), (3, 499), (250, 251)])
def test_rows_of_two_exchanged_samples(pair: tuple[int, int], outputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 500 samples two have each other's rows; gradients of the batch look right, weighted ones do not."""
    model, x = network(outputs).float(), samples(500).float()
    hidden = model[:2](x).detach().requires_grad_()
    order = torch.arange(500)
    order[list(pair)] = order[list(pair)[::-1]]

    def gradients(values: Tensor, uses: Any, count: int) -> list[Tensor]:
        return [torch.stack([torch.autograd.grad(v.sum(), hidden, retain_graph=True)[0] for v in values.T], 1)]

    from tangentlab.kernels import _placement

    monkeypatch.setattr(_placement, "output_gradients", gradients)
    for rows, right in ((torch.arange(500), True), (order, False)):
        values = model[2](hidden[rows])
        grads = gradients(values, [], 500)
        if right:
            _compare_owners(SINGLE, values, [], grads)  # type: ignore[arg-type]
        else:
            with pytest.raises(Misplaced):
                _compare_owners(SINGLE, values, [], grads)  # type: ignore[arg-type]
