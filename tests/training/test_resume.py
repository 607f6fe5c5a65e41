"""An interrupted run, resumed, gives what an uninterrupted one gives, bit for bit."""

import multiprocessing
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

from tangentlab import TangentError
from tangentlab.linearized import linearize
from tangentlab.training import SGD, Adam, Callback, SoftmaxCrossEntropy, Squared, TrainingResult, train
from tangentlab.training._checkpoints import CheckpointStore
from tests.linearized.reference import flat
from tests.training.problems import clusters, images, mlp, spec
from tests.training.worker import run, work

# Processes are forked from a server that has imported everything, or starting them would take most of the time.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.training.worker"])


def start(*args: Any) -> Any:
    process = CONTEXT.Process(target=work, args=args)
    process.start()
    return process


def same(one: TrainingResult, other: TrainingResult) -> None:
    """Everything but the time it took."""
    states = one.model.state_dict(), other.model.state_dict()
    assert list(states[0]) == list(states[1])
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    pd.testing.assert_frame_equal(
        one.history.drop(columns="seconds"), other.history.drop(columns="seconds"), check_exact=True
    )
    pd.testing.assert_frame_equal(one.steps, other.steps, check_exact=True)
    pd.testing.assert_frame_equal(one.iterations_to, other.iterations_to)
    assert one.watched_steps == other.watched_steps
    if one.watched is not None:
        assert other.watched is not None
        assert torch.equal(one.watched, other.watched)
    assert one.values.keys() == other.values.keys()
    for name, values in one.values.items():
        assert values.keys() == other.values[name].keys()
        assert all(torch.equal(values[epoch], other.values[name][epoch]) for epoch in values)


@pytest.fixture(scope="module")
def uninterrupted() -> dict[str, TrainingResult]:
    return {kind: run(kind, None) for kind in ("network", "linearized")}


@pytest.mark.parametrize("kind", ["network", "linearized"])
def test_killed_at_random_moments(kind: str, tmp_path: Path, uninterrupted: dict[str, TrainingResult]) -> None:
    moments = random.Random()  # other moments every time; the seed of a failure is not needed, the result is exact
    kills, steps = 0, []
    for _ in range(6):
        before = {path.name for path in tmp_path.glob("step-*.pt")}
        process = start(kind, tmp_path)
        deadline = time.monotonic() + 60
        while {path.name for path in tmp_path.glob("step-*.pt")} <= before and process.is_alive():
            assert time.monotonic() < deadline, "the worker writes no checkpoints"
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.2))
        process.kill()
        process.join()
        assert process.exitcode in (-signal.SIGKILL, 0)
        kills += process.exitcode == -signal.SIGKILL
        steps.append(max(int(path.stem[5:]) for path in tmp_path.glob("step-*.pt")))
    assert kills >= 2, f"it finished too early to be killed: {steps}"
    result = run(kind, tmp_path)
    assert result.resumed_at is not None
    assert result.resumed_at >= steps[-1]
    same(result, uninterrupted[kind])


@pytest.mark.parametrize("moment", ["write", "replace", "unlink"])
def test_killed_while_writing_a_checkpoint(
    moment: str, tmp_path: Path, uninterrupted: dict[str, TrainingResult]
) -> None:
    process = start("linearized", tmp_path, moment)
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    leftovers = list(tmp_path.glob("*.partial"))
    assert bool(leftovers) == (moment != "unlink")
    result = run("linearized", tmp_path)
    # The fourth checkpoint is after twelve updates; killed before its renaming, the third counts.
    expected = {"write": 9, "replace": 9, "unlink": 18}[moment]
    assert result.resumed_at == expected
    same(result, uninterrupted["linearized"])
    assert not list(tmp_path.glob("*.partial"))


def test_interrupted_by_an_exception_at_every_step(tmp_path: Path) -> None:
    """Resuming works from every position within an epoch, not only from its ends."""
    data = clusters(30)
    settings = spec(epochs=2, optimizer=Adam(0.01))
    whole = train(mlp(), data, settings)

    class Stop(Exception):
        pass

    class Data:
        """Fails when asked for one minibatch too many."""

        def __init__(self, left: float) -> None:
            self.left = left

        def __len__(self) -> int:
            return 30

        def batch(self, indices: Any) -> Any:
            if len(indices) <= 8 and torch.is_grad_enabled():
                self.left -= 1
                if self.left < 0:
                    raise Stop
            return data[0][indices], data[1][indices]

    for left in range(8):
        folder = tmp_path / str(left)
        with pytest.raises(Stop):
            train(mlp(), Data(left), settings, folder=folder, checkpoint_every=1)
        result = train(mlp(), Data(float("inf")), settings, folder=folder, checkpoint_every=1)
        assert result.resumed_at == (left if left else None)
        same(result, whole)


def finished(folder: Path, **changes: Any) -> TrainingResult:
    return train(mlp(), clusters(), spec(**changes), folder=folder, checkpoint_every=5)


def test_a_finished_run_is_not_repeated(tmp_path: Path) -> None:
    first = finished(tmp_path)
    assert [path.name for path in sorted(tmp_path.glob("*.pt"))] == ["step-000000000020.pt", "step-000000000024.pt"]
    again = finished(tmp_path)
    assert again.resumed_at == 24
    same(again, first)
    assert again.history["seconds"].equals(first.history["seconds"])
    fresh = train(mlp(), clusters(), spec(), folder=tmp_path, resume=False)
    assert fresh.resumed_at is None
    same(fresh, first)


@pytest.mark.parametrize("damage", ["truncated", "empty", "text", "one bit", "other file"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_used(damage: str, tmp_path: Path) -> None:
    whole = finished(tmp_path)
    latest = tmp_path / "step-000000000024.pt"
    content = bytearray(latest.read_bytes())
    if damage == "truncated":
        latest.write_bytes(content[: len(content) // 2])
    elif damage == "empty":
        latest.write_bytes(b"")
    elif damage == "text":
        latest.write_text("not a checkpoint")
    elif damage == "other file":
        torch.save({"weights": 1}, latest)
    else:
        weights = whole.model.get_parameter("0.weight").detach().numpy().tobytes()
        place = content.find(weights[:32])
        assert place > 0
        content[place + 3] ^= 1
        latest.write_bytes(content)
    with pytest.warns(UserWarning, match=r"step-000000000024.pt is damaged"):
        result = finished(tmp_path)
    assert result.resumed_at == 20
    same(result, whole)
    assert (tmp_path / "step-000000000024.pt.damaged").exists()


@pytest.mark.filterwarnings("ignore:Checkpoint")
def test_no_whole_checkpoint_is_no_reason_to_start_over_silently(tmp_path: Path) -> None:
    finished(tmp_path)
    for path in tmp_path.glob("*.pt"):
        path.write_bytes(b"")
    with pytest.raises(TangentError, match=r"step-000000000024.pt.*step-000000000020.pt"):
        finished(tmp_path)
    for path in tmp_path.glob("*.damaged"):
        path.rename(path.with_suffix(""))
    assert train(mlp(), clusters(), spec(), folder=tmp_path, resume=False).resumed_at is None


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"optimizer": SGD(0.2, momentum=0.9)}, r"spec\.optimizer\.lr: 0\.1 there, 0\.2 here"),
        ({"optimizer": Adam(0.1)}, r"spec\.optimizer: 'SGD' there, 'Adam' here"),
        ({"epochs": 4}, r"spec\.epochs: 3 there, 4 here"),
        ({"seed": 1}, r"spec\.seed"),
        ({"loss": Squared()}, r"spec\.loss"),
    ],
)
def test_another_spec_is_refused_by_name(change: dict[str, Any], named: str, tmp_path: Path) -> None:
    finished(tmp_path)
    with pytest.raises(TangentError, match=named):
        finished(tmp_path, **change)


def test_another_model_or_data_is_refused_by_name(tmp_path: Path) -> None:
    result = finished(tmp_path)
    data = clusters()
    other = clusters()
    other[1][[7, 8]] = other[1][[8, 7]]
    attempts: list[tuple[nn.Module, Any, dict[str, Any], str]] = [
        (mlp(seed=1), data, {}, "weights at the start"),
        (result.model, data, {}, "weights at the start.*not with trained ones"),
        (mlp(width=8), data, {}, "model: 'Sequential"),
        (linearize(mlp()), data, {}, "base point: None there"),
        (mlp(), other, {}, "training data"),
        (mlp(), data, {"test": data}, "test data: None there"),
        (mlp(), data, {"watch": data[0][:2]}, "watched samples"),
    ]
    for model, samples, more, named in attempts:
        with pytest.raises(TangentError, match=rf"(?s)another run.*{named}"):
            train(model, samples, spec(), folder=tmp_path, **more)
    folder = tmp_path / "linear"
    network = mlp()
    train(linearize(network), data, spec(), folder=folder)
    for lin in (linearize(network, bias=False), linearize(network, at=mlp(seed=2), theta0=network)):
        with pytest.raises(TangentError, match=r"linearization|base point"):
            train(lin, data, spec(), folder=folder)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    with pytest.raises(TangentError, match="Another process"):
        finished(tmp_path)
    store.close()
    finished(tmp_path)


def test_a_checkpoint_can_be_linearized_at(tmp_path: Path) -> None:
    result = finished(tmp_path)
    lin = linearize(mlp(), at=result.checkpoint)
    assert torch.equal(flat(lin.parameters()), flat(result.model.parameters()))
    moved = tmp_path / "moved"
    shutil.copytree(tmp_path, moved)
    same(finished(moved), result)


def test_what_callbacks_return_must_fit_a_checkpoint(tmp_path: Path) -> None:
    odd = Callback("odd", lambda model, epoch: object())
    assert isinstance(train(mlp(), clusters(), spec(), callbacks=[odd]).values["odd"][0], object)
    with pytest.raises(TangentError, match=r"Callback 'odd' returned a builtins\.object"):
        train(mlp(), clusters(), spec(), callbacks=[odd], folder=tmp_path)
    rich = Callback("rich", lambda model, epoch: {"a": [torch.ones(2, requires_grad=True), (1, 2.5, None)], "b": "c"})
    folder = tmp_path / "rich"
    train(mlp(), clusters(), spec(), callbacks=[rich], folder=folder)
    value = train(mlp(), clusters(), spec(), callbacks=[rich], folder=folder).values["rich"][3]
    assert torch.equal(value["a"][0], torch.ones(2))
    assert value["a"][1] == (1, 2.5, None)


def test_checkpoints_by_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without checkpoint_every, the ends of epochs make them, not faster than one in ten seconds."""
    saved: list[int] = []
    original = CheckpointStore.save
    monkeypatch.setattr(
        CheckpointStore, "save", lambda self, state, step: (saved.append(step), original(self, state, step))[1]
    )
    train(mlp(), clusters(), spec(), folder=tmp_path / "fast")
    assert saved == [24]
    saved.clear()
    monkeypatch.setattr("tangentlab.training._run_checkpoints._SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    train(mlp(), clusters(), spec(loss=SoftmaxCrossEntropy()), folder=tmp_path / "slow")
    assert saved == [8, 16, 24]


def test_images_are_not_the_same_by_chance() -> None:
    """The comparisons above would be empty if runs with other seeds were equal too."""
    one, two = (train(mlp(), clusters(), spec(seed=seed)) for seed in (1, 2))
    assert not torch.equal(flat(one.model.parameters()), flat(two.model.parameters()))
    assert not torch.equal(images()[0], images(seed=1)[0])
