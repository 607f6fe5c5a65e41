"""What a call needs is freed when it returns, without the garbage collector: a cycle would keep whole graphs alive."""

import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tangentlab
from tangentlab import analysis, attribution, forecast, linearize, posterior, store, training

ALIVE: list[Callable[[], Any]] = []


class Watched(nn.Module):
    """A network whose activations, and the nodes of the graph that hold them, are watched."""

    def __init__(self, norm: bool = True) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(5, 8), nn.LayerNorm(8) if norm else nn.Identity(), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.norm(self.first(x)))
        ALIVE.append(weakref.ref(hidden))
        if hidden.requires_grad:

            def hook(gradient: Tensor) -> None:
                """Lives as long as the node of the graph."""

            hidden.register_hook(hook)
            ALIVE.append(weakref.ref(hook))
        return self.last(hidden)


@pytest.fixture
def counting() -> Iterator[None]:
    """Nothing is freed but by its last reference."""
    gc.collect()
    gc.disable()
    ALIVE.clear()
    yield
    gc.enable()


def data(count: int) -> Tensor:
    return torch.randn(count, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(count))


def labels(count: int) -> Tensor:
    return torch.arange(count) % 2


def of_operator(model: nn.Module, x: Tensor, _: Path) -> Any:
    operator = tangentlab.NTKOperator(model, x, readout="pntk")
    return operator @ torch.ones(len(x), 1, dtype=torch.float64)


def of_training(model: nn.Module, x: Tensor, _: Path) -> Any:
    examples = (x, data(len(x))[:, :2])
    return training.train(model, examples, training.TrainingSpec(epochs=2, batch_size=8, loss=training.Squared()))


CALLS: dict[str, Callable[[nn.Module, Tensor, Path], Any]] = {
    "kernel": lambda model, x, _: tangentlab.ntk(model, x),
    "two sets": lambda model, x, _: tangentlab.ntk(model, x, x[:5], readout="pntk"),
    "per layer": lambda model, x, _: tangentlab.ntk(model, x, per_layer=True),
    "diagonal": lambda model, x, _: tangentlab.ntk(model, x, diagonal=True),
    "loss": lambda model, x, _: tangentlab.ntk(model, x, readout="loss", targets=labels(len(x))),
    "small batches": lambda model, x, _: tangentlab.ntk(model, x, batch_size=4),
    "explain": lambda model, x, _: tangentlab.explain(model, x),
    "sketch": lambda model, x, _: tangentlab.sketch(model, x, 16),
    "operator": of_operator,
    "reference": lambda model, x, _: tangentlab.reference.ntk(model, x),
    "store": lambda model, x, folder: store.compute(model, x, folder / "kernel.zarr"),
    "minimum norm": lambda model, x, _: analysis.minimum_norm(model, x[:8], data(8)[:, :2]),
    "linearized": lambda model, x, _: linearize(model)(x).sum().backward(),
    "training": of_training,
    "posterior": lambda model, x, _: posterior.fit(model, x, labels(len(x)), prior_precision=1.0),
    "forecast": lambda model, x, _: forecast.predict_training(model, x, data(len(x))[:, :2], lr=0.1, steps=5),
    "attribution": lambda model, x, _: attribution.attribute(
        model, x, x[:3], targets=labels(len(x)), test_targets=labels(3)
    ),
}


@pytest.mark.usefixtures("counting")
@pytest.mark.parametrize("call", CALLS)
def test_nothing_outlives_a_call(call: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    result = CALLS[call](Watched().double(), data(40), tmp_path)
    assert ALIVE
    del result
    assert not [one for one in ALIVE if one() is not None]
