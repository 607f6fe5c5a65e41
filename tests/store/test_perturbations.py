"""A store computed by one description and opened with a perturbed one is refused: model, data, readout and options.

A network is written down as plain values, so that hypothesis can draw one and then change any of them. Weights depend
on names and shapes alone: what differs is what the network computes, not its numbers.
"""

import copy
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tangentlab import TangentError
from tangentlab.engines import Shard
from tangentlab.kernels import ntk
from tangentlab.store import compute

ACTIVATIONS = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
    "sigmoid": nn.Sigmoid,
    "identity": nn.Identity,
}
SIDE, CHANNELS = 9, 4


class Residual(nn.Module):
    def __init__(self, inner: nn.Module, weight: float) -> None:
        super().__init__()
        self.inner, self.weight = inner, weight

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight * self.inner(x)


class Branching(nn.Module):
    """Doubles what is above a limit: a branch that probe samples need not take."""

    def __init__(self, limit: float) -> None:
        super().__init__()
        self.limit = limit

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x > self.limit, 2 * x, x)


def layer(spec: dict[str, Any]) -> nn.Module:
    kind = spec["kind"]
    if kind == "convolution":
        reach = 2 * spec["dilation"]
        before, behind = (reach, 0) if spec["causal"] else (reach // 2, reach // 2)
        pad = {"zeros": nn.ZeroPad2d, "circular": nn.CircularPad2d, "edge": nn.ReplicationPad2d}[spec["padding"]]
        return nn.Sequential(
            pad((before, behind, before, behind)), nn.Conv2d(CHANNELS, CHANNELS, 3, dilation=spec["dilation"])
        )
    if kind == "normalization":
        return nn.GroupNorm(spec["groups"], CHANNELS, eps=spec["eps"])
    if kind == "activation":
        return ACTIVATIONS[spec["name"]]()
    if kind == "residual":
        return Residual(nn.Conv2d(CHANNELS, CHANNELS, 1), spec["weight"])
    if kind == "branch":
        return Branching(spec["limit"])
    window = {"mean": nn.AvgPool2d, "max": nn.MaxPool2d}[spec["name"]]
    return window(3, stride=1, padding=1)


LAYERS = st.one_of(
    st.fixed_dictionaries(
        {
            "kind": st.just("convolution"),
            "padding": st.sampled_from(["zeros", "circular", "edge"]),
            "dilation": st.sampled_from([1, 2]),
            "causal": st.booleans(),
        }
    ),
    st.fixed_dictionaries(
        {"kind": st.just("normalization"), "groups": st.sampled_from([1, 2, 4]), "eps": st.sampled_from([1e-5, 1e-1])}
    ),
    st.fixed_dictionaries({"kind": st.just("activation"), "name": st.sampled_from(sorted(ACTIVATIONS))}),
    st.fixed_dictionaries({"kind": st.just("residual"), "weight": st.sampled_from([0.5, 1.0, -1.0])}),
    st.fixed_dictionaries({"kind": st.just("branch"), "limit": st.sampled_from([5.0, 50.0, 1e6])}),
    st.fixed_dictionaries({"kind": st.just("pooling"), "name": st.sampled_from(["mean", "max"])}),
)


def output_of(spec: dict[str, Any]) -> Any:
    factor, function = spec["factor"], {"sin": torch.sin, "tanh": torch.tanh, "none": None}[spec["function"]]
    return lambda result: factor * (result if function is None else function(result))


DESCRIPTIONS = st.fixed_dictionaries(
    {
        "layers": st.lists(LAYERS, min_size=1, max_size=4),
        "frozen": st.sampled_from([None, "first", "last"]),
        "output": st.fixed_dictionaries(
            {"factor": st.sampled_from([1.0, 2.0]), "function": st.sampled_from(["sin", "tanh", "none"])}
        ),
        "readout": st.sampled_from(["pntk", 0, 1, "trace", "full"]),
        "dtype": st.sampled_from([torch.float32, torch.float64]),
        "tile": st.sampled_from([3, 4]),
        "batch_size": st.sampled_from([2, 3]),
        "seed": st.integers(0, 3),
        "order": st.sampled_from([1, -1]),
        "touched": st.sampled_from([None, 2, 5]),
        "transform": st.sampled_from(["none", "negative", "shift"]),
    }
)


def build(spec: dict[str, Any]) -> tuple[nn.Module, Tensor, dict[str, Any]]:
    """The model, the samples and the options of a description."""
    body = [layer(part) for part in spec["layers"]]
    model = nn.Sequential(nn.Conv2d(1, CHANNELS, 1), *body, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 2))
    for index, parameter in enumerate(model.parameters()):
        numbers = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(index))
        parameter.data = numbers / max(1, parameter[0].numel()) ** 0.5
    if spec["frozen"] is not None:
        model[0 if spec["frozen"] == "first" else -1].requires_grad_(False)
    x = torch.randn(7, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(spec["seed"]))
    x = x.flip(0) if spec["order"] < 0 else x
    if spec["touched"] is not None:
        x[spec["touched"], 0, 4, 4] += 1e-3
    x = {"none": x, "negative": -x, "shift": x + 0.5}[spec["transform"]]
    options = {name: spec[name] for name in ("readout", "dtype", "tile", "batch_size")}
    return model.eval(), x, {**options, "output": output_of(spec["output"])}


def perturbed(data: Any, spec: dict[str, Any]) -> dict[str, Any]:
    """The description with one of its values drawn again until it is another."""
    other = copy.deepcopy(spec)
    field = data.draw(st.sampled_from(sorted(spec)), label="field")
    if field == "layers" and data.draw(st.booleans(), label="one value of one layer"):
        which = data.draw(st.integers(0, len(spec["layers"]) - 1))
        kind = spec["layers"][which]["kind"]
        same_kind = LAYERS.filter(lambda part: part["kind"] == kind and part != spec["layers"][which])
        other["layers"][which] = data.draw(same_kind)
    else:
        drawn = DESCRIPTIONS.map(lambda whole: whole[field]).filter(lambda value: value != spec[field])
        other[field] = data.draw(drawn)
    return other


def run(path: Path, spec: dict[str, Any], **more: Any) -> Any:
    model, x, options = build(spec)
    return compute(model, x, path, **options, **more, progress=False)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(spec=DESCRIPTIONS, data=st.data())
def test_a_perturbed_description_is_refused(spec: dict[str, Any], data: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.zarr"
        run(path, spec, engine=Shard(0, 2))
        other = perturbed(data, spec)
        with pytest.raises(TangentError, match="holds another kernel"):
            run(path, other)
        kernel = run(path, spec)
        assert kernel.complete
        model, x, options = build(spec)
        named = {name: options[name] for name in ("readout", "dtype", "output")}
        expected = ntk(model, x, **named).reshape(kernel.shape)
        tolerance = 1e-9 if spec["dtype"] == torch.float64 else 1e-4
        scale = float(expected.diagonal().abs().max())
        torch.testing.assert_close(kernel.to_tensor(), expected, rtol=tolerance, atol=tolerance * scale)
        with pytest.raises(TangentError, match="holds another kernel"):
            run(path, other)
