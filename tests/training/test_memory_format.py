"""Memory formats of convolutions: the same training to rounding, and the choice is recorded."""

import copy

import pytest
import torch
from torch import nn

from tangentlab import TangentError, linearize, training
from tangentlab.training import SGD, SoftmaxCrossEntropy, TrainingSpec, _memory_format


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(72, 3))
    return nn.Sequential(*layers).double()


X = torch.randn(24, 3, 12, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
Y = torch.arange(24) % 3
SPEC = TrainingSpec(epochs=3, batch_size=8, loss=SoftmaxCrossEntropy(), optimizer=SGD(0.1, momentum=0.9))


def channels_last(model: nn.Module) -> bool:
    return model[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_both_formats_train_alike(tmp_path) -> None:
    plain, last = network(), network()
    usual = training.train(plain, (X, Y), SPEC, progress=False)
    faster = training.train(last, (X, Y), SPEC, memory_format="channels_last", folder=tmp_path, progress=False)
    assert (usual.memory_format, faster.memory_format) == ("contiguous", "channels_last")
    assert channels_last(last)
    assert not channels_last(plain)
    for one, two in zip(plain.parameters(), last.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-11)
    # A finished or interrupted run keeps its format, whatever is asked for.
    again = training.train(network(), (X, Y), SPEC, folder=tmp_path, progress=False)
    assert again.memory_format == "channels_last"
    assert channels_last(again.model)


def test_the_fastest_is_measured_for_long_runs_only(monkeypatch) -> None:
    asked = []

    def measured(model, inputs, targets, loss):
        asked.append(inputs.shape)
        return "channels_last"

    monkeypatch.setattr("tangentlab.training._run.fastest", measured)
    short = training.train(network(), (X, Y), SPEC, memory_format="fastest", progress=False)
    assert short.memory_format == "contiguous"
    monkeypatch.setattr("tangentlab.training._run.LONG", 9)
    long = training.train(network(), (X, Y), SPEC, memory_format="fastest", progress=False)
    assert long.memory_format == "channels_last"
    assert asked == [(8, 3, 12, 12)]


@pytest.mark.parametrize("faster", ["contiguous", "channels_last"])
def test_the_measurement_takes_the_faster_one_and_changes_nothing(faster, monkeypatch) -> None:
    model = nn.Sequential(*network(), nn.Dropout(0.5))
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    now = [0.0]

    def tick() -> float:
        return now[0]

    answer = _memory_format.answer

    def slow(own, inputs):
        now[0] += 1.0 if channels_last(own) == (faster == "channels_last") else 2.0
        return answer(own, inputs)

    monkeypatch.setattr(_memory_format.time, "perf_counter", tick)
    monkeypatch.setattr(_memory_format, "answer", slow)
    assert _memory_format.fastest(model, X, Y, SoftmaxCrossEntropy()) == faster
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_models_of_one_format() -> None:
    flat = nn.Sequential(nn.Flatten(), nn.Linear(432, 3)).double()
    for model in (flat, linearize(network())):
        assert _memory_format.fastest(model, X, Y, SoftmaxCrossEntropy()) == "contiguous"


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(TangentError, match="memory format"):
        training.train(network(), (X, Y), SPEC, memory_format="fast", progress=False)
