"""Data that do not fit are refused wherever they are, and data that fit are taken in every form."""

import pytest
import torch
from torch import nn

from tangentlab import TangentError
from tangentlab.training import SigmoidCrossEntropy, TrainingSpec, train
from tests.training.problems import clusters, mlp, spec


@pytest.mark.parametrize("evaluate_on", [0, 5])
def test_targets_that_the_evaluation_does_not_see(evaluate_on: int) -> None:
    """Class numbers would pass for the two sides of a binary task."""
    x, y = clusters()
    order = y.argsort()
    settings = spec(loss=SigmoidCrossEntropy(), evaluate_on=evaluate_on)
    with pytest.raises(TangentError, match="one target per sample"):
        train(mlp(outputs=1), (x[order], y[order]), settings)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_class_numbers_of_any_integer_type(dtype: torch.dtype) -> None:
    x, y = clusters()
    assert train(mlp(), (x, y.to(dtype)), spec()).steps.equals(train(mlp(), (x, y), spec()).steps)


def test_models_with_other_outputs_than_a_tensor() -> None:
    x, y = clusters()
    with pytest.raises(TangentError, match="The model gives a tuple"):
        train(nn.LSTM(5, 3), (x, y), spec())


def test_a_number_of_samples_below_zero() -> None:
    with pytest.raises(TangentError, match="evaluate_on=-1"):
        TrainingSpec(epochs=1, batch_size=1, evaluate_on=-1)


def test_other_test_samples_than_the_datas_own() -> None:
    class Both:
        train, test = clusters(), clusters(10, seed=1)

    result = train(mlp(), Both(), spec(), test=clusters(10, seed=2))
    assert result.history.drop(columns="seconds").equals(
        train(mlp(), clusters(), spec(), test=clusters(10, seed=2)).history.drop(columns="seconds")
    )
