"""Targets on their own go with samples in their own order: a loader that shuffles is refused everywhere."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import tangentlab
from tangentlab import TangentError, analysis, attribution, posterior
from tangentlab.estimators import NTKRegressor

X = torch.randn(10, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.randn(10, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
DATA = TensorDataset(X)
LOADERS: dict[str, Callable[[], DataLoader]] = {
    "shuffle": lambda: DataLoader(DATA, batch_size=3, shuffle=True),
    "subset": lambda: DataLoader(DATA, batch_size=3, sampler=SubsetRandomSampler(range(10))),
    "weighted": lambda: DataLoader(DATA, batch_size=3, sampler=WeightedRandomSampler([1.0] * 10, 10)),
    "batches": lambda: DataLoader(DATA, batch_sampler=BatchSampler(RandomSampler(DATA), 3, False)),
    "distributed": lambda: DataLoader(DATA, batch_size=3, sampler=DistributedSampler(DATA, num_replicas=1, rank=0)),
}
ORDERED: dict[str, Callable[[], DataLoader]] = {
    "plain": lambda: DataLoader(DATA, batch_size=3),
    "batches": lambda: DataLoader(DATA, batch_sampler=BatchSampler(SequentialSampler(DATA), 4, False)),
    "distributed": lambda: DataLoader(
        DATA, batch_size=3, sampler=DistributedSampler(DATA, num_replicas=1, rank=0, shuffle=False)
    ),
}


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()


CALLS: dict[str, Callable[[Any], Tensor]] = {
    "minimum_norm": lambda x: analysis.minimum_norm(network(), x, Y, progress=False).predictions,
    "predict_training": lambda x: torch.tensor(
        tangentlab.predict_training(network(), x, Y, steps=3, progress=False).table["train_loss"].to_numpy()
    ),
    "rank_models": lambda x: torch.tensor(
        analysis.rank_models([network()], x, Y, progress=False)["squared_error"].to_numpy()
    ),
    "posterior.fit": lambda x: (
        posterior.fit(network(), x, Y, likelihood="regression", progress=False).predict(X[:2]).mean
    ),
    "estimators": lambda x: torch.as_tensor(NTKRegressor(network()).fit(x, Y).predict(x)),
    "ntk": lambda x: tangentlab.ntk(network(), x, readout=lambda f, y: (f - y).square().sum(), targets=Y),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("loader", LOADERS.values(), ids=LOADERS)
def test_refused(call: Callable[[Any], Tensor], loader: Callable[[], DataLoader]) -> None:
    with pytest.raises(TangentError, match="DataLoader that shuffles") as refusal:
        call(loader())
    assert "shuffle=False" in refusal.value.remedy


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("loader", ORDERED.values(), ids=ORDERED)
def test_a_loader_in_order_gives_what_the_tensor_gives(
    call: Callable[[Any], Tensor], loader: Callable[[], DataLoader]
) -> None:
    torch.testing.assert_close(call(loader()), call(X))


@pytest.mark.parametrize("labeled", [False, True])
@pytest.mark.parametrize("loader", LOADERS.values(), ids=LOADERS)
def test_samples_that_are_told_apart_by_their_places(loader: Callable[[], DataLoader], labeled: bool) -> None:
    """With labels of their own, too: nobody could say which sample a score or a point of a picture belongs to."""
    classes = torch.arange(10) % 2
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    data = loader()
    if labeled:
        data = DataLoader(TensorDataset(X, classes), batch_sampler=BatchSampler(data.batch_sampler.sampler, 3, False))
    given = None if labeled else classes
    with pytest.raises(TangentError, match="train is a DataLoader that shuffles"):
        attribution.attribute(model, data, X[:2], targets=given, test_targets=classes[:2])
    with pytest.raises(TangentError, match="test is a DataLoader that shuffles"):
        attribution.attribute(model, X, data, targets=classes, test_targets=given)
    with pytest.raises(TangentError, match="data is a DataLoader that shuffles"):
        tangentlab.explore(model, data, labels=given, progress=False)


def test_own_labels_may_be_shuffled() -> None:
    loader = DataLoader(TensorDataset(X, Y), batch_size=3, shuffle=True)
    found = posterior.fit(network(), loader, likelihood="regression", progress=False, prior_precision=1.0, noise=1.0)
    expected = posterior.fit(network(), X, Y, likelihood="regression", progress=False, prior_precision=1.0, noise=1.0)
    torch.testing.assert_close(found.predict(X[:2]).mean, expected.predict(X[:2]).mean)
