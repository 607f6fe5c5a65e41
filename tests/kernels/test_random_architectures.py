"""Random networks: mixtures of all layers with residual sums, reuse, tying and functional calls."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import tangentlab
from tests.kernels.parts import shaken

ACTIVATIONS = (torch.relu, torch.tanh, F.gelu, F.silu, lambda x: F.relu(x, inplace=True))


class RandomNetwork(nn.Module):
    """A chain of blocks on (B, positions, features), drawn by hypothesis.

    Each block is a name and a function of the running tensor; blocks may reuse the parameters of an earlier one. All
    keep the shape, so that any chain and any residual sum fits.
    """

    def __init__(self, draw: Any) -> None:
        super().__init__()
        self.positions = draw(st.sampled_from([1, 3, 4]))
        self.features = draw(st.sampled_from([4, 6]))
        outputs = draw(st.integers(1, 3))
        self.layers = nn.ModuleList()
        self.bare = nn.ParameterList()
        self.integers = draw(st.booleans())
        if self.integers:
            self.embedding = nn.Embedding(5, self.features)
        self.program: list[tuple[str, int, int, bool]] = []
        names = sorted(self.makers())
        for _ in range(draw(st.integers(1, 5))):
            name = draw(st.sampled_from(names))
            same = [i for i, step in enumerate(self.program) if step[0] == name]
            if same and draw(st.booleans()):
                slot = self.program[draw(st.sampled_from(same))][1]
            else:
                slot = self.add(self.makers()[name](draw))
            residual = draw(st.booleans())
            self.program.append((name, slot, draw(st.integers(0, len(ACTIVATIONS) - 1)), residual))
        self.out = nn.Linear(self.positions * self.features, outputs)
        if self.integers and draw(st.booleans()):
            self.layers.append(nn.Linear(self.features, 5, bias=False))
            self.layers[-1].weight = self.embedding.weight
            self.tied = True
        else:
            self.tied = False

    def add(self, part: Any) -> int:
        if isinstance(part, nn.Module):
            self.layers.append(part)
            return len(self.layers) - 1
        self.bare.append(nn.Parameter(part))
        return len(self.bare) - 1

    def makers(self) -> dict[str, Any]:
        d, t = self.features, self.positions
        return {
            "linear": lambda draw: nn.Linear(d, d, bias=draw(st.booleans())),
            "flat linear": lambda draw: nn.Linear(d, d),
            "transposed linear": lambda draw: nn.Linear(t, t),
            "conv": lambda draw: nn.Conv1d(
                d,
                d,
                3,
                padding=draw(st.sampled_from([1, "same"])),
                groups=draw(st.sampled_from([1, 2])),
                bias=draw(st.booleans()),
            ),
            "dilated conv": lambda draw: nn.Conv1d(
                d, d, 3, padding=2, dilation=2, padding_mode=draw(st.sampled_from(["zeros", "replicate"]))
            ),
            "depthwise": lambda draw: nn.Conv1d(d, d, 3, padding=1, groups=d),
            "image conv": lambda draw: nn.Conv2d(1, 1, 3, padding=1),
            "transposed conv": lambda draw: nn.ConvTranspose1d(d, d, 3, padding=1),
            "batch norm": lambda draw: nn.BatchNorm1d(d),
            "layer norm": lambda draw: nn.LayerNorm(d),
            "rms norm": lambda draw: nn.RMSNorm(d),
            "group norm": lambda draw: nn.GroupNorm(1, d),
            "prelu": lambda draw: nn.PReLU(draw(st.sampled_from([1, d]))),
            "attention": lambda draw: nn.MultiheadAttention(d, 2, batch_first=draw(st.booleans())),
            "weight norm": lambda draw: parametrizations.weight_norm(nn.Linear(d, d)),
            "gru": lambda draw: nn.GRU(d, d, batch_first=True),
            "scale": lambda draw: torch.randn(d),
            "shift": lambda draw: torch.randn(t, d),
            "matmul": lambda draw: torch.randn(d, d),
            "ntk": lambda draw: torch.randn(d, d),
            "left": lambda draw: torch.randn(t, t),
            "einsum": lambda draw: torch.randn(d, t, d),
            "symmetrised": lambda draw: torch.randn(d, d),
        }

    def step(self, name: str, slot: int, x: Tensor) -> Tensor:
        if name in ("scale", "shift", "matmul", "ntk", "left", "einsum", "symmetrised"):
            p = self.bare[slot]
            match name:
                case "scale":
                    return x * p
                case "shift":
                    return x + p
                case "matmul":
                    return x @ p
                case "ntk":
                    return F.linear(x, p / math.sqrt(self.features))
                case "left":
                    return p @ x
                case "einsum":
                    return torch.einsum("btd,dte->bte", x, p)
                case _:
                    return x @ (p + p.T)
        layer = self.layers[slot]
        match name:
            case "conv" | "dilated conv" | "depthwise" | "transposed conv" | "batch norm" | "group norm" | "prelu":
                return layer(x.transpose(1, 2)).transpose(1, 2)
            case "transposed linear":
                return layer(x.mT).mT
            case "flat linear":
                return layer(x.reshape(-1, self.features)).view_as(x)
            case "image conv":
                return layer(x.unsqueeze(1)).squeeze(1)
            case "attention" if not layer.batch_first:
                y = x.transpose(0, 1)
                return layer(y, y, y)[0].transpose(0, 1)
            case "attention":
                return layer(x, x, x)[0]
            case "gru":
                return layer(x)[0]
        return layer(x)

    def forward(self, x: Tensor) -> Tensor:
        if self.integers:
            x = self.embedding(x)
        for name, slot, activation, residual in self.program:
            y = ACTIVATIONS[activation](self.step(name, slot, x))
            x = x + y if residual else y
        y = self.out(x.flatten(1))
        return torch.cat([y, self.layers[-1](x).mean(1)], 1) if self.tied else y


@st.composite
def networks(draw: Any) -> tuple[RandomNetwork, Tensor]:
    torch.manual_seed(draw(st.integers(0, 2**31)))
    model = shaken(RandomNetwork(draw)).double().eval()
    count = draw(st.integers(1, 5))
    shape = (count, model.positions)
    return model, torch.randint(0, 5, shape) if model.integers else torch.randn(*shape, model.features).double()


@given(networks(), st.sampled_from(["full", "pntk", "trace"]), st.sampled_from([None, 1, 2]))
@settings(max_examples=320, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_random_network(pair: tuple[RandomNetwork, Tensor], readout: str, batch_size: int | None) -> None:
    model, x = pair
    expected = tangentlab.reference.ntk(model, x, readout=readout)
    scale = expected.norm()
    found = tangentlab.ntk(model, x, readout=readout, batch_size=batch_size)
    assert (found - expected).norm() <= 1e-10 * scale
    single = tangentlab.ntk(model.float(), x if model.integers else x.float(), readout=readout)
    assert (single - expected).norm() <= 2e-5 * scale


def test_most_parameters_have_rules() -> None:
    """In random networks only recurrent layers may fall back."""
    seen = {"rule": 0, "fallback": 0}

    @given(networks())
    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    def count(pair: tuple[RandomNetwork, Tensor]) -> None:
        model, x = pair
        if len(x) == 1:
            return  # one sample alone does not show where the samples of a batch lie
        table = tangentlab.explain(model, x)
        fallen = table[table.form == "fallback"]
        assert set(fallen.operation) <= {"torch.gru"}
        seen["fallback"] += len(fallen)
        seen["rule"] += len(table) - len(fallen)

    count()
    assert seen["rule"] > 100
