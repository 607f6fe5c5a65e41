"""The test for the kernel regime: a small step of a wide network passes, a large one fails."""

import pytest
import torch
from torch import nn

from tangentlab import TangentError, linearize, ntk
from tangentlab.finetune import TaskVector, kernel_regime
from tangentlab.linearized import linearization_error

X = torch.randn(40, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = X[:, :3].argmax(1)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 3)).double()


def moved(scale: float) -> nn.Module:
    model = network()
    nn.functional.cross_entropy(model(X), Y).backward()
    return TaskVector({n: -p.grad for n, p in model.named_parameters() if p.grad is not None}).apply(network(), scale)


def test_a_small_step_is_in_the_regime_and_a_large_one_is_not() -> None:
    small, large = (kernel_regime(network(), moved(scale), X, Y) for scale in (0.1, 300.0))
    assert small.holds
    assert not large.holds
    assert small.linearization_error < large.linearization_error
    assert small.kernel_distance < large.kernel_distance
    assert "not in the kernel regime" in str(large)


def test_numbers_are_their_definitions() -> None:
    tuned, half = moved(3.0), slice(0, 20)
    found = kernel_regime(network(), tuned.state_dict(), X, Y, train=(X[half], Y[half]), ridge=0.1)
    lin = linearize(network())
    lin.load_state_dict(tuned.state_dict())
    assert found.linearization_error == pytest.approx(linearization_error(lin, X).overall)
    with torch.no_grad():
        predicted = {"network": tuned(X), "linearization": lin(X)}
        model = network()
        kernel = ntk(model, X[half], readout="pntk")
        rest = nn.functional.one_hot(Y[half]).double() - model(X[half])
        weights = torch.linalg.solve(kernel + 0.1 * kernel.diagonal().mean() * torch.eye(20).double(), rest)
        predicted["regression"] = model(X) + ntk(model, X, X[half], readout="pntk") @ weights
    same = {
        name: float((f.argmax(1) == predicted["network"].argmax(1)).double().mean()) for name, f in predicted.items()
    }
    assert found.agreement == pytest.approx(same["linearization"])
    assert found.regression_agreement == pytest.approx(same["regression"])
    assert found.accuracy == pytest.approx({n: float((f.argmax(1) == Y).double().mean()) for n, f in predicted.items()})
    with pytest.raises(TangentError, match="not classes"):
        kernel_regime(network(), tuned, X, train=(X, X))
