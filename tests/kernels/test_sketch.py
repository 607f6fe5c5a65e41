"""Sketched kernels against the reference."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor, nn

import tangentlab
from tangentlab import TangentError
from tangentlab.kernels import _cost as cost
from tangentlab.kernels import sketch
from tangentlab.kernels._factorize import Factorizer
from tangentlab.kernels._groups import Group
from tangentlab.kernels._plan import Plan, make_plan
from tangentlab.kernels._problem import Problem
from tangentlab.kernels._projection import Projection
from tangentlab.kernels.factors import Direct, Factor, Hadamard, PairsSum
from tangentlab.kernels.rules import Tied
from tangentlab.kernels.rules._convolution import Convolution
from tangentlab.kernels.rules._correlate import Geometry
from tangentlab.kernels.rules._lookup import Lookup, LookupPairs
from tangentlab.kernels.rules._outer import LinearPairs, Outer
from tangentlab.kernels.rules._patches import GroupedPairs
from tests.kernels.cases import CASES, Case, build
from tests.kernels.test_exact import FORMS
from tests.kernels.test_options import MATRIX, images, network

CPU = torch.device("cpu")


def flat(kernel: Tensor) -> Tensor:
    return kernel.flatten(2).flatten(0, 1) if kernel.ndim == 4 else kernel


def units(group: Group, parameter: Tensor) -> tuple[Factor, Tensor]:
    """The gradients that are one entry, in the form of the group, and the entries' order in the tensor that is used."""
    use = group.weight_use
    if group.form != "compact":
        return Direct(torch.eye(parameter.numel(), dtype=torch.float64).unsqueeze(1)), torch.arange(parameter.numel())
    assert use is not None
    numbers = torch.arange(math.prod(use.shape)).view(use.shape)
    if isinstance(use, Lookup):
        g = torch.eye(use.shape[1], dtype=torch.float64).repeat(use.shape[0], 1)
        index = torch.arange(use.shape[0]).repeat_interleave(use.shape[1])
        return LookupPairs(g[:, None, None], 0.0, index[:, None], use.shape[0]), numbers.flatten()
    if isinstance(use, Convolution) and use.groups > 1:
        return grouped_units(use), numbers.flatten()
    tied = isinstance(use, Tied)
    if isinstance(use.parts[0] if isinstance(use, Tied) else use, Convolution):
        numbers = numbers.flatten(2).transpose(1, 2).flatten(1)
    elif isinstance(use, Outer):
        numbers = numbers.flatten(1)  # a convolution of 1 x 1 has further axes of length one
        numbers = numbers.T if use.transposed else numbers
    elif tied:
        numbers = numbers.flatten(1)
    d_out, d_in = numbers.shape
    a = torch.eye(d_in, dtype=torch.float64).repeat(d_out, 1)
    g = torch.eye(d_out, dtype=torch.float64).repeat_interleave(d_in, 0)
    if tied:
        return PairsSum((LinearPairs(g[:, None, None], 0.0, a.unsqueeze(1)),), (False,)), numbers.flatten()
    return Hadamard(a, g.unsqueeze(1), 0.0), numbers.flatten()


def grouped_units(use: Convolution) -> GroupedPairs:
    """Images of the kernel's size with a single pixel in a single channel, which a single output sees."""
    out, channels, kernel = use.shape[0], use.shape[1], tuple(use.shape[2:])
    pixels = math.prod(kernel)
    entries = torch.cartesian_prod(torch.arange(out), torch.arange(channels), torch.arange(pixels))
    x = torch.zeros(len(entries), pixels, channels * use.groups, dtype=torch.float64)
    x[torch.arange(len(x)), entries[:, 2], entries[:, 0] // (out // use.groups) * channels + entries[:, 1]] = 1
    g = torch.eye(out, dtype=torch.float64)[entries[:, 0]][:, None, None]
    ones = (1,) * len(kernel)
    return GroupedPairs(g, 0.0, x, kernel, ones, kernel, Geometry(ones, (0,) * len(kernel), ones), use.groups)


def explicit(plan: Plan, k: int, seed: int) -> dict[str, Tensor]:
    """The projection written out: (P, k) for each parameter."""
    parameters = plan.network.parameters
    projection = Projection(k, seed, max(p.numel() for p in parameters.values()), torch.float64, CPU)
    result = {}
    for group in plan.left.groups:
        weight, *bias = group.parameters
        factor, numbers = units(group, parameters[weight])
        rows = torch.empty(len(numbers), k, dtype=torch.float64)
        rows[numbers] = projection([((weight,), factor)], factor.count, 1)[:, 0]
        if group.plain:  # back from the order of the tensor that is used to the parameter's own
            tensor = plan.left.findings.uses[group.uses[0]].source.tensor
            if tensor is not parameters[weight]:
                index = torch.arange(len(rows), dtype=tensor.dtype).view(tensor.shape)
                (position,) = torch.autograd.grad(tensor, parameters[weight], index, retain_graph=True)
                rows = rows[(position / group.scale).round().long().flatten()]
        result[weight] = rows
        for name in bias:
            eye = torch.eye(parameters[name].numel(), dtype=torch.float64).unsqueeze(1)
            result[name] = projection([((name,), Direct(eye))], len(eye), 1)[:, 0]
    return result


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_features_are_the_projected_jacobian(case: Case, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One linear map for every sample, use and batch: the explicit matrix applied to the reference's Jacobian."""
    if FORMS[form] is not None:
        monkeypatch.setattr(
            cost, "compact_is_cheaper", lambda use, r, *_: FORMS[form] and use.compact_cost(r) is not None
        )
    model, x = build(case, 5, torch.float64)
    k = min(10, sum(p.numel() for p in model.parameters()))
    found = sketch(model, x, k, readout="full", seed=3, batch_size=2).features
    plan = make_plan(Problem.pose(model, x, kind="sketch", features=k))
    maps = explicit(plan, k, 3)
    jacobian = tangentlab.reference.jacobian(model, x)
    expected = sum(jacobian[name].reshape(len(found), -1) @ rows for name, rows in maps.items())
    assert float((found - expected).norm() / expected.norm()) < 1e-10
    for rows in maps.values():  # every entry in one place, with a sign
        assert torch.allclose(rows.abs().sum(1), torch.ones(len(rows)).double(), rtol=0, atol=1e-12)
        assert torch.allclose(rows.square().sum(1), torch.ones(len(rows)).double(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_unbiased(case: Case) -> None:
    model, x = build(case, 4, torch.float64)
    k, seeds = min(32, sum(p.numel() for p in model.parameters())), 12
    kernel = flat(tangentlab.reference.ntk(model, x))
    found = [sketch(model, x, k, readout="full", seed=seed, check=False).features for seed in range(seeds)]
    mean = torch.stack([f @ f.T for f in found]).mean(0)
    scale = kernel.diagonal()
    error = ((scale[:, None] * scale + kernel.square()) / (k * seeds)).sqrt()
    assert bool(((mean - kernel).abs() <= 5 * error + 1e-12 * scale.max()).all())


@pytest.mark.parametrize("readout", ["full", "pntk", -1, MATRIX], ids=str)
def test_error_falls_as_stated(readout: Any) -> None:
    """Mean square errors over seeds are below the bound, and not far."""
    model, x = network(), images(6)
    kernel = flat(tangentlab.reference.ntk(model, x, readout=readout))
    trace, square = kernel.trace(), kernel.square().sum()
    for k in (16, 64):
        errors = []
        for seed in range(60):
            found = sketch(model, x, k, readout=readout, seed=seed, check=False)
            assert found.features.shape == (len(kernel), k)
            errors.append(((found.features @ found.features.T) - kernel).square().sum())
        ratio = float(torch.stack(errors).mean() / ((trace**2 + square) / k))
        assert 0.5 < ratio < 1.3


def test_does_not_depend_on_batches_or_other_samples() -> None:
    model, x = network(), images(7)
    whole = sketch(model, x, 32, batch_size=7, seed=5)
    for size in (1, 3, None):
        assert torch.allclose(sketch(model, x, 32, batch_size=size, seed=5).features, whole.features, atol=1e-12)
    left, right = sketch(model, x[:2], 32, seed=5), sketch(model, x[2:], 32, seed=5)
    estimate = whole.features @ whole.features.T
    assert torch.allclose(left.cross(right), estimate[:2, 2:], atol=1e-12)
    assert not torch.allclose(sketch(model, x, 32, seed=6).features, whole.features, atol=1e-3)
    assert torch.equal(sketch(model, x, 32, batch_size=7, seed=5).features, whole.features)


def test_state_of_the_random_generator_is_left_alone() -> None:
    model, x = network(), images(3)
    torch.manual_seed(0)
    sketch(model, x, 8)
    found = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(found, torch.rand(1))


def test_as_a_kernel() -> None:
    model, x = network(), images(5)
    kernel = sketch(model, x, 16, readout="full")
    matrix = kernel.features @ kernel.features.T
    v = torch.randn(15, 3).double()
    assert kernel.shape == (15, 15)
    assert (kernel.dtype, kernel.device.type, kernel.readouts) == (torch.float64, "cpu", 3)
    assert torch.allclose(kernel @ v, matrix @ v)
    assert torch.allclose(kernel @ v[:, 0], matrix @ v[:, 0])
    assert torch.allclose(kernel.diagonal(), matrix.diagonal())
    assert "k=16" in repr(kernel)
    with pytest.raises(TangentError, match=r"takes a tensor of shape \(15,\)"):
        kernel @ torch.ones(4)


def test_eigenvalues_and_regression_come_close() -> None:
    """A wide network, of which the sketch takes a tenth of the parameters."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1)).double()
    x, y = torch.randn(40, 12).double(), torch.randn(30, 1).double()
    exact = tangentlab.ntk(model, x, readout="pntk")
    found = sketch(model, x, 8192)
    operator = LinearOperator(found.shape, matvec=lambda v: (found @ torch.from_numpy(v)).numpy(), dtype=np.float64)
    top = torch.from_numpy(np.sort(eigsh(operator, 4, return_eigenvectors=False)))
    assert float((top / torch.linalg.eigvalsh(exact)[-4:] - 1).abs().max()) < 0.05
    train, test = sketch(model, x[:30], 8192), sketch(model, x[30:], 8192)
    ridge = 0.05 * exact.trace() / 40 * torch.eye(30).double()
    expected = exact[30:, :30] @ torch.linalg.solve(exact[:30, :30] + ridge, y)
    predicted = test.cross(train) @ torch.linalg.solve(train.cross(train) + ridge, y)
    assert float((predicted - expected).norm() / expected.norm()) < 0.2


def test_precisions() -> None:
    model, x = network().float(), images(4).float()
    double = sketch(model, x, 24, dtype=torch.float64).features
    single = sketch(model, x, 24)
    assert single.dtype == torch.float32
    assert float((single.features - double).norm() / double.norm()) < 1e-5
    half = sketch(model, x, 24, dtype=torch.bfloat16)
    assert half.dtype == torch.float32
    assert float((half.features - double).norm() / double.norm()) < 0.1


def test_parameters_and_budget() -> None:
    model, x = network(), images(6)
    chosen = [name for name, _ in model.named_parameters()][:1]
    kernel = tangentlab.reference.ntk(model, x, readout="pntk", parameters=chosen)
    found = [sketch(model, x, 16, parameters=chosen, seed=s, memory_budget="1GiB") for s in range(100)]
    mean = torch.stack([f.features @ f.features.T for f in found]).mean(0)
    assert float((mean - kernel).norm() / kernel.norm()) < 0.2
    with pytest.raises(TangentError, match="memory budget"):
        sketch(model, x, 16, memory_budget="10kB")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 0}, "k is 0"),
        ({"k": -3}, "k is -3"),
        ({"k": 2.0}, "k is 2.0"),
        ({"k": True}, "k is True"),
        ({"k": "8"}, "k is '8'"),
        ({"k": 10**9}, "exact"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": None}, "seed is None"),
        ({"readout": "trace"}, "no readout 'trace'"),
        ({"readout": "per_class"}, "no readout 'per_class'"),
        ({"batch_size": 0}, "batch_size is 0"),
    ],
    ids=str,
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TangentError, match=message):
        sketch(network(), images(3), **({"k": 8} | options))


def test_refuses_products_of_different_projections() -> None:
    model, x = network(), images(3)
    one = sketch(model, x, 8)
    weights = [name for name, _ in model.named_parameters()][:1]
    others = [sketch(model, x, 8, seed=1), sketch(model, x, 9), sketch(model, x, 8, parameters=weights)]
    for other in others:
        with pytest.raises(TangentError, match="same projection"):
            one.cross(other)


def test_checks_factors_against_plain_differentiation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Factors that are wrong are found, and the fallback gives the same features."""
    monkeypatch.setattr(cost, "compact_is_cheaper", lambda *_: False)
    model, x = network(), images(4)
    right = sketch(model, x, 16, readout="full")
    plain = Factorizer._plain
    monkeypatch.setattr(Factorizer, "_plain", lambda *arguments: 1.01 * plain(*arguments))
    assert not torch.allclose(sketch(model, x, 16, readout="full", check=False).features, right.features)
    with pytest.warns(UserWarning, match="fallback"):
        found = sketch(model, x, 16, readout="full")
    assert torch.allclose(found.features, right.features, rtol=0, atol=1e-12)
    assert torch.allclose(found.cross(right), right.cross(right))
