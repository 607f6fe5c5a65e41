"""The closed forms agree with actually training the linear model."""

import math

import pytest
import torch
from torch import Tensor, nn

from tangentlab import TangentError
from tangentlab.linearized import linearize
from tangentlab.training import SGD, GradientFlow, Squared, TrainingSpec, train
from tests.linearized.reference import jacobian


class Problem:
    """A small network, its kernels by explicit Jacobians, and its linearization."""

    def __init__(self, outputs: int = 2, samples: int = 7, width: int = 12) -> None:
        torch.manual_seed(0)
        self.network = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, outputs)).double()
        self.x, self.x_test = torch.randn(2, samples, 4, dtype=torch.float64)
        self.y = torch.randn(samples, outputs, dtype=torch.float64)
        self.f0, train_rows = jacobian(self.network, self.x)
        self.f0_test, test_rows = jacobian(self.network, self.x_test)
        shape = (samples, outputs)
        self.f0, self.f0_test = self.f0.view(shape), self.f0_test.view(shape)
        self.kernel = (train_rows @ train_rows.T).view(*shape, *shape)
        self.cross = (test_rows @ train_rows.T).view(*shape, *shape)

    def flow(self, scale: float = 1.0) -> GradientFlow:
        return GradientFlow(self.kernel, self.y, self.f0, scale)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return Problem()


@pytest.mark.parametrize("normalization", ["mean", "sum", "half"])
@pytest.mark.parametrize("stable", [0.9, 0.3])
def test_gradient_descent_is_exact(problem: Problem, normalization: str, stable: float) -> None:
    """``train`` with all samples in a batch, and the closed form: the same predictions to rounding."""
    loss = Squared(normalization)  # type: ignore[arg-type]
    flow = problem.flow(loss.scale(*problem.y.shape))
    rate = stable * flow.largest_stable_lr
    lin = linearize(problem.network)
    spec = TrainingSpec(epochs=25, batch_size=None, loss=loss, optimizer=SGD(rate))
    train(lin, (problem.x, problem.y), spec)
    torch.testing.assert_close(flow.predict_after(25, rate), lin(problem.x).detach(), rtol=1e-9, atol=1e-9)
    predicted = flow.predict_after(25, rate, problem.cross, problem.f0_test)
    torch.testing.assert_close(predicted, lin(problem.x_test).detach(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("time", [0.0, 0.05, 0.7])
def test_gradient_flow_is_the_limit_of_small_steps(problem: Problem, time: float) -> None:
    flow = problem.flow()
    exact = flow.predict(time, problem.cross, problem.f0_test)
    errors = []
    for steps in (100, 200):
        lin = linearize(problem.network)
        for _ in range(steps if time else 0):
            lin.zero_grad()
            ((lin(problem.x) - problem.y).square().sum() / 2).backward()
            with torch.no_grad():
                for p in lin.parameters():
                    assert p.grad is not None
                    p.sub_(p.grad, alpha=time / steps)
        errors.append(float((lin(problem.x_test).detach() - exact).abs().max()))
    if time == 0:
        assert errors[0] < 1e-12
    else:
        assert errors[1] < 0.02
        assert 1.6 < errors[0] / errors[1] < 2.5  # first order in the step


def test_the_flow_solves_its_equation(problem: Problem) -> None:
    """df/dt = -c K (f - y), by finite differences."""
    flow, h = problem.flow(0.3), 1e-4
    derivative = (flow.predict(0.5 + h) - flow.predict(0.5 - h)) / (2 * h)
    kernel = problem.kernel.reshape(14, 14)
    expected = -0.3 * (kernel @ (flow.predict(0.5) - problem.y).reshape(-1)).view(7, 2)
    torch.testing.assert_close(derivative, expected, rtol=1e-5, atol=1e-6)


def test_convergence_is_kernel_regression(problem: Problem) -> None:
    flow = problem.flow()
    assert flow.rank == 14
    torch.testing.assert_close(flow.predict(math.inf), problem.y)
    kernel, cross = problem.kernel.reshape(14, 14), problem.cross.reshape(14, 14)
    solved = torch.linalg.solve(kernel, (problem.y - problem.f0).reshape(-1))
    expected = problem.f0_test + (cross @ solved).view(7, 2)
    torch.testing.assert_close(flow.predict(math.inf, problem.cross, problem.f0_test), expected)
    far = flow.predict(1e9, problem.cross, problem.f0_test)
    torch.testing.assert_close(far, expected)
    assert flow.loss(math.inf) < 1e-20
    assert math.isclose(flow.loss(0), float((problem.f0 - problem.y).square().sum() / 2))


def test_one_kernel_for_all_outputs(problem: Problem) -> None:
    """(N, N) stands for its product with the identity."""
    small = problem.kernel[:, 0, :, 0] + problem.kernel[:, 1, :, 1]
    cross = problem.cross[:, 0, :, 0] + problem.cross[:, 1, :, 1]
    eye = torch.eye(2, dtype=torch.float64)
    one = GradientFlow(small, problem.y, problem.f0)
    full = GradientFlow(torch.einsum("ij,ab->iajb", small, eye), problem.y, problem.f0)
    full_cross = torch.einsum("ij,ab->iajb", cross, eye)
    for time in (0.1, math.inf):
        torch.testing.assert_close(one.predict(time), full.predict(time))
        torch.testing.assert_close(
            one.predict(time, cross, problem.f0_test), full.predict(time, full_cross, problem.f0_test)
        )
    single = GradientFlow(small, problem.y[:, 0], problem.f0[:, 0])
    torch.testing.assert_close(single.predict(0.1), one.predict(0.1)[:, 0])
    torch.testing.assert_close(single.predict(0.1, cross, 0), one.predict(0.1, cross, 0)[:, 0])


def test_singular_kernels() -> None:
    """More samples than parameters, and a point twice with two targets."""
    torch.manual_seed(1)
    rows, test_rows = torch.randn(9, 4, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)
    rows[1] = rows[0]
    y = torch.randn(9, dtype=torch.float64)
    flow = GradientFlow(rows @ rows.T, y)
    assert flow.rank == 4
    theta = torch.linalg.lstsq(rows, y[:, None], driver="gelsd").solution[:, 0]
    torch.testing.assert_close(flow.predict(math.inf), rows @ theta)
    torch.testing.assert_close(flow.predict(math.inf, test_rows @ rows.T), test_rows @ theta)
    torch.testing.assert_close(flow.predict(1e12, test_rows @ rows.T), test_rows @ theta)
    rate, theta = flow.largest_stable_lr / 2, torch.zeros(4, dtype=torch.float64)
    for _ in range(50):
        theta -= rate * rows.T @ (rows @ theta - y)
    torch.testing.assert_close(flow.predict_after(50, rate, test_rows @ rows.T), test_rows @ theta)
    zero = GradientFlow(torch.zeros(3, 3), torch.ones(3))
    assert zero.rank == 0
    assert zero.largest_stable_lr == math.inf
    assert torch.equal(zero.predict(math.inf), torch.zeros(3, dtype=torch.float64))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_the_largest_stable_learning_rate(problem: Problem, momentum: float) -> None:
    """Just below it training converges, just above it does not."""
    loss = Squared("half")
    edge = problem.flow(loss.scale(*problem.y.shape)).largest_stable_lr * (1 + momentum)
    losses = {}
    for factor in (0.98, 1.02):
        lin = linearize(problem.network)
        optimizer = SGD(factor * edge, momentum=momentum)
        spec = TrainingSpec(epochs=400, batch_size=None, loss=loss, optimizer=optimizer, evaluate_every=400)
        losses[factor] = train(lin, (problem.x, problem.y), spec).history["train_loss"].tolist()
    assert losses[0.98][-1] < losses[0.98][0]
    assert losses[1.02][-1] > 10 * losses[1.02][0]


def test_float32_kernels_are_solved_in_float64(problem: Problem) -> None:
    flow = GradientFlow(problem.kernel.float(), problem.y.float(), problem.f0.float())
    assert flow.predict(1.0).dtype == torch.float64
    torch.testing.assert_close(flow.predict(1.0), problem.flow().predict(1.0), rtol=1e-4, atol=1e-4)
    assert isinstance(GradientFlow(problem.kernel.numpy(), problem.y.numpy()).predict(1.0), Tensor)


@pytest.mark.parametrize("parameters", [10, 49])
def test_rounding_of_float32_kernels_is_not_learned(parameters: int) -> None:
    """The null space of a kernel in float32 has eigenvalues of both signs; inverting them gave wrong predictions."""
    torch.manual_seed(0)
    rows, test_rows = torch.randn(50, parameters), torch.randn(20, parameters)
    y = torch.randn(50)
    flow = GradientFlow(rows @ rows.T, y)
    assert flow.rank == parameters
    theta = torch.linalg.lstsq(rows.double(), y[:, None].double()).solution[:, 0]
    limit = {"rtol": 1e-3, "atol": 1e-3 * float(theta.abs().max())}
    torch.testing.assert_close(flow.predict(math.inf, test_rows @ rows.T), test_rows.double() @ theta, **limit)


def test_gradient_descent_in_small_eigenvalues() -> None:
    torch.manual_seed(0)
    basis = torch.linalg.qr(torch.randn(30, 30, dtype=torch.float64))[0]
    rows, test_rows = basis * torch.logspace(0, -6.5, 30, dtype=torch.float64), torch.randn(5, 30, dtype=torch.float64)
    y, theta = torch.randn(30, dtype=torch.float64), torch.zeros(30, dtype=torch.float64)
    for _ in range(50):
        theta -= rows.T @ (rows @ theta - y)
    flow = GradientFlow(rows @ rows.T, y)
    torch.testing.assert_close(
        flow.predict_after(50, 1.0, test_rows @ rows.T), test_rows @ theta, rtol=1e-10, atol=1e-10
    )


def test_refusals(problem: Problem) -> None:
    kernel, y = torch.eye(3), torch.ones(3)
    cases = [
        lambda: GradientFlow(kernel, torch.ones(4)),
        lambda: GradientFlow(torch.ones(3, 2, 3, 2), torch.ones(3)),
        lambda: GradientFlow(torch.ones(3, 2, 2), y),
        lambda: GradientFlow(kernel, y, f0=torch.ones(3, 1)),
        lambda: GradientFlow(kernel * float("nan"), y),
        lambda: GradientFlow(-kernel, y),
        lambda: GradientFlow(torch.tensor([[1.0, 2], [0, 1]]), torch.ones(2)),
        lambda: GradientFlow(kernel, y, loss_scale=0),
        lambda: GradientFlow(kernel, y).predict(-1.0),
        lambda: GradientFlow(kernel, y).predict(float("nan")),
        lambda: GradientFlow(kernel, y).predict_after(-1, 0.1),
        lambda: GradientFlow(kernel, y).predict(1.0, torch.ones(5, 4)),
        lambda: GradientFlow(kernel, y).predict(1.0, torch.ones(5, 3), torch.ones(4)),
        lambda: GradientFlow(kernel, y).predict(1.0, f0=torch.ones(3)),
        lambda: GradientFlow(kernel, y).predict(torch.ones(5, 3), 1.0),  # type: ignore[arg-type]
        lambda: GradientFlow(kernel, y, f0=y).predict(1.0, torch.ones(5, 3)),
        lambda: GradientFlow(kernel, torch.tensor([0, 1, 2])),
    ]
    for case in cases:
        with pytest.raises(TangentError):
            case()
    assert "rank 3 of 3" in repr(GradientFlow(kernel, y))
    difference = GradientFlow(kernel, y, f0=0.5 * y).predict(math.inf, torch.ones(5, 3), f0=0)
    torch.testing.assert_close(difference, torch.full((5,), 1.5, dtype=torch.float64))
