"""The loop does what its spec says, and records what it did."""

import copy
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from rich.console import Console
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from tangentlab import TangentError, _progress
from tangentlab.linearized import linearize
from tangentlab.training import (
    SGD,
    Adam,
    Callback,
    Constant,
    DivergenceError,
    LinearDecay,
    OneCycle,
    SigmoidCrossEntropy,
    SoftmaxCrossEntropy,
    Squared,
    Steps,
    TrainingSpec,
    evaluate,
    train,
)
from tangentlab.training._samples import order
from tests.linearized.reference import flat
from tests.training.problems import clusters, convnet, images, mlp, spec, task


def test_it_is_plain_sgd() -> None:
    """The loop written out by hand gives the same weights, bit for bit."""
    x, y = clusters()
    run = spec(schedule=LinearDecay(), optimizer=SGD(0.2, momentum=0.9, weight_decay=1e-2), drop_last=True)
    result = train(mlp(), (x, y), run)
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-2)
    step = 0
    for epoch in range(3):
        for indices in order(60, 8, True, 5, epoch):
            optimizer.param_groups[0]["lr"] = 0.2 * (1 - step / 21)
            optimizer.zero_grad()
            F.cross_entropy(model(x[indices]), y[indices], reduction="none").mean().backward()
            optimizer.step()
            step += 1
    assert step == 21
    assert torch.equal(flat(result.model.parameters()), flat(model.parameters()))


def test_minibatches() -> None:
    """Every sample once an epoch, another order each epoch, a function of the seed alone."""
    first = order(10, 4, False, 3, 0)
    assert [len(indices) for indices in first] == [4, 4, 2]
    assert sorted(torch.cat(list(first)).tolist()) == list(range(10))
    assert [len(indices) for indices in order(10, 4, True, 3, 0)] == [4, 4]
    torch.manual_seed(77)
    assert torch.equal(torch.cat(list(order(10, 4, False, 3, 0))), torch.cat(list(first)))
    assert not torch.equal(torch.cat(list(order(10, 4, False, 3, 1))), torch.cat(list(first)))
    assert not torch.equal(torch.cat(list(order(10, 4, False, 4, 0))), torch.cat(list(first)))
    assert [len(indices) for indices in order(10, None, False, 3, 0)] == [10]


class Recorded(Dataset[tuple[Tensor, Tensor]]):
    """Notes which samples are asked for."""

    def __init__(self, data: tuple[Tensor, Tensor]) -> None:
        self.data, self.asked = data, list[int]()

    def __len__(self) -> int:
        return len(self.data[0])

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        self.asked.append(index)
        return self.data[0][index], self.data[1][index]


def test_network_and_linearization_see_the_same_minibatches() -> None:
    network = mlp()
    asked = []
    for model in (network, linearize(network), mlp(width=4)):
        data = Recorded(clusters())
        train(model, data, spec(evaluate_on=0))
        asked.append(data.asked)
    assert len(asked[0]) == 3 * 60
    assert asked[0] == asked[1] == asked[2]
    data = Recorded(clusters())
    train(mlp(), data, spec(evaluate_on=0, seed=6))
    assert data.asked != asked[0]


class Batched(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, data: tuple[Tensor, Tensor]) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data[0])

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
        return [(self.data[0][i], self.data[1][i]) for i in indices]


class Examples:
    """The interface of tangentlab.data.Examples, with inputs that change from epoch to epoch."""

    def __init__(self, data: tuple[Tensor, Tensor], epoch: int = -1) -> None:
        self.data, self.epoch = data, epoch

    def __len__(self) -> int:
        return len(self.data[0])

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        return self.data[0][indices], self.data[1][indices]


@pytest.mark.parametrize("form", [list, TensorDataset, Recorded, Batched, Examples])
def test_forms_of_data(form: Any) -> None:
    data = clusters()
    expected = train(mlp(), data, spec(), test=data)
    other = form(*data) if form is TensorDataset else form(data)
    result = train(mlp(), other, spec(), test=other)
    assert torch.equal(flat(result.model.parameters()), flat(expected.model.parameters()))
    columns = ["train_loss", "test_accuracy", "gradient_norm"]
    pd.testing.assert_frame_equal(result.history[columns], expected.history[columns])


def test_data_with_two_splits_and_with_epochs() -> None:
    class Both:
        train, test = clusters(), clusters(30, seed=1)

    result = train(mlp(), Both(), spec())
    assert result.history["test_loss"].notna().all()

    class Moving(Examples):
        def at_epoch(self, epoch: int) -> "Moving":
            return Moving((self.data[0] + epoch, self.data[1]))

    moving = train(mlp(), Moving(clusters()), spec())
    still = train(mlp(), clusters(), spec())
    assert not torch.equal(flat(moving.model.parameters()), flat(still.model.parameters()))
    first = train(mlp(), Moving(clusters()), spec(epochs=1, schedule=Constant()))
    assert torch.equal(
        flat(first.model.parameters()), flat(train(mlp(), clusters(), spec(epochs=1)).model.parameters())
    )


@pytest.mark.parametrize("loss", [SigmoidCrossEntropy(), SoftmaxCrossEntropy(), Squared()], ids=repr)
@pytest.mark.parametrize("optimizer", [SGD(0.1, momentum=0.9), Adam(0.01)], ids=repr)
@pytest.mark.parametrize("schedule", [Constant(), LinearDecay(), Steps(2), OneCycle()], ids=repr)
@pytest.mark.parametrize("linear", [False, True])
def test_every_combination_learns(loss: Any, optimizer: Any, schedule: Any, linear: bool) -> None:
    outputs, x, y = task(loss)
    model = mlp(outputs)
    run = spec(epochs=6, loss=loss, optimizer=optimizer, schedule=schedule)
    result = train(linearize(model) if linear else model, (x, y), run, test=(x, y))
    assert result.history["train_loss"].iloc[-1] < 0.8 * result.history["train_loss"].iloc[0]
    assert result.final["train_accuracy"] > 0.8
    assert result.final["test_accuracy"] == result.final["train_accuracy"]
    rates = [schedule.factor(s, 48, 8) * optimizer.lr for s in range(48)]
    torch.testing.assert_close(result.steps["lr"].tolist(), rates)


def test_the_history() -> None:
    x, y = clusters()
    model = mlp()
    start = flat(model.parameters())
    weights: dict[int, Tensor] = {}
    keep = Callback("weights", lambda model, epoch: weights.update({epoch: flat(model.parameters()).double()}))
    result = train(model, (x, y), spec(epochs=5, evaluate_every=2), test=clusters(30, seed=1), callbacks=[keep])
    history = result.history
    assert history["epoch"].tolist() == [0, 2, 4, 5]
    assert history["step"].tolist() == [0, 16, 32, 40]
    assert sorted(weights) == [0, 1, 2, 3, 4, 5]
    for _, row in history.iterrows():
        theta, theta0 = weights[int(row["epoch"])], start.double()
        assert math.isclose(row["distance_l2"], float((theta - theta0).norm()), abs_tol=1e-9)
        cosine = 1 - float(theta @ theta0 / theta.norm() / theta0.norm())
        assert math.isclose(row["distance_cosine"], cosine, abs_tol=1e-9)
    assert history["distance_l2"].iloc[0] == 0
    score = evaluate(model, (x, y), SoftmaxCrossEntropy(), batch_size=7)
    assert math.isclose(score.loss, history["train_loss"].iloc[-1], rel_tol=1e-6)
    assert score.accuracy == history["train_accuracy"].iloc[-1]
    with torch.no_grad():
        assert math.isclose(score.loss, float(F.cross_entropy(model(x), y)), rel_tol=1e-5)
        assert score.accuracy == float((model(x).argmax(1) == y).double().mean())
    steps = result.steps
    assert len(steps) == 40
    assert math.isclose(history["minibatch_loss"].iloc[1], steps["loss"][:16].mean(), rel_tol=1e-12)
    assert math.isclose(history["gradient_norm"].iloc[2], steps["gradient_norm"][16:32].mean(), rel_tol=1e-12)
    assert history["seconds"].is_monotonic_increasing
    assert "after 5 epochs, 40 updates" in str(result)
    assert result.final["epoch"] == 5


def test_gradient_norm_and_loss_of_the_first_update() -> None:
    x, y = clusters()
    result = train(mlp(), (x, y), spec(epochs=1, batch_size=None))
    model = mlp()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    assert math.isclose(result.steps["loss"][0], loss.item(), rel_tol=1e-6)
    norm = float(flat(p.grad for p in model.parameters()).norm())
    assert math.isclose(result.steps["gradient_norm"][0], norm, rel_tol=1e-5)


def test_iterations_to_a_training_loss() -> None:
    result = train(mlp(), clusters(), spec(epochs=8, thresholds=(0.5, 0.1, 1e-9)))
    table = result.iterations_to.set_index("loss")
    for threshold in (0.5, 0.1):
        below = result.steps.loc[result.steps["loss"] <= threshold, "step"]
        assert table.loc[threshold, "minibatch"] == below.iloc[0]
        rows = result.history.loc[result.history["train_loss"] <= threshold, "step"]
        assert table.loc[threshold, "train"] == rows.iloc[0]
    assert table.loc[1e-9].isna().all()


@pytest.mark.parametrize("every", [None, 3])
def test_watched_outputs(every: int | None) -> None:
    x, y = clusters()
    watch = x[:4]
    seen: dict[int, Tensor] = {}

    def look(model: nn.Module, epoch: int) -> None:
        with torch.no_grad():
            seen[epoch * 8] = model(watch)

    result = train(mlp(), (x, y), spec(watch_every=every), watch=watch, callbacks=[Callback("look", look)])
    expected = [0, 8, 16, 24] if every is None else [0, 3, 6, 9, 12, 15, 18, 21, 24]
    assert result.watched_steps == expected
    assert result.watched is not None
    assert result.watched.shape == (len(expected), 4, 3)
    for place, step in enumerate(expected):
        if step in seen:
            assert torch.equal(result.watched[place], seen[step])


def test_callbacks_at_chosen_epochs() -> None:
    modes = []

    def kernel(model: nn.Module, epoch: int) -> Tensor:
        modes.append(model.training)
        torch.manual_seed(0)  # must not disturb training
        torch.randn(3)
        return flat(model.parameters())

    data = images()
    plain = train(convnet(dropout=0.5), data, spec())
    result = train(
        convnet(dropout=0.5),
        data,
        spec(),
        callbacks=[Callback("a", kernel, epochs=(0, 2)), Callback("b", kernel, epochs=[-1])],
    )
    assert list(result.values["a"]) == [0, 2]
    assert list(result.values["b"]) == [3]
    assert torch.equal(result.values["a"][0], flat(convnet().parameters()))
    assert torch.equal(result.values["b"][3], flat(result.model.parameters()))
    assert modes == [False] * 3
    assert torch.equal(flat(result.model.parameters()), flat(plain.model.parameters()))


def test_evaluation_and_the_callers_generator_do_not_disturb_training() -> None:
    data = images()
    torch.manual_seed(1)
    before = torch.get_rng_state()
    often = train(convnet(dropout=0.5), data, spec(), test=data, watch=data[0][:2])
    torch.manual_seed(1)
    model = convnet(dropout=0.5)
    torch.manual_seed(2)
    seldom = train(model, data, spec(evaluate_every=3, evaluate_on=0))
    assert torch.equal(flat(often.model.parameters()), flat(seldom.model.parameters()))
    assert "train_loss" not in seldom.history
    torch.set_rng_state(before)
    train(mlp(), clusters(), spec())
    torch.manual_seed(3)
    expected = torch.get_rng_state()
    torch.manual_seed(3)
    evaluate(model, data, SoftmaxCrossEntropy())
    assert torch.equal(torch.get_rng_state(), expected)


def test_modes_are_restored() -> None:
    model = convnet(dropout=0.1).eval()
    statistics = model.get_submodule("1").running_mean.clone()
    train(model, images(), spec())
    assert not any(module.training for module in model.modules())
    assert not torch.equal(model.get_submodule("1").running_mean, statistics)  # but it was trained in training mode
    lin = linearize(convnet())
    train(lin, images(), spec())
    assert not lin.get_submodule("1").training


def test_frozen_parameters_stay() -> None:
    model = mlp()
    model.get_parameter("0.weight").requires_grad_(False)
    before = model.get_parameter("0.weight").clone()
    result = train(model, clusters(), spec(optimizer=SGD(0.1, weight_decay=0.1)))
    assert torch.equal(model.get_parameter("0.weight"), before)
    assert result.final["distance_l2"] > 0
    with pytest.raises(TangentError, match="no parameters to train"):
        train(model.requires_grad_(False), clusters(), spec())


def test_double_precision_models_take_single_precision_data() -> None:
    result = train(mlp().double(), clusters(), spec())
    assert next(result.model.parameters()).dtype == torch.float64


@pytest.mark.parametrize("optimizer", [SGD(0.05, momentum=0.5), Adam(0.01)])
def test_weight_decay_to_the_start(optimizer: Any) -> None:
    """For a linearized model: the same as decay to zero of a model whose weights are the displacement."""
    network = mlp().double()
    x, y = (t.double() if t.is_floating_point() else t for t in clusters())
    decay = copy.copy(optimizer)
    object.__setattr__(decay, "weight_decay", 0.3)
    object.__setattr__(decay, "decay_to", "start")
    run = spec(optimizer=decay, loss=Squared())
    result = train(linearize(network), (x, y), run)
    from_zero = linearize(network, theta0={name: torch.zeros_like(p) for name, p in network.named_parameters()})
    object.__setattr__(decay, "decay_to", "zero")
    other = train(from_zero, (x, y), spec(optimizer=decay, loss=Squared()))
    torch.testing.assert_close(
        flat(result.model.displacement().values()), flat(other.model.displacement().values()), rtol=1e-9, atol=1e-9
    )
    free = train(linearize(network), (x, y), spec(optimizer=optimizer, loss=Squared()))
    assert result.final["distance_l2"] < free.final["distance_l2"]


@pytest.mark.parametrize("linear", [False, True])
def test_divergence(linear: bool, tmp_path: Path) -> None:
    network = mlp()
    model = linearize(network) if linear else network
    wild = spec(epochs=50, loss=Squared(), optimizer=SGD(1e4), evaluate_every=50)
    with pytest.raises(DivergenceError, match=r"diverged after \d+ of 400 updates") as failure:
        train(model, clusters(), wild, folder=tmp_path, checkpoint_every=1)
    error = failure.value
    assert error.remedy
    assert error.checkpoint is not None
    assert error.checkpoint.exists()
    assert str(error.checkpoint) in str(error)
    state = torch.load(error.checkpoint, weights_only=True)
    assert all(torch.isfinite(value).all() for value in state["model"].values())
    assert state["step"] <= error.step
    assert len(error.history) == 1


def test_divergence_in_the_data() -> None:
    x, y = clusters()
    x[17] = float("nan")
    with pytest.raises(DivergenceError, match="training loss is nan"):
        train(mlp(), (x, y), spec())
    with pytest.raises(DivergenceError, match="loss of the next minibatch is nan"):
        train(mlp(), (x, y), spec(evaluate_on=0))


def test_divergence_crosses_processes() -> None:
    import pickle

    error = DivergenceError("what", "why", "remedy", 3, Path("x"), pd.DataFrame({"a": [1]}))
    twin = pickle.loads(pickle.dumps(error))
    assert (twin.what, twin.step, twin.checkpoint) == ("what", 3, Path("x"))


def test_the_progress_bar_shows_rate_and_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    monkeypatch.setattr(
        _progress, "Console", lambda stderr: Console(file=text, force_terminal=True, width=160, force_interactive=True)
    )
    train(mlp(), clusters(), spec(epochs=30), progress=True, title="my run")
    shown = text.getvalue()
    assert "my run" in shown
    assert "updates/s" in shown
    assert "loss" in shown


def test_refusals(tmp_path: Path) -> None:
    x, y = clusters()
    cases: list[tuple[Any, TrainingSpec, str]] = [
        (DataLoader(TensorDataset(x, y)), spec(), "DataLoader"),
        ((x, y[:5]), spec(), "equal length"),
        ((x,), spec(), "pair"),
        (iter([1]), spec(), "not a data set"),
        ((x[:0], y[:0]), spec(), "no samples"),
        ((x, y), spec(batch_size=100, drop_last=True), "no complete minibatch"),
        ((x, y), spec(loss=SigmoidCrossEntropy()), "one logit"),
        ((x, y + 1), spec(), "1 to 3 do not fit 3"),
    ]
    for data, run, message in cases:
        with pytest.raises(TangentError, match=message):
            train(mlp(), data, run)
    with pytest.raises(TangentError, match="checkpoint_every"):
        train(mlp(), (x, y), spec(), folder=tmp_path, checkpoint_every=0)


def test_the_papers_set_ups_can_be_written_down() -> None:
    """EXPERIMENTS.md: O, its Adam variant, S on three data sets and binary, M."""
    o = TrainingSpec(
        epochs=100,
        batch_size=128,
        loss=SigmoidCrossEntropy(),
        optimizer=SGD(0.05, momentum=0.9),
        schedule=LinearDecay(),
        drop_last=True,
        thresholds=(0.01,),
    )
    s = TrainingSpec(
        epochs=100,
        batch_size=32,
        loss=Squared(),
        optimizer=SGD(0.1, momentum=0.9, weight_decay=5e-5),
        schedule=Steps(30, 0.1),
    )
    m = TrainingSpec(epochs=200, batch_size=128, optimizer=SGD(0.1, momentum=0.9, weight_decay=1e-4))
    assert len({repr(o), repr(s), repr(m)}) == 3
    assert o.describe()["spec.schedule"] == "LinearDecay"
    assert s.describe()["spec.optimizer.weight_decay"] == 5e-5
    assert hash(o) != hash(s)
