"""Linearized models of several tasks as one: equal to the models one by one."""

import pytest
import torch
from torch import nn

from tangentlab import TangentError, linearize, training
from tangentlab.linearized import LinearizedTasks
from tangentlab.training import SGD, Adam, SigmoidCrossEntropy, TaskSum, TrainingSpec

X = torch.randn(20, 2, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
Y = torch.sign(torch.randn(20, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64))


def network(outputs: int = 1) -> nn.Module:
    torch.manual_seed(0)
    layers = (nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, outputs))
    return nn.Sequential(*layers).double().eval()


@pytest.mark.parametrize("optimizer", [SGD(0.1, momentum=0.9), Adam(0.01)])
def test_training_equals_the_tasks_one_by_one(optimizer) -> None:
    spec = TrainingSpec(epochs=4, batch_size=8, loss=SigmoidCrossEntropy(), optimizer=optimizer, drop_last=True)
    together = LinearizedTasks(network(), 3)
    sums = training.TrainingSpec(**{**vars(spec), "loss": TaskSum(spec.loss)})
    training.train(together, (X, Y), sums, progress=False)
    outputs = together(X)
    assert outputs.shape == (20, 3)
    for task in range(3):
        alone = linearize(network())
        training.train(alone, (X, Y[:, task]), spec, progress=False)
        torch.testing.assert_close(outputs[:, task : task + 1], alone(X), rtol=1e-9, atol=1e-10)
        for name, u in alone.displacement().items():
            torch.testing.assert_close(together.displacement(task)[name], u, rtol=1e-8, atol=1e-10)


def test_several_outputs_and_frozen_weights() -> None:
    model = network(outputs=2)
    model[0].weight.requires_grad_(False)
    tasks = LinearizedTasks(model, 2).float()
    assert tasks(X.float()).shape == (20, 2, 2)
    assert "0.weight" not in tasks.displacement(0)
    torch.testing.assert_close(tasks(X.float())[:, 1], model.float()(X.float()))


class Detached(nn.Module):
    """Forward mode and backward passes differ."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(72, 1).double()

    def forward(self, x):
        y = self.layer(x.flatten(1))
        y.register_hook(lambda g: 2 * g) if y.requires_grad else None
        return y


def test_refusals() -> None:
    with pytest.raises(TangentError, match="tasks"):
        LinearizedTasks(network(), 0)
    with pytest.raises(TangentError, match="one by one"):
        LinearizedTasks(Detached(), 2)(X)
    with pytest.raises(TangentError, match="column"):
        TaskSum(SigmoidCrossEntropy()).check(torch.zeros(4, 2), torch.zeros(4, 3))
