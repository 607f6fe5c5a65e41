"""What a user puts into a run must come out of its checkpoints, in another process too."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from tangentlab import TangentError
from tangentlab.training import SGD, Adam, Callback, TrainingSpec, train
from tests.training.problems import clusters, mlp, spec


class Half:
    """A schedule that is no dataclass, and whose factor is NumPy's."""

    def __init__(self, factor: float) -> None:
        self.by = factor

    def factor(self, step: int, total: int, steps_per_epoch: int) -> Any:
        return np.float64(self.by)


@pytest.mark.parametrize(
    "changes",
    [
        {"optimizer": SGD(np.logspace(-2, -1, 2)[0], momentum=np.float64(0.9), weight_decay=np.float64(0.1))},
        {"optimizer": Adam(np.float64(0.01), betas=(np.float64(0.9), np.float64(0.99)), eps=np.float64(1e-8))},
        {"schedule": Half(0.5)},
        {"thresholds": np.array([1.0, 0.5])},
    ],
)
def test_numpy_numbers(changes: dict[str, Any], tmp_path: Path) -> None:
    """NumPy's float64 is a float, but a checkpoint that holds one cannot be read safely: the run would be lost."""
    train(mlp(), clusters(), spec(**changes), folder=tmp_path)
    assert train(mlp(), clusters(), spec(**changes), folder=tmp_path).resumed_at == 24


def test_numpy_numbers_from_callbacks(tmp_path: Path) -> None:
    kernel = Callback("mean", lambda model, epoch: {np.str_("a"): [np.float64(1.5), True, 2]})
    train(mlp(), clusters(), spec(), folder=tmp_path, callbacks=[kernel])
    result = train(mlp(), clusters(), spec(), folder=tmp_path, callbacks=[kernel])
    assert result.resumed_at == 24
    assert result.values["mean"][3] == {"a": [1.5, True, 2]}
    assert type(result.values["mean"][3]["a"][1]) is bool


def test_schedules_of_ones_own(tmp_path: Path) -> None:
    """A schedule is known by its class and settings, not by its address."""
    train(mlp(), clusters(), spec(schedule=Half(0.5)), folder=tmp_path)
    assert train(mlp(), clusters(), spec(schedule=Half(0.5)), folder=tmp_path).resumed_at == 24
    with pytest.raises(TangentError, match=r"spec\.schedule.*Half.*0\.5.*0\.25"):
        train(mlp(), clusters(), spec(schedule=Half(0.25)), folder=tmp_path)


class Noisy(Dataset[tuple[Tensor, Tensor]]):
    """Samples with a random transform, as of images that are cropped."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x, y = clusters()
        return x[index] + torch.randn(x[index].shape), y[index]


def test_random_transforms(tmp_path: Path) -> None:
    """They are resumed exactly, wherever the caller's own generator is by then."""
    settings: TrainingSpec = spec(epochs=2, evaluate_on=0)
    whole = train(mlp(), Noisy(), settings)

    class Stop(Exception):
        pass

    def stop(model: nn.Module, epoch: int) -> None:
        raise Stop

    with pytest.raises(Stop):
        train(
            mlp(),
            Noisy(),
            settings,
            folder=tmp_path,
            checkpoint_every=1,
            callbacks=[Callback("stop", stop, epochs=[1])],
        )
    start = mlp()
    torch.rand(17)
    resumed = train(start, Noisy(), settings, folder=tmp_path)
    assert resumed.resumed_at == 2
    assert resumed.steps.equals(whole.steps)


class Named(Dataset[tuple[dict[str, Tensor], Tensor]]):
    """Inputs in a dictionary."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[dict[str, Tensor], Tensor]:
        x, y = clusters()
        return {"x": self.scale * x[index]}, y[index]


class Takes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        return self.inner(inputs["x"])


def test_inputs_in_dictionaries_tell_runs_apart(tmp_path: Path) -> None:
    train(Takes(), Named(1.0), spec(), folder=tmp_path)
    with pytest.raises(TangentError, match="training data"):
        train(Takes(), Named(2.0), spec(), folder=tmp_path)
