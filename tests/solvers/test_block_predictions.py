"""Predictions and validation of block regressions: what would mix two networks or sets of samples is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tangentlab import NTKOperator, TangentError, linalg, ntk, solvers
from tangentlab.kernels import _operator
from tangentlab.kernels._products import Products
from tangentlab.solvers import block_regression

N = 40


class Branching(nn.Module):
    """A network that uses a layer only for batches with a large first number."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two, self.last = nn.Linear(6, 50), nn.Linear(50, 50), nn.Linear(50, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.one(x))
        if bool((x[:, 0] > 3).any()):
            h = h + torch.tanh(self.two(h))
        return self.last(h)


def samples(count: int = N, seed: int = 1) -> Tensor:
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).clamp(-2, 2)


def fit(kernel: Any, **options: Any) -> solvers.BlockRegression:
    y = samples()[:, 0].sin()
    return block_regression(kernel, y, **{"ridge": 0.3, "block": 10, "progress": False} | options)


def test_prior_means_of_another_shape_are_not_broadcast() -> None:
    """A network's outputs (m, 1) and predictions (m,) would add up to (m, m)."""
    network, new = Branching().double(), samples(5, seed=2)
    prior = network(samples()).detach()[:, 0]
    for found in (
        fit(NTKOperator(network, samples()), f0=prior),
        solvers.sketched_regression(network, samples(), samples()[:, 0], k=64, f0=prior, progress=False),
    ):
        assert found.predict(new, f0=network(new).detach()[:, 0]).shape == (5,)
        for wrong in (network(new).detach(), torch.zeros(4), "no numbers"):
            with pytest.raises(TangentError, match="f0"):
                found.predict(new, f0=wrong)


def test_targets_of_a_readout_are_not_left_out() -> None:
    """This readout takes None as well, and is the sum of all outputs then."""
    network, x, new = nn.Sequential(nn.Linear(6, 50), nn.Tanh(), nn.Linear(50, 3)).double(), samples(), samples(5, 2)
    classes, others = torch.arange(N) % 3, torch.arange(5) % 3

    def readout(outputs: Tensor, target: Any) -> Tensor:
        return outputs[target].sum()

    found = fit(NTKOperator(network, x, readout=readout, targets=classes))
    cross = ntk(network, new, x, readout=readout, targets=(others, classes))
    wanted = cross.reshape(5, N) @ found.coefficients[:, 0]
    assert torch.allclose(found.predict(TensorDataset(new, others)), wanted)
    with pytest.raises(TangentError, match="have no targets"):
        found.predict(new)


def test_weights_that_change_after_the_fit() -> None:
    network = Branching().double()
    fits: list[Any] = [
        fit(NTKOperator(network, samples())),
        solvers.sketched_regression(network, samples(), samples()[:, 0], k=64, progress=False),
    ]
    before = [found.predict(samples(5, seed=2)) for found in fits]
    with torch.no_grad():
        network.one.weight[0, 0] += 1e-6
    for found in fits:
        with pytest.raises(TangentError, match="weights of the network have changed"):
            found.predict(samples(5, seed=2))
    network.load_state_dict(Branching().double().state_dict())
    for found, values in zip(fits, before, strict=True):
        assert torch.equal(found.predict(samples(5, seed=2)), values)


def test_control_flow_that_depends_on_new_samples() -> None:
    found, new = fit(NTKOperator(Branching().double(), samples())), samples(5, seed=2)
    new[3, 0] = 4
    with pytest.raises(TangentError, match="something else with these samples"):
        found.predict(new)


def test_control_flow_that_depends_on_training_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Factors that are not kept are first made in the fit."""
    network, x = Branching().double(), samples()
    x[33, 0] = 4
    monkeypatch.setattr(_operator, "prepare", lambda plan: Products(plan, plan.budget(0), {}))
    operator = NTKOperator(network, x, batch_size=4)
    with pytest.raises(TangentError, match="something else with these samples") as refusal:
        fit(operator)
    assert "diagonal()" in refusal.value.remedy
    with pytest.warns(UserWarning, match="control flow"):
        operator.diagonal()
    wanted = linalg.regress(ntk(network, x, readout=0), samples()[:, 0].sin(), ridge=0.3)
    assert torch.allclose(fit(operator).coefficients, wanted.coefficients, rtol=1e-6)


def test_errors_of_other_validation_samples_do_not_count(tmp_path: Path) -> None:
    kernel = ntk(Branching().double(), samples(), readout=0)
    y = fit(kernel).predict(kernel)
    begun = fit(kernel, validation=(kernel, y), folder=tmp_path)
    assert begun.history[-1].error is not None
    assert begun.history[-1].error < 1e-10
    again = fit(kernel, validation=(kernel, y), folder=tmp_path, error=1e-10)
    assert again.stopped == "error"
    assert again.history[0].error == begun.history[0].error
    other = fit(kernel, validation=(kernel, y + 2), folder=tmp_path, error=1.0)
    assert other.stopped == "tolerance"
    assert [each.error for each in other.history[:-1]] == [None] * (other.passes - 1)
    assert other.history[-1].error == pytest.approx(4.0)


def test_a_state_of_another_size_is_refused(tmp_path: Path) -> None:
    kernel = ntk(Branching().double(), samples(), readout=0)
    fit(kernel, folder=tmp_path)
    content = torch.load(tmp_path / "descent.pt", weights_only=False)
    content["state"]["z"] = content["state"]["z"][:5]
    torch.save(content, tmp_path / "descent.pt")
    with pytest.raises(TangentError, match="cannot be used"):
        fit(kernel, folder=tmp_path)
