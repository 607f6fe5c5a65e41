"""Network and linearizations on equal terms, from one call."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tangentlab import TangentError
from tangentlab.linearized import Linearized, linearize
from tangentlab.training import SGD, Callback, DivergenceError, Squared, compare, train
from tests.linearized.reference import flat
from tests.training.problems import clusters, mlp, spec

NAMES = [
    "network",
    "linearized at the start",
    "linearized at epoch 2 (unbiased, checkpoint)",
    "linearized at epoch 3 (unbiased, end)",
]


def test_each_run_is_what_training_it_alone_gives() -> None:
    data, settings = clusters(), spec(thresholds=(0.9, 1e-9))
    comparison = compare(mlp(), data, settings, at=("start", 2, "end"), test=clusters(20, seed=1))
    assert list(comparison.runs) == NAMES
    assert list(comparison.table.index) == NAMES
    weights: dict[int, Any] = {}
    alone = train(
        mlp(),
        data,
        settings,
        callbacks=[Callback("w", lambda m, e: weights.update({e: {k: v.clone() for k, v in m.state_dict().items()}}))],
    )
    expected: list[nn.Module] = [alone.model]
    for lin in (linearize(mlp()), *(linearize(mlp(), at=weights[epoch], bias=False) for epoch in (2, 3))):
        expected.append(train(lin, data, settings).model)
    for name, model in zip(NAMES, expected, strict=True):
        run = comparison.runs[name]
        assert torch.equal(flat(run.model.parameters()), flat(model.parameters()))
        row = comparison.table.loc[name]
        assert row["status"] == "finished"
        assert row["test_loss"] == run.history["test_loss"].iloc[-1]
        assert row["iterations_to_0.9"] == run.iterations_to["train"][0]
    assert comparison.table["iterations_to_1e-09"].isna().all()
    assert all(name in str(comparison) for name in NAMES)
    assert "test_accuracy" in str(comparison)


def test_the_network_is_not_changed_and_biased_checkpoints_start_there() -> None:
    network = mlp()
    before = flat(network.parameters()).clone()
    comparison = compare(network, clusters(), spec(), at=("end",), unbiased=False)
    assert torch.equal(flat(network.parameters()), before)
    lin = comparison.runs["linearized at epoch 3 (end)"]
    assert isinstance(lin.model, Linearized)
    assert lin.model.biased
    assert lin.history["train_loss"][0] == pytest.approx(comparison.runs["network"].final["train_loss"])


def test_a_function_builds_the_network_with_the_seed() -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))

    torch.rand(3)
    one = compare(build, clusters(), spec(), at=())
    torch.rand(5)
    two = compare(build, clusters(), spec(), at=())
    assert one.runs["network"].steps.equals(two.runs["network"].steps)


def test_an_interrupted_comparison_continues(tmp_path: Path) -> None:
    settings = spec()
    whole = compare(mlp(), clusters(), settings, at=("start", "end"))

    def stop(model: nn.Module, epoch: int) -> None:
        if isinstance(model, Linearized):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compare(mlp(), clusters(), settings, at=("start", "end"), folder=tmp_path, callbacks=[Callback("stop", stop)])
    late = Callback("late", lambda model, epoch: epoch, epochs=[1])
    with pytest.warns(UserWarning, match="'late' has no value"):
        compare(mlp(), clusters(), settings, folder=tmp_path, callbacks=[late], at=())
    resumed = compare(mlp(), clusters(), settings, at=("start", "end"), folder=tmp_path)
    assert resumed.runs["network"].resumed_at == 24
    for name, run in whole.runs.items():
        assert torch.equal(flat(run.model.parameters()), flat(resumed.runs[name].model.parameters()))


def test_a_place_asked_for_later(tmp_path: Path) -> None:
    """The end can be made up for; a checkpoint in between is gone, and said to be."""
    compare(mlp(), clusters(), spec(), folder=tmp_path)
    later = compare(mlp(), clusters(), spec(), folder=tmp_path, at=("start", "end"))
    assert list(later.runs) == [NAMES[0], NAMES[1], NAMES[3]]
    assert later.runs["network"].resumed_at == 24
    missed, gone = "has no value for the epochs \\[2\\]", "after epoch 2 have not been kept"
    with pytest.warns(UserWarning, match=missed), pytest.raises(TangentError, match=gone):
        compare(mlp(), clusters(), spec(), folder=tmp_path, at=(2,))


def test_callbacks_keep_their_values() -> None:
    mine = Callback("weights", lambda model, epoch: epoch)
    comparison = compare(mlp(), clusters(), spec(), at=("end",), callbacks=[mine])
    assert comparison.runs["network"].values["weights"] == {0: 0, 1: 1, 2: 2, 3: 3}
    with pytest.raises(TangentError, match="Two callbacks have one name"):
        train(mlp(), clusters(), spec(), callbacks=[mine, mine])


class Noisy(nn.Module):
    """Randomness that only a call shows."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.inner(x), training=self.training)


@pytest.mark.parametrize("network", [nn.Sequential(mlp(), nn.Dropout()), Noisy()], ids=["module", "function"])
def test_what_cannot_be_linearized_is_refused_before_training(network: nn.Module) -> None:
    epochs: list[int] = []
    with pytest.raises(TangentError, match="random numbers"):
        compare(network, clusters(), spec(), callbacks=[Callback("seen", lambda model, epoch: epochs.append(epoch))])
    assert epochs == []


def test_divergence_is_a_row() -> None:
    settings, fast = (spec(loss=Squared(), optimizer=SGD(rate)) for rate in (0.1, 1e30))
    comparison = compare(mlp(), clusters(), settings, linear_spec=fast)
    assert list(comparison.runs) == ["network"]
    assert comparison.table.loc["linearized at the start", "status"].startswith("diverged after")
    with pytest.raises(DivergenceError):
        compare(mlp(), clusters(), fast, at=("end",))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"linear_spec": spec(seed=9)}, "differs from spec in seed"),
        ({"at": ("middle",)}, "cannot be linearized at 'middle'"),
        ({"at": (4,)}, "from 0 to 3"),
    ],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TangentError, match=message):
        compare(mlp(), clusters(), spec(), **options)
    with pytest.raises(TangentError, match="already linearized"):
        compare(linearize(mlp()), clusters(), spec())
