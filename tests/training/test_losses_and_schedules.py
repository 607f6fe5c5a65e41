"""Losses, optimisers and schedules against their formulas and against PyTorch's own."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tangentlab import TangentError, training


@pytest.mark.parametrize("shape", [(6,), (6, 1)])
@pytest.mark.parametrize("coding", ["signs", "bits", "integers", "booleans"])
def test_sigmoid(shape: tuple[int, ...], coding: str) -> None:
    z = torch.randn(6, dtype=torch.float64)
    sign = torch.tensor([1.0, -1, 1, 1, -1, -1], dtype=torch.float64)
    targets: Tensor = {
        "signs": sign,
        "bits": (sign + 1) / 2,
        "integers": sign.long(),
        "booleans": sign > 0,
    }[coding]
    loss = training.SigmoidCrossEntropy()
    outputs, targets = z.reshape(shape), targets.reshape(shape)
    loss.check(outputs, targets)
    torch.testing.assert_close(loss.per_sample(outputs, targets), torch.log1p(torch.exp(-sign * z)))
    assert torch.equal(loss.correct(outputs, targets), torch.sign(z) == sign)


def test_softmax() -> None:
    z, y = torch.randn(5, 4, dtype=torch.float64), torch.tensor([0, 3, 1, 1, 2])
    loss = training.SoftmaxCrossEntropy()
    loss.check(z, y)
    torch.testing.assert_close(loss.per_sample(z, y), -torch.log_softmax(z, 1)[torch.arange(5), y])
    assert torch.equal(loss.correct(z, y), z.argmax(1) == y)


@pytest.mark.parametrize("normalization", ["mean", "sum", "half"])
def test_squared(normalization: str) -> None:
    z, y = torch.randn(5, 4, dtype=torch.float64), torch.tensor([0, 3, 1, 1, 2])
    loss = training.Squared(normalization)  # type: ignore[arg-type]
    one_hot = torch.eye(4, dtype=torch.float64)[y]
    loss.check(z, y)
    loss.check(z, one_hot)
    error = (z - one_hot).square().sum(1)
    torch.testing.assert_close(loss.per_sample(z, y), error * {"mean": 0.25, "sum": 1.0, "half": 0.5}[normalization])
    assert torch.equal(loss.per_sample(z, y), loss.per_sample(z, one_hot))
    assert torch.equal(loss.correct(z, y), z.argmax(1) == y)
    torch.testing.assert_close(loss.per_sample(z, y).mean(), torch.tensor(loss.scale(5, 4)) * error.sum() / 2)
    if normalization == "mean":
        torch.testing.assert_close(loss.per_sample(z, y).mean(), F.mse_loss(z, one_hot))


def test_squared_on_one_output() -> None:
    z, y = torch.tensor([[0.3], [-2.0], [0.7]]), torch.tensor([1.0, -1.0, -1.0])
    assert training.Squared().correct(z, y).tolist() == [True, True, False]
    assert training.Squared(threshold=0.5).correct(z, (y + 1) / 2).tolist() == [False, True, False]
    torch.testing.assert_close(training.Squared().per_sample(z, y), (z[:, 0] - y) ** 2)


@pytest.mark.parametrize(
    ("loss", "outputs", "targets", "message"),
    [
        (training.SigmoidCrossEntropy(), (3, 2), torch.ones(3), "one logit"),
        (training.SigmoidCrossEntropy(), (3, 1), torch.tensor([0, 1, 2]), "0, 1, 2"),
        (training.SigmoidCrossEntropy(), (3, 1), torch.tensor([-1, 0, 1]), "-1, 0, 1"),
        (training.SigmoidCrossEntropy(), (3, 1), torch.ones(3, 2), "one target"),
        (training.SoftmaxCrossEntropy(), (3, 1), torch.zeros(3).long(), "SigmoidCrossEntropy"),
        (training.SoftmaxCrossEntropy(), (3, 2), torch.tensor([0, 1, 2]), "0 to 2 do not fit 2"),
        (training.SoftmaxCrossEntropy(), (3, 2), torch.ones(3), "integers"),
        (training.Squared(), (3, 2), torch.ones(3), "do not fit"),
        (training.Squared(), (3, 1), torch.ones(3).long(), "one-hot"),
        (training.Squared(), (3, 2), torch.tensor([0, 1, -1]), "-1 to 1"),
    ],
)
def test_targets_that_do_not_fit(
    loss: training.SoftmaxCrossEntropy, outputs: tuple[int], targets: Tensor, message: str
) -> None:
    with pytest.raises(TangentError, match=message):
        loss.check(torch.zeros(outputs), targets)


def test_linear_decay_constant_and_steps() -> None:
    assert [training.LinearDecay().factor(s, 4, 2) for s in range(4)] == [1.0, 0.75, 0.5, 0.25]
    assert {training.Constant().factor(s, 9, 3) for s in range(9)} == {1.0}
    factors = [training.Steps(every=2, factor_each=0.1).factor(s, 18, 3) for s in range(18)]
    torch.testing.assert_close(factors, [1.0] * 6 + [0.1] * 6 + [0.01] * 6)
    assert training.Steps() == training.Steps(every=30, factor_each=0.1)


@pytest.mark.parametrize(("total", "warmup"), [(4, 0.5), (7, 0.3), (7, 0.5), (100, 0.1), (100, 0.3)])
def test_one_cycle_is_pytorchs(total: int, warmup: float) -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.5, total_steps=total, pct_start=warmup, cycle_momentum=False
    )
    for step in range(total):
        assert math.isclose(
            0.5 * training.OneCycle(warmup).factor(step, total, 1), scheduler.get_last_lr()[0], rel_tol=1e-12
        )
        optimizer.step()
        if step < total - 1:
            scheduler.step()


def test_one_cycle_without_room() -> None:
    factors = [training.OneCycle(0.3).factor(step, 2, 1) for step in range(2)]
    assert all(0 < factor <= 1 for factor in factors)
    assert training.OneCycle(1.0).factor(0, 1, 1) == 1.0


def test_optimisers_are_built_as_specified() -> None:
    weights = [nn.Parameter(torch.zeros(2))]
    sgd = training.SGD(0.3, momentum=0.9, nesterov=True, weight_decay=0.1).build(weights)
    assert {k: sgd.defaults[k] for k in ("lr", "momentum", "nesterov", "weight_decay")} == {
        "lr": 0.3,
        "momentum": 0.9,
        "nesterov": True,
        "weight_decay": 0.1,
    }
    adam = training.Adam(0.01, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.2, decay_to="start").build(weights)
    assert adam.defaults["betas"] == (0.8, 0.9)
    assert adam.defaults["weight_decay"] == 0  # the loop pulls to the start itself


@pytest.mark.parametrize(
    "make",
    [
        lambda: training.SGD(0.0),
        lambda: training.SGD(float("nan")),
        lambda: training.SGD(0.1, momentum=1.0),
        lambda: training.SGD(0.1, weight_decay=-1),
        lambda: training.SGD(0.1, decay_to="end"),
        lambda: training.Adam(betas=(0.9, 1.0)),
        lambda: training.Steps(every=0),
        lambda: training.OneCycle(warmup=2),
        lambda: training.Squared("total"),
        lambda: training.TrainingSpec(epochs=0, batch_size=1),
        lambda: training.TrainingSpec(epochs=1, batch_size=0),
        lambda: training.TrainingSpec(epochs=1, batch_size=1.5),
        lambda: training.TrainingSpec(epochs=1, batch_size=1, seed=-1),
        lambda: training.TrainingSpec(epochs=1, batch_size=1, loss="squared"),
        lambda: training.TrainingSpec(epochs=1, batch_size=1, loss=training.Squared),
        lambda: training.TrainingSpec(epochs=1, batch_size=1, optimizer=torch.optim.SGD),
        lambda: training.TrainingSpec(epochs=1, batch_size=1, watch_every=0),
    ],
)
def test_impossible_settings_are_refused(make: object) -> None:
    with pytest.raises(TangentError):
        make()  # type: ignore[operator]
